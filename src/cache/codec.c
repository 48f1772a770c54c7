/* SPDX-License-Identifier: MIT */
/* int8_g64, half, bf16 and f32 for K/V, both ways. */
#include "cache/cells.h"

#include "runtime/cpu.h"
#include "runtime/fpenv.h"
#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "runtime/status.h"

enum {
    GROUP = QSA_GROUP_CHANNELS,
    FEW = 256 /* groups that are done before the processor has said what it is */
};

/* ------------------------------------------------------------------------------------------------ portable */

void qsa_encode_f32_c(const float *x, int64_t groups, void *encoded, uint16_t *scales) {
    (void)scales;
    memcpy(encoded, x, (size_t)(groups * GROUP) * sizeof *x);
}

void qsa_encode_f16_c(const float *x, int64_t groups, void *encoded, uint16_t *scales) {
    (void)scales;
    for (int64_t c = 0; c < groups * GROUP; c++) {
        ((uint16_t *)encoded)[c] = qsa_f32_to_f16(x[c]);
    }
}

void qsa_encode_bf16_c(const float *x, int64_t groups, void *encoded, uint16_t *scales) {
    (void)scales;
    for (int64_t c = 0; c < groups * GROUP; c++) {
        ((uint16_t *)encoded)[c] = qsa_f32_to_bf16(x[c]);
    }
}

static void encode_group(const float *x, int8_t *encoded, uint16_t *scale) {
    float absmax = 0.0f;
    for (int c = 0; c < GROUP; c++) {
        float magnitude = qsa_from_bits(qsa_magnitude(x[c]));
        absmax = magnitude > absmax ? magnitude : absmax;
    }
    *scale = qsa_group_scale(absmax);
    float step = qsa_f16_to_f32(*scale);
    for (int c = 0; c < GROUP; c++) {
        float value = x[c] / step;
        value = value > 127.0f ? 127.0f : value;
        value = value < -127.0f ? -127.0f : value;
        encoded[c] = (int8_t)(value == value ? qsa_rint(value) : 0.0f);
    }
}

void qsa_encode_i8_c(const float *x, int64_t groups, void *encoded, uint16_t *scales) {
    for (int64_t g = 0; g < groups; g++) {
        encode_group(x + g * GROUP, (int8_t *)encoded + g * GROUP, scales + g);
    }
}

void qsa_decode_f32_c(const void *encoded, const uint16_t *scales, int64_t groups, float *x) {
    (void)scales;
    memcpy(x, encoded, (size_t)(groups * GROUP) * sizeof *x);
}

void qsa_decode_f16_c(const void *encoded, const uint16_t *scales, int64_t groups, float *x) {
    (void)scales;
    for (int64_t c = 0; c < groups * GROUP; c++) {
        x[c] = qsa_f16_to_f32(((const uint16_t *)encoded)[c]);
    }
}

void qsa_decode_bf16_c(const void *encoded, const uint16_t *scales, int64_t groups, float *x) {
    (void)scales;
    for (int64_t c = 0; c < groups * GROUP; c++) {
        x[c] = qsa_bf16_to_f32(((const uint16_t *)encoded)[c]);
    }
}

void qsa_decode_i8_c(const void *encoded, const uint16_t *scales, int64_t groups, float *x) {
    for (int64_t c = 0; c < groups * GROUP; c++) {
        x[c] = (float)((const int8_t *)encoded)[c] * qsa_f16_to_f32(scales[c / GROUP]);
    }
}

/* ------------------------------------------------------------------------------------------------ the public calls */

/* These have no context. The bits are the same at every level. */
static qsa_cell_kernels kernels_for(int64_t groups) {
    qsa_cell_kernels kernels;
    qsa_cell_init(&kernels, groups < FEW ? QSA_CPU_C : qsa_cpu_detect());
    return kernels;
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
        kernels_for(count * groups).encode[type](x, count * groups, encoded, scales);
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
        kernels_for(count * groups).decode[type](encoded, scales, count * groups, x);
    }
    qsa_fpenv_leave(saved);
    return qsa_ok(error);
}
