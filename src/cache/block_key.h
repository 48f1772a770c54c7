/* SPDX-License-Identifier: MIT */
/* From the raw index keys of a block's cells to the block's key. docs/spec.md, "One layer", 3. */
#ifndef QSA_CACHE_BLOCK_KEY_H
#define QSA_CACHE_BLOCK_KEY_H

#include <qsa/qsa.h>

enum { QSA_BLOCK_MAX = 8, QSA_INDEX_DIM_MAX = 512 };

typedef struct qsa_block_key_recipe {
    int64_t block, dim;
    const float *norm_weight; /* [dim] */
    float eps;
    qsa_rope rope;            /* defaults filled */
    qsa_type type;            /* F32 or BF16 */
} qsa_block_key_recipe;

/* raw: [block] pointers to [dim]. turn: [rope.dims / 2][2] = {cos, sin} of the first cell. key: [dim] f32 values that the type
 * holds exactly. */
typedef void qsa_block_key_fn(const qsa_block_key_recipe *recipe, const float *const *raw, const float *turn, float *key);
qsa_block_key_fn qsa_block_key_f32_c;

/* {cos, sin} of position * frequency[i]: qsa_angles_f64_c. */
typedef void qsa_angles_fn(const double *frequency, int64_t pairs, int64_t position, float *cos_sin);

/* The rope's row of a position: the table's, or made from qsa_rope_frequencies(). cos_sin: [dims / 2][2]. */
void qsa_rope_turn(qsa_angles_fn *angles, const qsa_rope *rope, const double *frequency, int64_t position, float *cos_sin);

/* Fills defaults and checks against the widths that are to be rotated. rope NULL, or all zero: the defaults. */
qsa_status qsa_rope_resolve(const qsa_rope *rope, int64_t dim_limit, qsa_rope *out, qsa_error *error);

/* Whether the rope has an angle for the position. */
qsa_status qsa_rope_check_position(const qsa_rope *rope, int64_t position, qsa_error *error);

#endif
