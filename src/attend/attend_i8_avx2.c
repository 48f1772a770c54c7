/* SPDX-License-Identifier: MIT */
/*
 * int8 K/V on AVX2. pmaddwd multiplies 16-bit integers and adds them in pairs, so grid values go in whole. Bytes become
 * 16-bit two ways: of each dword of four bytes, the odd ones by a shift right, the even ones by a shift left and right.
 *
 *   q.k  a lane is a cell: rows of 16 cells and one group are transposed to dwords of 4 channels; 6 heads x 2 vectors of cells
 *        are 12 accumulators.
 *   p.v  a lane is a channel: rows of 4 cells are interleaved to dwords of 4 cells; 6 heads x 2 vectors of channels.
 *
 * Rows of K and V lie anywhere: the next chunk's are prefetched all along.
 */
#include "runtime/cpu.h"
#if defined(QSA_X86)
#define QSA_SIMD_AVX2
#include "runtime/simd.h"

#include "attend/attend.h"
#include "attend/softmax_simd.h"
#include "runtime/memory.h"

enum { CELLS = 16, STEPS = QSA_GROUP / 4, QUADS = QSA_CHUNK_MAX / 4, VECTORS = QSA_GROUP / V_LANES, SIX = 6 };

/* Grid values in pairs: dword 2 t holds values 4 t and 4 t + 2, dword 2 t + 1 values 4 t + 1 and 4 t + 3. */
typedef struct pairs {
    int32_t dword[QSA_GROUP / 2];
} pairs;

/* In `prepared`: pairs [heads][groups], step f32 [heads][groups]. */
typedef struct prepared_q {
    pairs *pair;
    float *step;
} prepared_q;

QSA_SIMD prepared_q open_prepared(const void *prepared, int64_t heads, int64_t dim) {
    prepared_q q;
    q.pair = (pairs *)(uintptr_t)prepared;
    q.step = (float *)(void *)(q.pair + heads * (dim / QSA_GROUP));
    return q;
}

static int32_t pair_of(int32_t first, int32_t second) {
    return (int32_t)(((uint32_t)first & 0xffffu) | (uint32_t)second << 16);
}

QSA_SIMD void to_pairs(const int32_t x[QSA_GROUP], pairs *out) {
    for (int64_t t = 0; t < QSA_GROUP / 4; t++) {
        out->dword[2 * t] = pair_of(x[4 * t], x[4 * t + 2]);
        out->dword[2 * t + 1] = pair_of(x[4 * t + 1], x[4 * t + 3]);
    }
}

QSA_KERNEL static void qsa_prepare_i8_avx2(const float *q, int64_t heads, int64_t head_dim, float scale, void *prepared) {
    prepared_q to = open_prepared(prepared, heads, head_dim);
    for (int64_t i = 0; i < heads * (head_dim / QSA_GROUP); i++) {
        const float *x = q + i * QSA_GROUP;
        int32_t integer[QSA_GROUP];
        vi largest = v_zero_bits();
        for (int64_t c = 0; c < QSA_GROUP; c += V_LANES) {
            largest = v_max_magnitude(largest, v_magnitude(v_load(x + c)));
        }
        qsa_grid grid = qsa_grid_of(v_top_magnitude(largest));
        for (int64_t c = 0; c < QSA_GROUP; c += V_LANES) {
            vi rounded = _mm256_cvtps_epi32(v_mul(v_load(x + c), v_set(grid.inverse)));
            v_store_bits(integer + c, grid.inverse > 0.0f ? rounded : v_zero_bits());
        }
        to.step[i] = grid.step * scale;
        to_pairs(integer, &to.pair[i]);
    }
}

/* ------------------------------------------------------------------------------------------------ a chunk */

typedef struct chunk {
    qsa_attend_walk walk;
    int64_t padded;                     /* cells of now rounded up to 16; the pad repeats cell 0, with p = 0 */
    prepared_q q;
    float p[QSA_HEADS_MAX][QSA_CHUNK_MAX]; /* scores, then exp(score - m) */
    float old[QSA_HEADS_MAX], new[QSA_HEADS_MAX];
    float k_scale[QSA_GROUPS_MAX][QSA_CHUNK_MAX], ratio[QSA_GROUPS_MAX][QSA_CHUNK_MAX], grid_step[QSA_GROUPS_MAX];
    _Alignas(32) int16_t tile[STEPS][2][2][CELLS];            /* K of 16 cells and one group: [step][even, odd][8 cells][pair] */
    _Alignas(32) int16_t quad[QUADS][2][VECTORS][2 * V_LANES]; /* V of one group: [quad of cells][even, odd][8 channels][pair] */
    pairs w[QSA_HEADS_MAX];
} chunk;

/* [cell][group] halves to [group][cell] f32. */
QSA_SIMD void turn_scales(const uint16_t *const *scale, int64_t padded, int64_t groups, float out[][QSA_CHUNK_MAX]) {
    uint16_t half[QSA_GROUPS_MAX][QSA_CHUNK_MAX];
    for (int64_t j = 0; j < padded; j++) {
        for (int64_t g = 0; g < groups; g++) {
            half[g][j] = scale[j][g];
        }
    }
    for (int64_t g = 0; g < groups; g++) {
        for (int64_t j = 0; j < padded; j += V_LANES) {
            v_store(out[g] + j, v_from_f16(half[g] + j));
        }
    }
}

QSA_SIMD void store_halves(vi bytes, int16_t *even, int16_t *odd) {
    v_store_bits(even, _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8));
    v_store_bits(odd, _mm256_srai_epi16(bytes, 8));
}

QSA_SIMD void transpose_cells(chunk *c, int64_t j, int64_t offset) {
    for (int64_t half = 0; half < 2; half++) {
        for (int64_t t = 0; t < STEPS; t += 4) {
            vi column[4];
            v_columns(c->walk.now->k + j + 8 * half, offset + 4 * t, column);
            for (int64_t i = 0; i < 4; i++) {
                store_halves(column[i], (int16_t *)c->tile[t + i][0] + 16 * half, (int16_t *)c->tile[t + i][1] + 16 * half);
            }
        }
    }
}

/* sum + both products of each pair. Written as it is because gcc 12 spills around the intrinsics. */
#define ADD_PAIRS(sum, a, b)                                                                                              \
    do {                                                                                                                  \
        vi products;                                                                                                      \
        __asm__("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(a), "x"(b));                \
    } while (0)

QSA_SIMD void add_dots(const chunk *c, int64_t at, int64_t g, int64_t j, vi dot, float *s) {
    vf before = g == 0 ? v_set(0.0f) : v_load(s);
    vf factor = v_mul(v_load(c->k_scale[g] + j), v_set(c->q.step[at]));
    v_store(s, v_fma(_mm256_cvtepi32_ps(dot), factor, before));
}

/* Scores of `heads` heads from h on, for 16 cells from j on, gain group g. heads is a constant where this is inlined. */
QSA_SIMD void dot_heads(chunk *c, int64_t groups, int64_t g, int64_t j, int64_t h, const int heads) {
    vi sum[SIX][2];
    const int32_t *q[SIX];
    QSA_UNROLL for (int i = 0; i < heads; i++) {
        sum[i][0] = sum[i][1] = v_zero_bits();
        q[i] = c->q.pair[(h + i) * groups + g].dword;
    }
    for (int64_t t = 0; t < 2 * STEPS; t++) {
        const int16_t *k = (const int16_t *)(const void *)c->tile + t * 2 * CELLS;
        vi k0 = v_load_bits(k), k1 = v_load_bits(k + 2 * V_LANES);
        QSA_UNROLL for (int i = 0; i < heads; i++) {
            vi pair = _mm256_set1_epi32(q[i][t]);
            ADD_PAIRS(sum[i][0], k0, pair);
            ADD_PAIRS(sum[i][1], k1, pair);
        }
    }
    QSA_UNROLL for (int i = 0; i < heads; i++) {
        add_dots(c, (h + i) * groups + g, g, j, sum[i][0], c->p[h + i] + j);
        add_dots(c, (h + i) * groups + g, g, j + V_LANES, sum[i][1], c->p[h + i] + j + V_LANES);
    }
}

QSA_SIMD void dots(chunk *c, int64_t heads, int64_t dim) {
    int64_t groups = dim / QSA_GROUP;
    for (int64_t j = 0; j < c->padded; j += CELLS) {
        for (int64_t g = 0; g < groups; g++) {
            int64_t h = 0;
            transpose_cells(c, j, g * QSA_GROUP);
            for (; h + SIX <= heads; h += SIX) {
                dot_heads(c, groups, g, j, h, SIX);
                qsa_attend_fetch_row(&c->walk.fetch);
                qsa_attend_fetch_row(&c->walk.fetch);
            }
            for (; h < heads; h++) {
                dot_heads(c, groups, g, j, h, 1);
            }
        }
    }
}

/* p of one head on the grid of group g. */
QSA_SIMD void weigh(chunk *c, int64_t g, int64_t h) {
    int32_t integer[QSA_CHUNK_MAX] = {0};
    for (int64_t j = 0; j < c->padded; j += V_LANES) {
        v_store_bits(integer + j, _mm256_cvtps_epi32(v_mul(v_load(c->p[h] + j), v_load(c->ratio[g] + j))));
    }
    to_pairs(integer, &c->w[h]);
}

/* Rows of V in fours, as pairs of cells with a channel in each lane. */
QSA_SIMD void interleave_cells(chunk *c, int64_t g) {
    for (int64_t j = 0; j < c->padded; j += 4) {
        for (int64_t at = 0; at < QSA_GROUP; at += 32) {
            const char *const *v = c->walk.now->v + j;
            vi r0 = v_load_bits(v[0] + g * QSA_GROUP + at), r1 = v_load_bits(v[1] + g * QSA_GROUP + at);
            vi r2 = v_load_bits(v[2] + g * QSA_GROUP + at), r3 = v_load_bits(v[3] + g * QSA_GROUP + at);
            vi a = _mm256_unpacklo_epi8(r0, r1), b = _mm256_unpackhi_epi8(r0, r1);
            vi d = _mm256_unpacklo_epi8(r2, r3), e = _mm256_unpackhi_epi8(r2, r3);
            vi x0 = _mm256_unpacklo_epi16(a, d), x1 = _mm256_unpackhi_epi16(a, d);
            vi x2 = _mm256_unpacklo_epi16(b, e), x3 = _mm256_unpackhi_epi16(b, e);
            int16_t(*even)[2 * V_LANES] = c->quad[j / 4][0] + at / V_LANES, (*odd)[2 * V_LANES] = even + VECTORS;
            store_halves(_mm256_permute2x128_si256(x0, x1, 0x20), even[0], odd[0]);
            store_halves(_mm256_permute2x128_si256(x2, x3, 0x20), even[1], odd[1]);
            store_halves(_mm256_permute2x128_si256(x0, x1, 0x31), even[2], odd[2]);
            store_halves(_mm256_permute2x128_si256(x2, x3, 0x31), even[3], odd[3]);
        }
    }
}

QSA_SIMD void add_sums(const chunk *c, int64_t h, int64_t g, int first, vi sum, float *acc) {
    vf x = _mm256_cvtepi32_ps(sum), step = v_set(c->grid_step[g] * c->new[h]);
    v_store(acc, first ? v_mul(x, step) : v_fma(x, step, v_mul(v_load(acc), v_set(c->old[h]))));
}

/* Sixteen channels, vectors v and v + 1 of group g, of `heads` heads' parts gain the chunk's sums. */
QSA_SIMD void sum_heads(const chunk *c, const qsa_attend_unit *unit, int64_t g, int64_t v, int64_t h, int first, const int heads) {
    vi sum[SIX][2];
    const int32_t *w[SIX];
    QSA_UNROLL for (int i = 0; i < heads; i++) {
        sum[i][0] = sum[i][1] = v_zero_bits();
        w[i] = c->w[h + i].dword;
    }
    for (int64_t t = 0; t < c->padded / 2; t++) {
        const int16_t *at = (const int16_t *)(const void *)c->quad + v * 2 * V_LANES + t * QSA_GROUP * 2;
        vi v0 = v_load_bits(at), v1 = v_load_bits(at + 2 * V_LANES);
        QSA_UNROLL for (int i = 0; i < heads; i++) {
            vi pair = _mm256_set1_epi32(w[i][t]);
            ADD_PAIRS(sum[i][0], v0, pair);
            ADD_PAIRS(sum[i][1], v1, pair);
        }
    }
    QSA_UNROLL for (int i = 0; i < heads; i++) {
        float *acc = unit->part + (h + i) * (unit->head_dim + 2) + g * QSA_GROUP + v * V_LANES;
        add_sums(c, h + i, g, first, sum[i][0], acc);
        add_sums(c, h + i, g, first, sum[i][1], acc + V_LANES);
    }
}

QSA_SIMD void sums(chunk *c, const qsa_attend_unit *unit, int first) {
    int64_t groups = unit->head_dim / QSA_GROUP;
    for (int64_t g = 0; g < groups; g++) {
        interleave_cells(c, g);
        for (int64_t h = 0; h < unit->heads; h++) {
            weigh(c, g, h);
        }
        for (int64_t v = 0; v < VECTORS; v += 2) {
            int64_t h = 0;
            for (; h + SIX <= unit->heads; h += SIX) {
                sum_heads(c, unit, g, v, h, first, SIX);
                qsa_attend_fetch_row(&c->walk.fetch);
                qsa_attend_fetch_row(&c->walk.fetch);
            }
            for (; h < unit->heads; h++) {
                sum_heads(c, unit, g, v, h, first, 1);
            }
        }
    }
}

QSA_SIMD void run_chunk(const qsa_attend_unit *unit, chunk *c, int first) {
    int64_t dim = unit->head_dim, groups = dim / QSA_GROUP;
    c->padded = qsa_attend_pad(c->walk.now, CELLS);
    turn_scales(c->walk.now->k_scale, c->padded, groups, c->k_scale);
    turn_scales(c->walk.now->v_scale, c->padded, groups, c->ratio);
    qsa_turn_ratios(c->walk.now->count, groups, c->ratio, c->grid_step);
    qsa_attend_fetch_scales(&c->walk.fetch);
    dots(c, unit->heads, dim);
    for (int64_t h = 0; h < unit->heads; h++) {
        qsa_softmax_head(c->p[h], c->walk.now->count, dim, first, unit->part + h * (dim + 2), &c->old[h], &c->new[h]);
        qsa_softmax_weights(c->p[h], c->walk.now->count);
    }
    sums(c, unit, first);
}

QSA_KERNEL static void qsa_attend_i8_avx2(const qsa_attend_unit *unit) {
    chunk c;
    qsa_attend_open(&c.walk, unit);
    while (qsa_attend_next(&c.walk)) {
        c.q = open_prepared(c.walk.unit.prepared, unit->heads, unit->head_dim);
        run_chunk(&c.walk.unit, &c, c.walk.first);
    }
}

void qsa_attend_i8_init_avx2(qsa_attend_kernels *kernels) {
    kernels->run[QSA_I8_G64] = qsa_attend_i8_avx2;
    kernels->name[QSA_I8_G64] = "qsa_attend_i8_avx2";
    kernels->prepare = qsa_prepare_i8_avx2;
    kernels->prepare_name = "qsa_prepare_i8_avx2";
}
#endif
