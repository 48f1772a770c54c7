/* SPDX-License-Identifier: MIT */
/*
 * The attend stage: q, ids, K/V -> partials (acc, m, l).
 *
 * A UNIT of work is (row, part, some KV heads): the `heads` query heads that read each of them, against the ids of one part. Ids
 * go in chunks of 32 or 64; holes are left out first, so that lane j of a chunk is its j-th live cell. A kernel computes a chunk
 * for one KV head after the other, since a cell's heads may lie side by side in memory.
 *
 * One chunk, one head (docs/numerics.md has the bounds):
 *   s_j    I8_G64: s = 0; for each 64-channel group g: s = fma((float)D_g, k_scale_g * step_g, s), D_g the exact integer dot
 *          product of int8 k with q on a grid of QSA_GRID steps to the group's largest |q|; step includes the softmax scale.
 *          Others: s = dot16(q, k) * scale, in f32.
 *   m      max s_j, NaNs passed over, -0 as +0
 *   p_j    exp(s_j - m)
 *   l      the 16-lane sum of p_j: lane i adds j = i, i + 16, ..., then the fold 8, 4, 2, 1
 *   acc_d  I8_G64: (float)A_d * step, A_d = exact integer sum of w_j v_jd, w_j = rint(p_j * r_jg) (0 where p_j is NaN),
 *          r_jg = v_scale_jg on a grid of QSA_GRID steps to the chunk's largest |v_scale| of group g. p is at most 1.
 *          Others: the chain of fma(p_j, v_jd, acc) over j, from zero.
 * Chunks of one part are folded in order: M = max(m, m'), a = exp(m - M), b = exp(m' - M), l = fma(l', b, l * a),
 * acc = fma((float)A_d, step * b, acc * a) (others: fma(acc', b, acc * a)), m = M. The first live chunk starts the part;
 * chunks without live cells are passed over.
 */
#ifndef QSA_ATTEND_ATTEND_H
#define QSA_ATTEND_ATTEND_H

#include "runtime/context.h"
#include "runtime/numerics.h"

enum {
    QSA_CHUNK_MAX = 64,
    QSA_GROUP = 64,       /* channels that share a scale */
    QSA_HEAD_DIM_MAX = 512,
    QSA_GROUPS_MAX = QSA_HEAD_DIM_MAX / QSA_GROUP,
    QSA_HEADS_MAX = 64    /* query heads of one KV head */
};

typedef struct qsa_attend_unit {
    const struct qsa_attend_unit *next; /* a unit that may be run soon after, whose cells can be prefetched; or NULL */
    const qsa_kv *kv;     /* strides filled */
    int64_t kv_head;      /* the first */
    int64_t more_heads;   /* KV heads behind it that the unit computes as well; their q, prepared and part follow */
    int64_t heads;        /* query heads of one KV head */
    int64_t head_dim;
    float scale;
    const int32_t *ids;   /* [n_ids] of this part; NULL: first_cell, first_cell + 1, ... */
    int64_t first_cell;
    int64_t n_ids;
    int64_t chunk;
    const float *q;       /* [heads][head_dim] of each KV head */
    const void *prepared; /* what prepare() made of q, qsa_prepared_bytes() for each KV head; I8_G64 only */
    float *part;          /* [heads][head_dim + 2] of each KV head */
} qsa_attend_unit;

typedef void qsa_attend_fn(const qsa_attend_unit *unit);

/* The query heads of one KV head on the integer grid, as a kernel wants them; at most qsa_prepared_bytes(). */
typedef void qsa_prepare_fn(const float *q, int64_t heads, int64_t head_dim, float scale, void *prepared);

typedef struct qsa_attend_kernels {
    qsa_attend_fn *run[QSA_I8_G64 + 1]; /* by qsa_type; [0] unused */
    const char *name[QSA_I8_G64 + 1];
    qsa_prepare_fn *prepare;            /* for run[QSA_I8_G64] */
    const char *prepare_name;
} qsa_attend_kernels;

void qsa_attend_init(qsa_attend_kernels *kernels, qsa_cpu cpu);

/* A multiple of 64. Room for 16-bit grid values of heads rounded up to 16, and two numbers for each of their groups. */
static inline size_t qsa_prepared_bytes(int64_t heads, int64_t head_dim) {
    size_t rounded = (size_t)(heads + 15) / 16 * 16;
    return rounded * (size_t)head_dim * 2 + rounded * (size_t)(head_dim / QSA_GROUP) * 8 + 64;
}

/* The live cells of a chunk: where their K, V and scales are, for one KV head. */
typedef struct qsa_attend_cells {
    int64_t count;
    const char *k[QSA_CHUNK_MAX];
    const char *v[QSA_CHUNK_MAX];
    const uint16_t *k_scale[QSA_CHUNK_MAX]; /* I8_G64 only */
    const uint16_t *v_scale[QSA_CHUNK_MAX];
} qsa_attend_cells;

/* Ids [first, first + n) of the unit, holes left out. */
void qsa_attend_gather(const qsa_attend_unit *unit, int64_t first, int64_t n, qsa_attend_cells *cells);

/* r_j of one group; returns the grid's step. Where that is NaN, all r are 0. */
float qsa_attend_ratios(const qsa_attend_cells *cells, int64_t g, float ratio[QSA_CHUNK_MAX]);

static inline int16_t qsa_attend_weight(float p, float ratio) {
    return (int16_t)(p > 0.0f ? qsa_rint(p * ratio) : 0.0f);
}

/* The unit of its KV head kv_head + i alone. */
static inline qsa_attend_unit qsa_attend_head(const qsa_attend_unit *unit, int64_t i) {
    qsa_attend_unit one = *unit;
    one.kv_head += i;
    one.more_heads = 0;
    one.q += i * unit->heads * unit->head_dim;
    if (unit->prepared) {
        one.prepared = (const char *)unit->prepared + (size_t)i * qsa_prepared_bytes(unit->heads, unit->head_dim);
    }
    one.part += i * unit->heads * (unit->head_dim + 2);
    return one;
}

/*
 * The K and V of a chunk to come, being prefetched one row at a time: each KV head's pass over the chunk before it fetches that
 * head's rows, or where cells are whole pieces of memory, its share of the cells. Callers spread their calls over the pass as
 * evenly as its work is: a burst would fill the buffers of outstanding lines and hold up all behind it.
 */
typedef struct qsa_attend_fetch {
    const qsa_attend_cells *cells;
    int64_t shift, scale_shift; /* bytes from the cells' pointers to this head's */
    int64_t cell, at;           /* the next row: `at` bytes into K, then V, then what lies behind, of a cell */
    int64_t bytes, record;      /* of a row; of a cell's rows that this head fetches */
    int64_t left;
} qsa_attend_fetch;

__attribute__((always_inline)) static inline void qsa_attend_fetch_row(qsa_attend_fetch *fetch) {
    if (fetch->left > 0) {
        const qsa_attend_cells *cells = fetch->cells;
        const char *row = fetch->shift + (fetch->at < fetch->bytes ? cells->k[fetch->cell] + fetch->at
                                                                   : cells->v[fetch->cell] + (fetch->at - fetch->bytes));
        for (int64_t at = 0; at < fetch->bytes; at += 64) {
            __builtin_prefetch(row + at, 0, 2); /* as far as the second level: the first is full of this chunk */
        }
        fetch->at += fetch->bytes;
        fetch->left--;
        if (fetch->at == fetch->record) {
            fetch->at = 0;
            fetch->cell++;
        }
    }
}

/* The scales, where pairs of cells lie together, and V's close behind K's or in an array of their own. */
__attribute__((always_inline)) static inline void qsa_attend_fetch_scales(const qsa_attend_fetch *fetch) {
    const qsa_attend_cells *cells = fetch->cells;
    for (int64_t j = 0; j < cells->count; j += 2) {
        const char *k = (const char *)cells->k_scale[j], *v = (const char *)cells->v_scale[j];
        __builtin_prefetch(k + fetch->scale_shift, 0, 2);
        if ((uintptr_t)k / 64 != (uintptr_t)v / 64) {
            __builtin_prefetch(v + fetch->scale_shift, 0, 2);
        }
    }
}

/* A unit's chunks in turn, and each chunk's KV heads: `now` is the chunk to compute, for `unit`, which has one KV head; `fetch` goes
 * over the chunk after it, which may be the first of unit->next. while (qsa_attend_next(&walk)) passes over chunks without live
 * cells; where there was no other, the parts are cleared. */
typedef struct qsa_attend_walk {
    const qsa_attend_unit *whole;
    qsa_attend_unit unit;
    qsa_attend_cells cells[2];
    qsa_attend_cells *now, *ahead;
    qsa_attend_fetch fetch;
    int64_t head; /* of the whole's, 0..more_heads: that of `unit` */
    int64_t at;   /* id behind `now` */
    int first;    /* `now` starts the part */
} qsa_attend_walk;
void qsa_attend_open(qsa_attend_walk *walk, const qsa_attend_unit *unit);
int qsa_attend_next(qsa_attend_walk *walk);

/* Repeats cell 0 behind the live ones, up to a multiple, which is returned. */
int64_t qsa_attend_pad(qsa_attend_cells *cells, int64_t multiple);

/* {0, -infinity, 0} for every head. */
void qsa_attend_clear(const qsa_attend_unit *unit);

/* In the portable layout of `prepared`: int16 [heads][head_dim], then float step [heads][groups]. */
void qsa_attend_prepare_c(const float *q, int64_t heads, int64_t head_dim, float scale, void *prepared);

/* The original's three kernels, scalar, for one chunk of up to 64 live cells in a part of its own. attn and attn3 belong to
 * chunks of 64, attn2 to chunks of 32 and heads in groups of six. All give the bits of the portable kernel. */
void qsa_attend_attn(const qsa_attend_unit *unit);
void qsa_attend_attn2(const qsa_attend_unit *unit);
void qsa_attend_attn3(const qsa_attend_unit *unit);

/* The levels' own kernels, put over what is in the table. */
void qsa_attend_float_init_avx2(qsa_attend_kernels *kernels);
void qsa_attend_float_init_avx512(qsa_attend_kernels *kernels);
void qsa_attend_float_init_neon(qsa_attend_kernels *kernels);
void qsa_attend_i8_init_avx2(qsa_attend_kernels *kernels);
void qsa_attend_i8_init_avx512(qsa_attend_kernels *kernels);
void qsa_attend_i8_init_amx(qsa_attend_kernels *kernels);
void qsa_attend_i8_init_neon(qsa_attend_kernels *kernels);

/* Fills the strides that a caller left zero and checks the view; block bounds page_cells from below. */
qsa_status qsa_kv_resolve(const qsa_shape *shape, const qsa_kv *kv, qsa_kv *out, qsa_error *error);

#endif
