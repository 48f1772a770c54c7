/* SPDX-License-Identifier: MIT */
/*
 * QSA in float64, written from docs/spec.md alone: what the library's results are compared with. It shares no code with
 * the library; of qsa.h it takes the names of shapes, types and contracts.
 */
#ifndef QSA_TEST_ORACLE_H
#define QSA_TEST_ORACLE_H

#include <qsa/qsa.h>

/* ---- number formats ---- */

double oracle_from_f16(uint16_t bits);
double oracle_from_bf16(uint16_t bits);
uint16_t oracle_to_f16(double x); /* to nearest even; a NaN stays one */
uint16_t oracle_to_bf16(double x);

/* x as the nearest value of F32, F16 or BF16. */
double oracle_round(qsa_type type, double x);

/* int8_g64 of `groups` groups of 64: x f32 [groups][64] -> values [groups][64], scales half [groups]. */
void oracle_i8_encode(int64_t groups, const float *x, int8_t *values, uint16_t *scales);
void oracle_i8_decode(int64_t groups, const int8_t *values, const uint16_t *scales, double *x);

/* ---- block keys ---- */

typedef struct oracle_key_rule {
    int64_t block, dim;  /* cells of a block, index_dim */
    const float *weight; /* [dim] of the norm */
    double eps;
    int64_t rope_dims;
    double theta;
    qsa_type type; /* F32 or BF16 */
} oracle_key_rule;

/* raw [block][dim], position of the first cell -> key [dim]. */
void oracle_block_key(const oracle_key_rule *rule, const float *raw, int64_t position, double *key);

/* Turns the pairs (i, i + dims / 2) of x by position * theta^(-2i / dims). */
void oracle_rotate(double *x, int64_t dims, double theta, int64_t position);

/* ---- score ---- */

/* iq [index_heads][index_dim], key [index_dim]. weight (or NULL): index_scale * sum |iq * key|, what rounding errors
 * scale with. */
double oracle_score(const qsa_shape *shape, const float *iq, const double *key, double *weight);

/* ---- select ---- */

/* order[0..blocks-1]: all blocks, best first: higher score, then lower block; -0 is +0; NaN behind every number. */
void oracle_order(int64_t blocks, const float *scores, int32_t *order);

/* The cells that the contract grants, ascending; returns how many. scores [n / block]; ids: room for qsa_width(). */
int64_t oracle_select(const qsa_shape *shape, qsa_contract contract, int64_t n, const float *scores, int32_t *ids);

/* ---- attend ---- */

/* Writes K and V of one cell and KV head, [head_dim] each, as the numbers that the format stands for. */
typedef void oracle_read(const void *user, int64_t cell, int64_t kv_head, double *k, double *v);

/*
 * Softmax attention over ids (-1 is a hole), times sigmoid(gate) where gate is not NULL.
 * q, gate [q_heads][head_dim]; ids [n_ids] or NULL for 0..n_ids-1; out [q_heads][head_dim]; lse [q_heads] = log sum exp
 * of the logits (-infinity without cells), or NULL.
 */
void oracle_attend(const qsa_shape *shape, const float *q, const float *gate, const int32_t *ids, int64_t n_ids,
                   oracle_read *read, const void *user, double *out, double *lse);

/* ---- merge ---- */

/* partials [parts][q_heads][head_dim + 2] of one row; gate [q_heads][head_dim] or NULL; out [q_heads][head_dim]. */
void oracle_merge(const qsa_shape *shape, const float *partials, int64_t parts, const float *gate, double *out);

#endif
