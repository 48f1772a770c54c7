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
void qsa_block_key(const qsa_block_key_recipe *recipe, const float *const *raw, const float *turn, float *key);

/* Fills defaults and checks against the widths that are to be rotated. rope NULL, or all zero: the defaults. */
qsa_status qsa_rope_resolve(const qsa_rope *rope, int64_t dim_limit, qsa_rope *out, qsa_error *error);

/* Whether the rope has an angle for the position. */
qsa_status qsa_rope_check_position(const qsa_rope *rope, int64_t position, qsa_error *error);

#endif
