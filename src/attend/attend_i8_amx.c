/* SPDX-License-Identifier: MIT */
/*
 * int8 K/V on AMX. A tile product multiplies 16 rows of 64 signed bytes with 16 columns of them. Grid values go in as two
 * signed digits, value = 256 * high + low. All of it is integers, so the sums are the portable kernel's.
 *
 *   q.k  K [16 cells][64 channels] x q [64 channels][16 heads]: cells are copied together, since a tile's rows are evenly
 *        spaced; the scores are turned afterwards, so that the softmax has a head's cells in lanes.
 *   p.v  w [16 heads][64 cells] x V [64 cells][16 channels]: V is interleaved to quads of cells.
 *
 * While a chunk is computed, the next one's cells are prefetched, a few lines at each tile product.
 */
#include "runtime/cpu.h"
#if defined(QSA_X86)
#define QSA_SIMD_AVX512
#include "runtime/simd.h"

#include "attend/int8_avx512.h"
#include "runtime/amx.h"
#include "runtime/memory.h"

enum { TILE = 16, TILES_OF_HEADS = QSA_HEADS_MAX / TILE };

/* ------------------------------------------------------------------------------------------------ q on its grid */

/* A tile of one digit of one group: dword [quad of channels][head]. */
typedef struct q_tile {
    uint32_t quad[TILE][TILE];
} q_tile;

/* In `prepared`: tiles [tile of heads][group]{low, high}, step f32 [tile of heads][group][head]. */
typedef struct prepared_q {
    q_tile *tile;
    float *step;
} prepared_q;

QSA_SIMD prepared_q open_prepared(const void *prepared, int64_t heads, int64_t dim) {
    prepared_q q;
    q.tile = (q_tile *)(uintptr_t)prepared;
    q.step = (float *)(void *)(q.tile + qsa_div_up(heads, TILE) * (dim / QSA_GROUP) * 2);
    return q;
}

/* 64 grid values, given as 4 x 16 int32, as 256 * high + low with an unsigned low digit; in the order of digits(). */
QSA_SIMD void split(const __m512i x[4], digit_pair *to) {
    const __m512i byte = _mm512_set1_epi16(255);
    __m512i a = _mm512_packs_epi32(x[0], x[1]), b = _mm512_packs_epi32(x[2], x[3]);
    _mm512_storeu_si512(to->low, _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte)));
    _mm512_storeu_si512(to->high, _mm512_packs_epi16(_mm512_srai_epi16(a, 8), _mm512_srai_epi16(b, 8)));
}

QSA_KERNEL static void qsa_prepare_i8_amx(const float *q, int64_t heads, int64_t head_dim, float scale, void *prepared) {
    int64_t groups = head_dim / QSA_GROUP;
    prepared_q to = open_prepared(prepared, heads, head_dim);
    memset(prepared, 0, qsa_prepared_bytes(heads, head_dim) - 64);
    for (int64_t i = 0; i < heads * groups; i++) {
        int64_t h = i / groups, at = h / TILE * groups + i % groups;
        vf x[4];
        __m512i grid[4];
        digit_pair pair;
        for (int j = 0; j < 4; j++) {
            x[j] = v_load(q + i * QSA_GROUP + 16 * j);
        }
        qsa_grid g = to_grid(x, grid);
        split(grid, &pair);
        for (int64_t t = 0; t < TILE; t++) {
            to.tile[2 * at].quad[t][h % TILE] = pair.low[digits_order(t)];
            to.tile[2 * at + 1].quad[t][h % TILE] = pair.high[digits_order(t)];
        }
        to.step[at * TILE + h % TILE] = g.step * scale;
    }
}

/* ------------------------------------------------------------------------------------------------ tiles */

/* Registers: sums, K, B (q or V) and w; from T_W_LOW on a row is a head. */
#define T_LOW 0
#define T_HIGH 1
#define T_K 2
#define T_B 3
#define T_W_LOW 4
#define T_W_HIGH 5
#define T_SUM_LOW 6
#define T_SUM_HIGH 7

QSA_SIMD void configure(int64_t heads) {
    qsa_amx_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = (uint8_t)(i < T_W_LOW ? TILE : qsa_min(heads, TILE));
    }
    AMX_CONFIGURE(config);
}

/* What a pair of tile products leaves: [row][column] of the low and of the high digit. */
typedef struct sum_pair {
    int32_t low[TILE][TILE], high[TILE][TILE];
} sum_pair;

/*
 * Tile loads wait for stores that are still on their way, and so do loads behind a tile store. So a chunk is a pipeline of
 * steps, one pair of products each: (16 cells, a group) for q.k, (a group, 16 channels) for p.v. What a product reads is laid
 * out well before it, and what it leaves is settled LAG steps after. All of it has to fit in the first-level cache beside the
 * rows that pass through: whatever falls out of it waits behind the rows that are being prefetched.
 */
enum { LAG = 2, RING = LAG + 1 };

typedef struct chunk {
    qsa_attend_walk walk;
    int64_t padded;                     /* cells of now, rounded up to 16 */
    prepared_q q;
    _Alignas(64) float k_scale[QSA_CHUNK_MAX * QSA_GROUPS_MAX]; /* [cell][group] */
    _Alignas(64) float ratio[QSA_GROUPS_MAX][QSA_CHUNK_MAX];
    _Alignas(64) char k[2][TILE * QSA_HEAD_DIM_MAX];  /* 16 cells */
    _Alignas(64) uint32_t quad[2][4][TILE][TILE];     /* V of a group: [16 channels][quad of cells, as digits() has them][channel] */
    _Alignas(64) digit_pair w[2][TILE];               /* of a group */
    _Alignas(64) sum_pair sum[RING];                  /* of the last steps */
    _Alignas(64) float score[TILE][TILE];             /* [cell][head] */
    _Alignas(64) float p[TILE][QSA_CHUNK_MAX];        /* scores turned, then exp(score - m) */
    _Alignas(64) float m[TILE], l[TILE], old[TILE], new[TILE];
    float step[QSA_GROUPS_MAX];
} chunk;

/* ------------------------------------------------------------------------------------------------ cells */

/* 16 cells from j on. The pad repeats cell 0. */
QSA_SIMD void copy_k(chunk *c, int64_t dim, int64_t j) {
    char *to = c->k[j / TILE % 2];
    for (int64_t i = 0; i < TILE; i++) {
        const char *row = c->walk.now->k[j + i];
        for (int64_t at = 0; at < dim; at += 64) {
            _mm512_store_si512(to + i * dim + at, _mm512_loadu_si512(row + at));
        }
    }
}

#define LOAD_ROW(i) _mm512_permutexvar_epi32(turn, _mm512_loadu_si512(v[i] + g * QSA_GROUP))

/* Rows of V in fours, 16 cells from j on, so that dword d of vector i is channel 16 i + d of the four cells. Quads behind the
 * last cell keep what they hold: their weights are zero. */
QSA_SIMD void interleave_v(chunk *c, int64_t g, int64_t first) {
    const __m512i turn = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    for (int64_t j = first; j < first + TILE && j < c->padded; j += 4) {
        const char *const *v = c->walk.now->v + j;
        uint32_t(*to)[TILE] = c->quad[g % 2][0] + digits_order(j / 4);
        __m512i r0 = LOAD_ROW(0), r1 = LOAD_ROW(1), r2 = LOAD_ROW(2), r3 = LOAD_ROW(3);
        __m512i a = _mm512_unpacklo_epi8(r0, r1), b = _mm512_unpackhi_epi8(r0, r1);
        __m512i d = _mm512_unpacklo_epi8(r2, r3), e = _mm512_unpackhi_epi8(r2, r3);
        _mm512_store_si512(to[0], _mm512_unpacklo_epi16(a, d));
        _mm512_store_si512(to[TILE], _mm512_unpackhi_epi16(a, d));
        _mm512_store_si512(to[2 * TILE], _mm512_unpacklo_epi16(b, e));
        _mm512_store_si512(to[3 * TILE], _mm512_unpackhi_epi16(b, e));
    }
}

/* ------------------------------------------------------------------------------------------------ q.k */

QSA_SIMD vf settle(const sum_pair *sum, int64_t row) {
    return _mm512_cvtepi32_ps(
        _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(sum->high[row]), 8), _mm512_load_si512(sum->low[row])));
}

/* Step `step`: group g of 16 cells, for the heads of tile t. */
QSA_SIMD void multiply_k(chunk *c, int64_t step, int64_t t, int64_t dim) {
    int64_t groups = dim / QSA_GROUP, g = step % groups;
    const q_tile *q = c->q.tile + 2 * (t * groups + g);
    sum_pair *sum = &c->sum[step % RING];
    AMX_ZERO(T_LOW);
    AMX_ZERO(T_HIGH);
    AMX_LOAD(T_K, c->k[step / groups % 2] + g * QSA_GROUP, dim);
    AMX_LOAD(T_B, q[0].quad, 64);
    AMX_MULTIPLY(su, T_LOW, T_K, T_B);
    AMX_LOAD(T_B, q[1].quad, 64);
    AMX_MULTIPLY(ss, T_HIGH, T_K, T_B);
    AMX_STORE(T_LOW, sum->low);
    AMX_STORE(T_HIGH, sum->high);
}

/* The step's group joins the scores of its cells. */
QSA_SIMD void settle_scores(chunk *c, int64_t step, int64_t t, int64_t groups) {
    int64_t g = step % groups, j = step / groups * TILE;
    const sum_pair *sum = &c->sum[step % RING];
    vf q_step = v_load(c->q.step + (t * groups + g) * TILE);
    for (int64_t i = 0; i < TILE; i++) {
        vf before = g == 0 ? v_set(0.0f) : v_load(c->score[i]);
        v_store(c->score[i], v_fma(settle(sum, i), v_mul(v_set(c->k_scale[(j + i) * groups + g]), q_step), before));
        if (i % 4 == 3) {
            qsa_attend_fetch_row(&c->walk.fetch);
        }
    }
}

/* The largest scores of the heads, of 16 cells from j on. */
QSA_SIMD vf raise(const chunk *c, int64_t j, vf top) {
    for (int64_t i = 0; i < qsa_min(TILE, c->walk.now->count - j); i++) {
        top = v_raise(top, v_load(c->score[i]));
    }
    return top;
}

/* [16 cells][head] to [head][cells from j on]. */
QSA_SIMD void turn_scores(chunk *c, int64_t heads, int64_t j) {
    const char *row[TILE];
    for (int64_t i = 0; i < TILE; i++) {
        row[i] = (const char *)c->score[i];
    }
    for (int64_t h = 0; h < heads; h += 4) {
        vi column[4];
        v_columns(row, h * 4, column);
        for (int64_t i = 0; i < 4; i++) {
            v_store_bits(c->p[h + i] + j, column[i]);
        }
    }
}

QSA_SIMD void dots(chunk *c, int64_t t, int64_t heads, int64_t dim) {
    int64_t groups = dim / QSA_GROUP, steps = c->padded / TILE * groups;
    vf top = v_set(-QSA_INFINITY);
    copy_k(c, dim, 0);
    for (int64_t step = 0; step < steps + LAG; step++) {
        int64_t last = step - LAG;
        if (step % groups == 0 && step + groups < steps) {
            copy_k(c, dim, (step / groups + 1) * TILE);
        }
        if (step < steps) {
            multiply_k(c, step, t, dim);
        }
        if (last >= 0) {
            settle_scores(c, last, t, groups);
        }
        if (last >= 0 && last % groups == groups - 1) {
            top = raise(c, last / groups * TILE, top);
            turn_scores(c, heads, last / groups * TILE);
        }
    }
    v_store(c->m, v_add(top, v_set(0.0f))); /* +0 where it is -0 */
}

/* ------------------------------------------------------------------------------------------------ p.v */

/* v_exp for x <= 0 or NaN. The power of two is exact in both, and so are the bits equal. */
QSA_SIMD vf exp_of_fall(vf x) {
    vf shifted, p = v_exp_fraction(x, &shifted), n = v_sub(shifted, v_set(QSA_EXP_MAGIC));
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, v_set(QSA_EXP_LOW), _CMP_NLT_UQ), p, n);
}

/* Scores of the heads become p, 0 where there is no cell or no number; l gains what they sum to. */
QSA_SIMD void softmax(chunk *c, int64_t heads) {
    __mmask16 live[4];
    for (int64_t i = 0; i < 4; i++) {
        live[i] = v_first(qsa_max(0, qsa_min(16, c->walk.now->count - 16 * i)));
    }
    for (int64_t h = 0; h < heads; h++) {
        vf shift = v_set(c->m[h]), sum = v_set(0.0f);
        for (int64_t i = 0; i < 4; i++) {
            vf p = _mm512_maskz_mov_ps(live[i], exp_of_fall(v_sub(v_load(c->p[h] + 16 * i), shift)));
            sum = i == 0 ? p : v_add(sum, p);
            v_store(c->p[h] + 16 * i, _mm512_max_ps(p, v_set(0.0f)));
        }
        c->l[h] = v_fold(&sum);
    }
}

/* The chunk's m and l join the parts'; old and new become the factors of what is there and of what comes. */
QSA_SIMD void join(chunk *c, int64_t heads, int64_t dim, int first, float *part) {
    if (first) {
        v_store(c->old, v_set(0.0f));
        v_store(c->new, v_set(1.0f));
    } else {
        float m[TILE] = {0}, l[TILE] = {0};
        for (int64_t h = 0; h < heads; h++) {
            m[h] = part[h * (dim + 2) + dim];
            l[h] = part[h * (dim + 2) + dim + 1];
        }
        vf before = v_load(m), now = v_load(c->m), top = v_where_less(before, now, now, before);
        vf old = v_exp(v_sub(before, top)), new = v_exp(v_sub(now, top));
        v_store(c->old, old);
        v_store(c->new, new);
        v_store(c->l, v_fma(v_load(c->l), new, v_mul(v_load(l), old)));
        v_store(c->m, top);
    }
    for (int64_t h = 0; h < heads; h++) {
        part[h * (dim + 2) + dim] = c->m[h];
        part[h * (dim + 2) + dim + 1] = c->l[h];
    }
}

/* p of heads first..last-1 on the grid of group g. */
QSA_SIMD void weigh(chunk *c, int64_t first, int64_t last, int64_t g) {
    for (int64_t h = first; h < last; h++) {
        __m512i w[4];
        weights(c->p[h], c->ratio[g], w);
        split(w, &c->w[g % 2][h]);
    }
}

/* A quarter of what the products of group g read. */
QSA_SIMD void lay_out_v(chunk *c, int64_t g, int64_t quarter, int64_t heads) {
    interleave_v(c, g, quarter * TILE);
    weigh(c, quarter * heads / 4, (quarter + 1) * heads / 4, g);
}

/* Step `step`: 16 channels of group step / 4. */
QSA_SIMD void multiply_v(chunk *c, int64_t step) {
    int64_t g = step / 4;
    sum_pair *sum = &c->sum[step % RING];
    if (step % 4 == 0) {
        AMX_LOAD(T_W_LOW, c->w[g % 2][0].low, sizeof(digit_pair));
        AMX_LOAD(T_W_HIGH, c->w[g % 2][0].high, sizeof(digit_pair));
    }
    AMX_ZERO(T_SUM_LOW);
    AMX_ZERO(T_SUM_HIGH);
    AMX_LOAD(T_B, c->quad[g % 2][step % 4], 64);
    AMX_MULTIPLY(us, T_SUM_LOW, T_W_LOW, T_B);
    AMX_MULTIPLY(ss, T_SUM_HIGH, T_W_HIGH, T_B);
    AMX_STORE(T_SUM_LOW, sum->low);
    AMX_STORE(T_SUM_HIGH, sum->high);
}

/* The step's channels of the heads' parts gain the chunk's sums. */
QSA_SIMD void settle_sums(chunk *c, int64_t step, int64_t heads, int64_t dim, int first, float *part) {
    const sum_pair *sum = &c->sum[step % RING];
    float *acc = part + step * 16, grid_step = c->step[step / 4];
    for (int64_t h = 0; h < heads; h++, acc += dim + 2) {
        vf x = settle(sum, h), factor = v_set(grid_step * c->new[h]);
        v_store(acc, first ? v_mul(x, factor) : v_fma(x, factor, v_mul(v_load(acc), v_set(c->old[h]))));
        if (h % 3 == 2) {
            qsa_attend_fetch_row(&c->walk.fetch);
        }
    }
}

QSA_SIMD void sums(chunk *c, int64_t heads, int64_t dim, int first, float *part) {
    int64_t groups = dim / QSA_GROUP, steps = groups * 4;
    for (int64_t quarter = 0; quarter < 4; quarter++) {
        lay_out_v(c, 0, quarter, heads);
    }
    for (int64_t step = 0; step < steps + LAG; step++) {
        if (step / 4 + 1 < groups) {
            lay_out_v(c, step / 4 + 1, step % 4, heads);
        }
        if (step < steps) {
            multiply_v(c, step);
        }
        if (step >= LAG) {
            settle_sums(c, step - LAG, heads, dim, first, part);
        }
    }
}

/* ------------------------------------------------------------------------------------------------ chunks */

QSA_SIMD void run_chunk(const qsa_attend_unit *unit, chunk *c, int first) {
    int64_t dim = unit->head_dim, groups = dim / QSA_GROUP;
    c->padded = qsa_attend_pad(c->walk.now, TILE);
    if (c->padded < QSA_CHUNK_MAX) { /* what stands behind a short chunk is multiplied by zero */
        memset(c->quad, 0, sizeof c->quad);
        memset(c->p, 0, sizeof c->p);
    }
    widen_scales(c->walk.now->k_scale, c->padded, groups, c->k_scale);
    turn_scales(c->walk.now->v_scale, c->padded, groups, c->ratio);
    qsa_turn_ratios(c->walk.now->count, groups, c->ratio, c->step);
    qsa_attend_fetch_scales(&c->walk.fetch);
    for (int64_t t = 0; t * TILE < unit->heads; t++) {
        int64_t heads = qsa_min(TILE, unit->heads - t * TILE);
        float *part = unit->part + t * TILE * (dim + 2);
        dots(c, t, heads, dim);
        softmax(c, heads);
        join(c, heads, dim, first, part);
        sums(c, heads, dim, first, part);
    }
}

QSA_KERNEL static void qsa_attend_i8_amx(const qsa_attend_unit *unit) {
    chunk c;
    configure(unit->heads);
    qsa_attend_open(&c.walk, unit);
    while (qsa_attend_next(&c.walk)) {
        c.q = open_prepared(c.walk.unit.prepared, unit->heads, unit->head_dim);
        run_chunk(&c.walk.unit, &c, c.walk.first);
    }
    AMX_RELEASE();
}

void qsa_attend_i8_init_amx(qsa_attend_kernels *kernels) {
    kernels->run[QSA_I8_G64] = qsa_attend_i8_amx;
    kernels->name[QSA_I8_G64] = "qsa_attend_i8_amx";
    kernels->prepare = qsa_prepare_i8_amx;
    kernels->prepare_name = "qsa_prepare_i8_amx";
}
#endif
