/* SPDX-License-Identifier: MIT */
/*
 * int8 K/V on AVX-512 VNNI. vpdpbusd multiplies unsigned by signed bytes, four to a lane. Grid values go in as two signed
 * digits, value = 256 * high + low; K and V as unsigned, x + 128, whose surplus 128 * (sum of grid values) is taken off
 * again. All of it is integers, so the sums are the portable kernel's.
 *
 *   q.k  a lane is a cell: 64 cells' rows of one group are transposed to dwords of 4 channels.
 *   p.v  a lane is a channel: rows of 4 cells are interleaved to dwords of 4 cells.
 *
 * Both are then the same product: 3 heads x 2 digits x 4 vectors are 24 accumulators.
 */
#include "runtime/cpu.h"
#if defined(QSA_X86)
#define QSA_SIMD_AVX512
#include "runtime/simd.h"

#include "attend/int8_avx512.h"
#include "runtime/memory.h"

enum { STEPS = 16, THREE = 3 }; /* quads of a group's channels, or of a chunk's cells */

/* Accumulators are named one by one: compilers keep arrays of them in memory. */
#define EACH_ONE(M) M(0)
#define EACH_THREE(M) M(0) M(1) M(2)

/* ------------------------------------------------------------------------------------------------ q on its grid */

/* In `prepared`: digits [groups][heads], surplus int32 [groups][heads], step f32 [groups][heads]. */
typedef struct prepared_q {
    digit_pair *digit;
    int32_t *surplus;
    float *step;
} prepared_q;

QSA_SIMD prepared_q open_prepared(const void *prepared, int64_t heads, int64_t dim) {
    prepared_q q;
    q.digit = (digit_pair *)(uintptr_t)prepared;
    q.surplus = (int32_t *)(void *)(q.digit + heads * (dim / QSA_GROUP));
    q.step = (float *)(void *)(q.surplus + heads * (dim / QSA_GROUP));
    return q;
}

QSA_SIMD int32_t surplus_of(const __m512i x[4]) {
    __m512i sum = _mm512_add_epi32(_mm512_add_epi32(x[0], x[1]), _mm512_add_epi32(x[2], x[3]));
    return 128 * _mm512_reduce_add_epi32(sum);
}

QSA_SIMD void store_digits(const __m512i x[4], digit_pair *to) {
    __m512i low, high;
    digits(x, &low, &high);
    _mm512_storeu_si512(to->low, low);
    _mm512_storeu_si512(to->high, high);
}

QSA_KERNEL static void qsa_prepare_i8_avx512(const float *q, int64_t heads, int64_t head_dim, float scale, void *prepared) {
    int64_t groups = head_dim / QSA_GROUP;
    prepared_q to = open_prepared(prepared, heads, head_dim);
    for (int64_t i = 0; i < heads * groups; i++) {
        int64_t at = i % groups * heads + i / groups;
        vf x[4];
        __m512i grid[4];
        for (int j = 0; j < 4; j++) {
            x[j] = v_load(q + i * QSA_GROUP + 16 * j);
        }
        to.step[at] = to_grid(x, grid).step * scale;
        to.surplus[at] = surplus_of(grid);
        store_digits(grid, &to.digit[at]);
    }
}

/* ------------------------------------------------------------------------------------------------ a chunk */

typedef struct chunk {
    qsa_attend_walk walk;
    int64_t padded; /* count rounded up to 16; the pad repeats cell 0, with p = 0 */
    prepared_q q;
    float p[QSA_HEADS_MAX][QSA_CHUNK_MAX]; /* scores, then exp(score - m) */
    float old[QSA_HEADS_MAX], new[QSA_HEADS_MAX];
    float k_scale[QSA_GROUPS_MAX][QSA_CHUNK_MAX], ratio[QSA_GROUPS_MAX][QSA_CHUNK_MAX], grid_step[QSA_GROUPS_MAX];
    _Alignas(64) uint32_t quad[STEPS][4][16]; /* of one group: K, [quad of channels][cell], or V, [quad of cells][channel] */
    _Alignas(64) digit_pair w[QSA_HEADS_MAX]; /* of one group */
    _Alignas(64) float sum[THREE][4][16];     /* what a product leaves: [head][cell or channel] */
    int32_t surplus[QSA_HEADS_MAX];
} chunk;

/* 16 rows of 16 dwords to 16 columns, as unsigned bytes. Row 4 r + c is loaded a quarter (16 bytes) at a time, so that
 * quarter q of a column vector comes from rows 4 q .. 4 q + 3 and the rest stays within quarters. */
#define LOAD_COLUMN(q, c)                                                                                          \
    _mm512_inserti32x4(                                                                                            \
        _mm512_inserti32x4(                                                                                        \
            _mm512_inserti32x4(_mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(row[(c)] + offset + 16 * (q)))), \
                               _mm_loadu_si128((const __m128i *)(row[4 + (c)] + offset + 16 * (q))), 1),           \
            _mm_loadu_si128((const __m128i *)(row[8 + (c)] + offset + 16 * (q))), 2),                              \
        _mm_loadu_si128((const __m128i *)(row[12 + (c)] + offset + 16 * (q))), 3)

#define TURN_QUARTER(q)                                                                           \
    {                                                                                             \
        __m512i a = LOAD_COLUMN(q, 0), b = LOAD_COLUMN(q, 1), d = LOAD_COLUMN(q, 2), e = LOAD_COLUMN(q, 3); \
        __m512i ab = _mm512_unpacklo_epi32(a, b), ab2 = _mm512_unpackhi_epi32(a, b);              \
        __m512i de = _mm512_unpacklo_epi32(d, e), de2 = _mm512_unpackhi_epi32(d, e);              \
        _mm512_store_si512(out[4 * (q)][vector], _mm512_xor_si512(flip, _mm512_unpacklo_epi64(ab, de)));  \
        _mm512_store_si512(out[4 * (q) + 1][vector], _mm512_xor_si512(flip, _mm512_unpackhi_epi64(ab, de)));  \
        _mm512_store_si512(out[4 * (q) + 2][vector], _mm512_xor_si512(flip, _mm512_unpacklo_epi64(ab2, de2))); \
        _mm512_store_si512(out[4 * (q) + 3][vector], _mm512_xor_si512(flip, _mm512_unpackhi_epi64(ab2, de2))); \
    }

/* Lane 4 r + c of vector `vector` is what row 4 r + c has there. */
QSA_SIMD void transpose_cells(const char *const *row, int64_t offset, int64_t vector, uint32_t out[STEPS][4][16]) {
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    TURN_QUARTER(0)
    TURN_QUARTER(1)
    TURN_QUARTER(2)
    TURN_QUARTER(3)
}

/* sum gains four products in each lane. Written as it is because gcc 12 copies and spills around the intrinsic, and copies
 * around a function, too. */
#define DOT4(sum, unsigned_bytes, signed_bytes) \
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(unsigned_bytes), "v"(signed_bytes))

QSA_SIMD __m512i spread(uint32_t dword) {
    return _mm512_set1_epi32((int32_t)dword);
}

/* 16 integer sums of one head: 256 * high + low - surplus. */
QSA_SIMD vf settle(__m512i low, __m512i high, int32_t surplus) {
    return _mm512_cvtepi32_ps(
        _mm512_sub_epi32(_mm512_add_epi32(_mm512_slli_epi32(high, 8), low), _mm512_set1_epi32(surplus)));
}

#define ZERO(i)                                                                     \
    __m512i low##i##a = _mm512_setzero_si512(), low##i##b = _mm512_setzero_si512(); \
    __m512i low##i##c = _mm512_setzero_si512(), low##i##d = _mm512_setzero_si512(); \
    __m512i high##i##a = _mm512_setzero_si512(), high##i##b = _mm512_setzero_si512(); \
    __m512i high##i##c = _mm512_setzero_si512(), high##i##d = _mm512_setzero_si512();
#define STEP(i)                      \
    digit = spread(x[i].low[at]);    \
    DOT4(low##i##a, v0, digit);      \
    DOT4(low##i##b, v1, digit);      \
    DOT4(low##i##c, v2, digit);      \
    DOT4(low##i##d, v3, digit);      \
    digit = spread(x[i].high[at]);   \
    DOT4(high##i##a, v0, digit);     \
    DOT4(high##i##b, v1, digit);     \
    DOT4(high##i##c, v2, digit);     \
    DOT4(high##i##d, v3, digit);
#define END(i)                                                        \
    v_store(c->sum[i][0], settle(low##i##a, high##i##a, surplus[i])); \
    v_store(c->sum[i][1], settle(low##i##b, high##i##b, surplus[i])); \
    v_store(c->sum[i][2], settle(low##i##c, high##i##c, surplus[i])); \
    v_store(c->sum[i][3], settle(low##i##d, high##i##d, surplus[i]));

/* The sums over quads 0..steps-1 of some heads' digits, in the order of digits(), times c->quad. */
#define PRODUCT(name, EACH)                                                                             \
    QSA_SIMD void name(chunk *c, int64_t steps, const digit_pair *x, const int32_t *surplus) {          \
        EACH(ZERO)                                                                                      \
        for (int64_t t = 0; t < steps; t++) {                                                           \
            int64_t at = digits_order(t);                                                               \
            __m512i v0 = _mm512_load_si512(c->quad[t][0]), v1 = _mm512_load_si512(c->quad[t][1]), digit; \
            __m512i v2 = _mm512_load_si512(c->quad[t][2]), v3 = _mm512_load_si512(c->quad[t][3]);       \
            EACH(STEP)                                                                                  \
        }                                                                                               \
        EACH(END)                                                                                       \
    }
PRODUCT(product_three, EACH_THREE)
PRODUCT(product_one, EACH_ONE)

/* The same for the first three heads, or one, of those that are left; returns how many. */
QSA_SIMD int64_t product(chunk *c, int64_t steps, int64_t heads, const digit_pair *x, const int32_t *surplus) {
    if (heads >= THREE) {
        product_three(c, steps, x, surplus);
        return THREE;
    }
    product_one(c, steps, x, surplus);
    return 1;
}

QSA_SIMD void fetch_rows(chunk *c, int64_t rows) {
    for (int64_t i = 0; i < rows; i++) {
        qsa_attend_fetch_row(&c->walk.fetch);
    }
}

QSA_SIMD void dots(chunk *c, int64_t heads, int64_t groups) {
    for (int64_t g = 0; g < groups; g++) {
        for (int64_t j = 0; j < c->padded; j += 16) {
            transpose_cells(c->walk.now->k + j, g * QSA_GROUP, j / 16, c->quad);
        }
        for (int64_t h = 0, n; h < heads; h += n) {
            int64_t at = g * heads + h;
            n = product(c, STEPS, heads - h, c->q.digit + at, c->q.surplus + at);
            for (int64_t i = 0; i < n; i++) {
                vf step = v_set(c->q.step[at + i]);
                for (int64_t j = 0; j < c->padded; j += 16) {
                    float *s = c->p[h + i] + j;
                    vf before = g == 0 ? v_set(0.0f) : v_load(s);
                    v_store(s, v_fma(v_load(c->sum[i][j / 16]), v_mul(v_load(c->k_scale[g] + j), step), before));
                }
            }
            fetch_rows(c, 4);
        }
    }
}

/* p of one head on the grid of group g. */
QSA_SIMD void weigh(chunk *c, int64_t g, int64_t h) {
    __m512i w[4];
    weights(c->p[h], c->ratio[g], w);
    c->surplus[h] = surplus_of(w);
    store_digits(w, &c->w[h]);
}

#define LOAD_ROW(i) \
    _mm512_xor_si512(_mm512_permutexvar_epi32(turn, _mm512_loadu_si512(c->walk.now->v[j + (i)] + g * QSA_GROUP)), flip)

/* Rows of V in fours, so that dword d of vector i is channel 16 i + d of the four cells, as unsigned bytes. */
QSA_SIMD void interleave_cells(chunk *c, int64_t g) {
    const __m512i turn = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    for (int64_t j = 0; j < c->padded; j += 4) {
        __m512i r0 = LOAD_ROW(0), r1 = LOAD_ROW(1), r2 = LOAD_ROW(2), r3 = LOAD_ROW(3);
        __m512i a = _mm512_unpacklo_epi8(r0, r1), b = _mm512_unpackhi_epi8(r0, r1);
        __m512i d = _mm512_unpacklo_epi8(r2, r3), e = _mm512_unpackhi_epi8(r2, r3);
        _mm512_store_si512(c->quad[j / 4][0], _mm512_unpacklo_epi16(a, d));
        _mm512_store_si512(c->quad[j / 4][1], _mm512_unpackhi_epi16(a, d));
        _mm512_store_si512(c->quad[j / 4][2], _mm512_unpacklo_epi16(b, e));
        _mm512_store_si512(c->quad[j / 4][3], _mm512_unpackhi_epi16(b, e));
    }
}

QSA_SIMD void sums(chunk *c, const qsa_attend_unit *unit, int first) {
    for (int64_t g = 0; g < unit->head_dim / QSA_GROUP; g++) {
        interleave_cells(c, g);
        for (int64_t h = 0; h < unit->heads; h++) {
            weigh(c, g, h);
        }
        for (int64_t h = 0, n; h < unit->heads; h += n) {
            n = product(c, c->padded / 4, unit->heads - h, c->w + h, c->surplus + h);
            for (int64_t i = 0; i < n; i++) {
                float *acc = unit->part + (h + i) * (unit->head_dim + 2) + g * QSA_GROUP;
                vf step = v_set(c->grid_step[g] * c->new[h + i]), old = v_set(c->old[h + i]);
                for (int64_t d = 0; d < 4; d++, acc += 16) {
                    vf x = v_load(c->sum[i][d]);
                    v_store(acc, first ? v_mul(x, step) : v_fma(x, step, v_mul(v_load(acc), old)));
                }
            }
            fetch_rows(c, 4);
        }
    }
}

QSA_KERNEL static void run_chunk(const qsa_attend_unit *unit, chunk *c, int first) {
    int64_t dim = unit->head_dim, groups = dim / QSA_GROUP;
    c->padded = qsa_attend_pad(c->walk.now, 16);
    turn_scales(c->walk.now->k_scale, c->padded, groups, c->k_scale);
    turn_scales(c->walk.now->v_scale, c->padded, groups, c->ratio);
    qsa_turn_ratios(c->walk.now->count, groups, c->ratio, c->grid_step);
    qsa_attend_fetch_scales(&c->walk.fetch);
    dots(c, unit->heads, groups);
    for (int64_t h = 0; h < unit->heads; h++) {
        qsa_softmax_head(c->p[h], c->walk.now->count, dim, first, unit->part + h * (dim + 2), &c->old[h], &c->new[h]);
        qsa_softmax_weights(c->p[h], c->walk.now->count);
    }
    sums(c, unit, first);
}

QSA_KERNEL static void qsa_attend_i8_avx512(const qsa_attend_unit *unit) {
    chunk c;
    qsa_attend_open(&c.walk, unit);
    while (qsa_attend_next(&c.walk)) {
        c.q = open_prepared(c.walk.unit.prepared, unit->heads, unit->head_dim);
        run_chunk(&c.walk.unit, &c, c.walk.first);
    }
}

void qsa_attend_i8_init_avx512(qsa_attend_kernels *kernels) {
    kernels->run[QSA_I8_G64] = qsa_attend_i8_avx512;
    kernels->name[QSA_I8_G64] = "qsa_attend_i8_avx512";
    kernels->prepare = qsa_prepare_i8_avx512;
    kernels->prepare_name = "qsa_prepare_i8_avx512";
}
#endif
