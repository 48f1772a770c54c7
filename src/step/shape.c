/* SPDX-License-Identifier: MIT */
/* Shapes: the model's, and which ones we compute. */
#include "cache/codec.h"
#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "runtime/status.h"

void qsa_shape_qwen38_flash_next(qsa_shape *shape) {
    *shape = (qsa_shape){
        .size = sizeof *shape,
        .q_heads = 24,
        .kv_heads = 2,
        .head_dim = 256,
        .index_heads = 4,
        .index_dim = 128,
        .block = 4,
        .budget = 2048,
        .scale = 0.0625f,
        .index_scale = 0.0883883476f, /* 1 / sqrt(128) */
    };
}

static int is_scale(float x) {
    return x > 0.0f && x < QSA_INFINITY;
}

qsa_status qsa_shape_check(const qsa_shape *s, qsa_error *error) {
    if (!s || s->size != sizeof *s) {
        return qsa_fail(error, QSA_E_ARGUMENT, "shape is %s: expected a qsa_shape with its size set",
                        s ? "of another size" : "NULL");
    }
    const struct {
        const char *name;
        int64_t value, least, most, multiple;
    } fields[] = {
        {"q_heads", s->q_heads, 1, 256, 1},
        {"kv_heads", s->kv_heads, 1, 64, 1},
        {"head_dim", s->head_dim, 64, 512, 64},
        {"index_heads", s->index_heads, 1, 64, 1},
        {"index_dim", s->index_dim, 16, 512, 16},
        {"block", s->block, 2, 8, 2},
        {"budget", s->budget, 2, INT64_C(1) << 30, 2},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].value < fields[i].least || fields[i].value > fields[i].most || fields[i].value % fields[i].multiple) {
            return qsa_fail(error, QSA_E_SHAPE, "shape.%s is %lld: expected a multiple of %lld in %lld..%lld", fields[i].name,
                            (long long)fields[i].value, (long long)fields[i].multiple, (long long)fields[i].least,
                            (long long)fields[i].most);
        }
    }
    if (s->block == 6) {
        return qsa_fail(error, QSA_E_SHAPE, "shape.block is 6: expected 2, 4 or 8");
    }
    if (s->q_heads % s->kv_heads || s->q_heads / s->kv_heads > 64) {
        return qsa_fail(error, QSA_E_SHAPE, "shape.q_heads is %lld with %lld kv_heads: expected a multiple of it, at most 64 times",
                        (long long)s->q_heads, (long long)s->kv_heads);
    }
    if (s->budget % s->block) {
        return qsa_fail(error, QSA_E_SHAPE, "shape.budget is %lld: expected a multiple of the block's %lld cells",
                        (long long)s->budget, (long long)s->block);
    }
    if (!is_scale(s->scale) || !is_scale(s->index_scale)) {
        return qsa_fail(error, QSA_E_SHAPE, "shape.%s is %g: expected a finite number above 0",
                        is_scale(s->scale) ? "index_scale" : "scale",
                        (double)(is_scale(s->scale) ? s->index_scale : s->scale));
    }
    return qsa_ok(error);
}

int64_t qsa_bytes_per_cell(const qsa_shape *s, qsa_type kv_type, qsa_type key_type) {
    int64_t element = qsa_kv_element(kv_type), key = key_type == QSA_F32 ? 4 : key_type == QSA_BF16 ? 2 : 0;
    if (!element || !key) {
        return 0;
    }
    int64_t scales = kv_type == QSA_I8_G64 ? s->head_dim / 64 * 2 : 0;
    return 2 * s->kv_heads * (s->head_dim * element + scales) + s->index_dim * key / s->block;
}
