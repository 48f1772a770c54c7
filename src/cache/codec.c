/* SPDX-License-Identifier: MIT */
/* int8_g64, half, bf16 and f32 for K/V, both ways. */
#include "cache/codec.h"

#include "runtime/fpenv.h"
#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "runtime/status.h"

enum { GROUP = 64 };

static uint16_t group_scale(const float *x) {
    float absmax = 0.0f;
    for (int c = 0; c < GROUP; c++) {
        float magnitude = qsa_from_bits(qsa_magnitude(x[c]));
        absmax = magnitude > absmax ? magnitude : absmax;
    }
    if (absmax == 0.0f) {
        return 0x3c00; /* 1.0 */
    }
    uint16_t scale = qsa_f32_to_f16(absmax / 127.0f);
    return scale == 0 ? 1 : scale >= 0x7c00 ? 0x7bff : scale;
}

static void encode_group(const float *x, int8_t *encoded, uint16_t *scale) {
    *scale = group_scale(x);
    float step = qsa_f16_to_f32(*scale);
    for (int c = 0; c < GROUP; c++) {
        float value = x[c] / step;
        value = value > 127.0f ? 127.0f : value;
        value = value < -127.0f ? -127.0f : value;
        encoded[c] = (int8_t)(value == value ? qsa_rint(value) : 0.0f);
    }
}

void qsa_encode_head(qsa_type type, const float *x, int64_t groups, void *encoded, uint16_t *scales) {
    if (type == QSA_I8_G64) {
        for (int64_t g = 0; g < groups; g++) {
            encode_group(x + g * GROUP, (int8_t *)encoded + g * GROUP, scales + g);
        }
    } else if (type == QSA_F32) {
        memcpy(encoded, x, (size_t)(groups * GROUP) * sizeof *x);
    } else {
        for (int64_t c = 0; c < groups * GROUP; c++) {
            ((uint16_t *)encoded)[c] = type == QSA_F16 ? qsa_f32_to_f16(x[c]) : qsa_f32_to_bf16(x[c]);
        }
    }
}

void qsa_decode_head(qsa_type type, const void *encoded, const uint16_t *scales, int64_t groups, float *x) {
    for (int64_t c = 0; c < groups * GROUP; c++) {
        switch (type) {
        case QSA_I8_G64: x[c] = (float)((const int8_t *)encoded)[c] * qsa_f16_to_f32(scales[c / GROUP]); break;
        case QSA_F16: x[c] = qsa_f16_to_f32(((const uint16_t *)encoded)[c]); break;
        case QSA_BF16: x[c] = qsa_bf16_to_f32(((const uint16_t *)encoded)[c]); break;
        default: x[c] = ((const float *)encoded)[c];
        }
    }
}

static qsa_status check(qsa_type type, int64_t count, int64_t groups, const void *from, const char *from_name, const void *to,
                        const char *to_name, const uint16_t *scales, qsa_error *error) {
    if (!qsa_kv_element(type)) {
        return qsa_fail(error, QSA_E_SHAPE, "type is %s: expected f32, f16, bf16 or i8_g64", qsa_type_name(type));
    }
    if (count < 0 || groups < 1 || qsa_mul(qsa_mul(count, groups), GROUP * 4) < 0) {
        return qsa_fail(error, QSA_E_ARGUMENT, "count is %lld and groups is %lld: expected 0 or more, and 1 or more",
                        (long long)count, (long long)groups);
    }
    if (count > 0 && (!from || !to)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL with count %lld", from ? to_name : from_name, (long long)count);
    }
    if (count > 0 && (type == QSA_I8_G64) != (scales != NULL)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "scales is %s with type %s", scales ? "given" : "NULL", qsa_type_name(type));
    }
    return QSA_OK;
}

qsa_status qsa_kv_encode(qsa_type type, int64_t count, int64_t groups, const float *x, void *encoded, uint16_t *scales,
                         qsa_error *error) {
    qsa_status status = check(type, count, groups, x, "x", encoded, "encoded", scales, error);
    if (status) {
        return status;
    }
    uint64_t saved = qsa_fpenv_enter();
    if (count > 0) {
        qsa_encode_head(type, x, count * groups, encoded, scales);
    }
    qsa_fpenv_leave(saved);
    return qsa_ok(error);
}

qsa_status qsa_kv_decode(qsa_type type, int64_t count, int64_t groups, const void *encoded, const uint16_t *scales, float *x,
                         qsa_error *error) {
    qsa_status status = check(type, count, groups, encoded, "encoded", x, "x", scales, error);
    if (status) {
        return status;
    }
    uint64_t saved = qsa_fpenv_enter();
    if (count > 0) {
        qsa_decode_head(type, encoded, scales, count * groups, x);
    }
    qsa_fpenv_leave(saved);
    return qsa_ok(error);
}
