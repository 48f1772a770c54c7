/* SPDX-License-Identifier: MIT */
/*
 * Matrices of weights, packed for the product with many rows of input at once.
 *
 * The written order of an output is qsa_dot16's: 16 partial sums over columns l, l + 16, ..., folded 16 > 8 > 4 > 2
 * > 1. The kernels give each OUTPUT a lane and run the partial sums one after the other, in an order in which the fold
 * is a walk through a binary tree (0, 8, 4, 12, 2, ...: l with its bits reversed), so nothing is ever added across
 * lanes. Whatever the instruction set, the threads and the grouping of tokens, the bits are the same.
 */
#ifndef QSA_LAYER_MATRIX_H
#define QSA_LAYER_MATRIX_H

#include <qsa/qsa.h>

enum {
    QSA_PANEL = 32,       /* rows packed side by side */
    QSA_GROUP = 6,        /* tokens packed side by side */
    QSA_PROJECT_WAVE = 96 /* tokens that share a pass over the weights, a multiple of QSA_GROUP */
};

/* Panels of 32 rows; a panel is, for the partial sums in fold order and then k: the 32 rows' column l + 16 k. Rows
 * behind the last are zeros. */
typedef struct qsa_matrix {
    int64_t rows, columns;
    float *packed; /* 64-byte aligned */
} qsa_matrix;

/* The partial sum that is i-th in fold order, and how many columns it has. */
static inline int64_t qsa_lane_of(int i) {
    return (i & 1) << 3 | (i & 2) << 1 | (i & 4) >> 1 | (i & 8) >> 3;
}
static inline int64_t qsa_lane_columns(int64_t lane, int64_t columns) {
    return (columns - lane + 15) / 16;
}

/* Floats of a packed matrix; -1 if they are too many. */
int64_t qsa_matrix_floats(int64_t rows, int64_t columns);
int64_t qsa_matrix_panels(const qsa_matrix *matrix);

/* Rows of a panel that the matrix has, 1..32. */
int64_t qsa_matrix_live(const qsa_matrix *matrix, int64_t panel);

/* Packs one panel from its live rows, [live][columns]. */
void qsa_matrix_pack(const qsa_matrix *matrix, int64_t panel, const float *rows);

/* One panel times up to QSA_PROJECT_WAVE tokens. x: groups of 6 tokens (the last may have fewer), each [columns in the
 * panel's order][tokens of the group]. out: [tokens][out_stride], `live` of each are written. */
typedef struct qsa_project_job {
    const float *panel, *x;
    int64_t columns, tokens, live;
    float *out;
    int64_t out_stride; /* floats */
} qsa_project_job;

typedef void qsa_project_fn(const qsa_project_job *job);

/* Norm, then rotation, of `heads` heads of `dim` channels in place: qsa_rms_norm() and qsa_rope_apply() on each. dim is
 * a multiple of 16; cos_sin: [dims / 2][2]. */
typedef struct qsa_turn_job {
    float *x;
    int64_t heads, dim, dims;
    const float *weight; /* [dim] */
    float eps;
    const float *cos_sin;
} qsa_turn_job;

typedef void qsa_turn_fn(const qsa_turn_job *job);

qsa_project_fn qsa_project_f32_c, qsa_project_f32_avx2, qsa_project_f32_avx512, qsa_project_f32_neon;
qsa_turn_fn qsa_turn_f32_c, qsa_turn_f32_avx2, qsa_turn_f32_avx512, qsa_turn_f32_neon;

typedef struct qsa_layer_kernels {
    qsa_project_fn *project;
    qsa_turn_fn *turn;
} qsa_layer_kernels;

/* The kernels of a level. */
qsa_layer_kernels qsa_layer_kernels_of(qsa_cpu cpu);

/* out [tokens][rows] = x times a matrix. */
typedef struct qsa_product {
    const qsa_matrix *matrix;
    float *out;
} qsa_product;

/* Bytes of scratch for products of that many columns and up to QSA_PROJECT_WAVE of that many tokens; -1 if too many. */
int64_t qsa_multiply_scratch(int64_t columns, int64_t tokens);

/* x: [tokens][columns], tokens <= QSA_PROJECT_WAVE; all matrices have `columns` columns. */
void qsa_multiply(qsa_context *context, const float *x, int64_t tokens, int64_t columns, const qsa_product *products,
                  int64_t count, float *scratch);

#endif
