/* SPDX-License-Identifier: MIT */
/* The block-key builder and the rotation's parameters. */
#include "cache/cells.h"

#include "runtime/fpenv.h"
#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "runtime/status.h"

#define POSITIONS_WITHOUT_TABLE (INT64_C(1) << 31)

qsa_status qsa_rope_resolve(const qsa_rope *rope, int64_t dim_limit, qsa_rope *out, qsa_error *error) {
    *out = rope ? *rope : (qsa_rope){.size = sizeof *rope};
    if (out->size != sizeof *out && (out->size || out->dims || out->table || out->theta != 0 || out->positions)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "rope is of another size: expected a qsa_rope with its size set");
    }
    out->size = sizeof *out;
    if (!out->dims) {
        out->dims = 64;
    }
    if (out->dims < 2 || out->dims % 2 || out->dims > dim_limit) {
        return qsa_fail(error, QSA_E_SHAPE, "rope.dims is %lld: expected an even number, 2..%lld", (long long)out->dims,
                        (long long)dim_limit);
    }
    if (out->table) {
        if (out->positions < 1) {
            return qsa_fail(error, QSA_E_ARGUMENT, "rope.positions is %lld: expected the rows of the table, 1 or more",
                            (long long)out->positions);
        }
        return QSA_OK;
    }
    if (out->theta == 0) {
        out->theta = 1e7;
    }
    if (!(out->theta > 1) || out->theta > 1e300) {
        return qsa_fail(error, QSA_E_ARGUMENT, "rope.theta is %g: expected a number above 1", out->theta);
    }
    out->positions = POSITIONS_WITHOUT_TABLE;
    return QSA_OK;
}

qsa_status qsa_rope_check_position(const qsa_rope *rope, int64_t position, qsa_error *error) {
    if (position < 0 || position >= rope->positions) {
        return qsa_fail(error, QSA_E_ARGUMENT, "position is %lld: the rotation has 0..%lld", (long long)position,
                        (long long)(rope->positions - 1));
    }
    return QSA_OK;
}

void qsa_rope_turn(qsa_angles_fn *angles, const qsa_rope *rope, const double *frequency, int64_t position, float *cos_sin) {
    int64_t pairs = rope->dims / 2;
    if (rope->table) {
        memcpy(cos_sin, rope->table + position * pairs * 2, (size_t)pairs * 2 * sizeof *cos_sin);
    } else {
        angles(frequency, pairs, position, cos_sin);
    }
}

qsa_status qsa_rope_row(const qsa_rope *rope, int64_t position, float *out, qsa_error *error) {
    qsa_rope resolved;
    qsa_status status = qsa_rope_resolve(rope, QSA_INDEX_DIM_MAX, &resolved, error);
    if (status || (status = qsa_rope_check_position(&resolved, position, error))) {
        return status;
    }
    if (!out) {
        return qsa_fail(error, QSA_E_ARGUMENT, "out is NULL");
    }
    double frequency[QSA_INDEX_DIM_MAX / 2];
    uint64_t saved = qsa_fpenv_enter();
    qsa_rope_frequencies(&resolved, frequency);
    qsa_rope_turn(qsa_angles_f64_c, &resolved, frequency, position, out);
    qsa_fpenv_leave(saved);
    return qsa_ok(error);
}

static float round_to(qsa_type type, float x) {
    return type == QSA_BF16 ? qsa_bf16_to_f32(qsa_f32_to_bf16(x)) : x;
}

void qsa_block_key_f32_c(const qsa_block_key_recipe *recipe, const float *const *raw, const float *turn, float *key) {
    float share = 1.0f / (float)recipe->block; /* a power of two: exact */
    for (int64_t c = 0; c < recipe->dim; c++) {
        float sum = raw[0][c]; /* NOLINT(clang-analyzer-core.NullDereference): a block has 2 cells or more */
        for (int64_t i = 1; i < recipe->block; i++) {
            sum += raw[i][c];
        }
        key[c] = round_to(recipe->type, sum * share);
    }
    qsa_rms_norm(key, recipe->norm_weight, recipe->eps, recipe->dim, key);
    qsa_rope_apply(key, turn, recipe->rope.dims);
    for (int64_t c = 0; c < recipe->dim; c++) {
        key[c] = round_to(recipe->type, key[c]);
    }
}

typedef struct block_keys_call {
    const qsa_block_keys_args *args;
    const qsa_cell_kernels *kernels;
    qsa_block_key_recipe recipe;
    double frequency[QSA_INDEX_DIM_MAX / 2];
} block_keys_call;

static int64_t position_of(const block_keys_call *call, int64_t b) {
    return call->args->positions ? call->args->positions[b] : b * call->recipe.block;
}

static void block_keys_item(void *arg, int64_t b) {
    const block_keys_call *call = arg;
    int64_t block = call->recipe.block, dim = call->recipe.dim;
    const float *raw[QSA_BLOCK_MAX];
    float turn[QSA_INDEX_DIM_MAX], key[QSA_INDEX_DIM_MAX];
    for (int64_t i = 0; i < block; i++) {
        raw[i] = call->args->raw + (b * block + i) * dim;
    }
    qsa_rope_turn(call->kernels->angles, &call->recipe.rope, call->frequency, position_of(call, b), turn);
    call->kernels->block_key(&call->recipe, raw, turn, key);
    if (call->recipe.type == QSA_F32) {
        memcpy((float *)call->args->keys + b * dim, key, (size_t)dim * sizeof *key);
        return;
    }
    for (int64_t c = 0; c < dim; c++) {
        ((uint16_t *)call->args->keys)[b * dim + c] = qsa_f32_to_bf16(key[c]);
    }
}

static qsa_status check_args(const qsa_block_keys_args *a, qsa_error *error) {
    if (!a || a->size != sizeof *a) {
        return qsa_fail(error, QSA_E_ARGUMENT, "args is %s: expected a qsa_block_keys_args with its size set",
                        a ? "of another size" : "NULL");
    }
    if (a->type != QSA_F32 && a->type != QSA_BF16) {
        return qsa_fail(error, QSA_E_SHAPE, "type is %s: expected f32 or bf16", qsa_type_name(a->type));
    }
    if (a->blocks < 0 || a->blocks > INT32_MAX) {
        return qsa_fail(error, QSA_E_ARGUMENT, "blocks is %lld: expected 0..2147483647", (long long)a->blocks);
    }
    if (a->blocks > 0 && (!a->raw || !a->norm_weight || !a->keys)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL with %lld blocks",
                        !a->raw ? "raw" : !a->norm_weight ? "norm_weight" : "keys", (long long)a->blocks);
    }
    if (!(a->eps >= 0.0f) || a->eps == QSA_INFINITY) {
        return qsa_fail(error, QSA_E_ARGUMENT, "eps is %g: expected 0 or more", (double)a->eps);
    }
    return QSA_OK;
}

qsa_status qsa_block_keys(qsa_context *context, const qsa_shape *shape, const qsa_block_keys_args *args, qsa_error *error) {
    if (!context) {
        return qsa_fail(error, QSA_E_ARGUMENT, "context is NULL");
    }
    qsa_status status;
    block_keys_call call = {.args = args, .kernels = qsa_context_cell(context)};
    if ((status = qsa_shape_check(shape, error)) || (status = check_args(args, error)) ||
        (status = qsa_rope_resolve(args->rope, shape->index_dim, &call.recipe.rope, error))) {
        return status;
    }
    call.recipe.block = shape->block;
    call.recipe.dim = shape->index_dim;
    call.recipe.norm_weight = args->norm_weight;
    call.recipe.eps = args->eps;
    call.recipe.type = args->type;
    for (int64_t b = 0; b < args->blocks; b++) {
        if ((status = qsa_rope_check_position(&call.recipe.rope, position_of(&call, b), error))) {
            return status;
        }
    }
    uint64_t saved = qsa_fpenv_enter();
    qsa_rope_frequencies(&call.recipe.rope, call.frequency);
    qsa_fpenv_leave(saved);
    qsa_run(context, args->blocks, block_keys_item, &call);
    return qsa_ok(error);
}
