/* SPDX-License-Identifier: MIT */
/* qsa_merge(): checks the caller's arrays, a head an item; and the output formats. */
#include "merge/merge.h"

#include "attend/attend.h"
#include "runtime/memory.h"
#include "runtime/status.h"

enum { Q8_VALUES = 32, Q8_BYTES = 34 };

int64_t qsa_prepared_size(qsa_type type, int64_t values) {
    switch (type) {
    case QSA_F32: return values * 4;
    case QSA_F16:
    case QSA_BF16: return values * 2;
    case QSA_Q8_0: return values / Q8_VALUES * Q8_BYTES;
    default: return 0;
    }
}

static void prepare_q8_0(const float *x, unsigned char *out) {
    uint32_t largest = 0;
    for (int i = 0; i < Q8_VALUES; i++) {
        largest = qsa_magnitude(x[i]) > largest ? qsa_magnitude(x[i]) : largest;
    }
    float absmax = qsa_from_bits(largest);
    uint16_t d = qsa_f32_to_f16(absmax / 127.0f);
    memcpy(out, &d, sizeof d);
    /* an output too small or too large for the format has d = 0 or a d that says so; its integers are 0 then */
    float inverse = largest >= 0x0d800000u && largest < 0x7f800000u ? 127.0f / absmax : 0.0f;
    for (int i = 0; i < Q8_VALUES; i++) {
        out[2 + i] = (unsigned char)(int8_t)(inverse > 0.0f ? qsa_rint(x[i] * inverse) : 0.0f);
    }
}

void qsa_prepare_output(qsa_type type, const float *x, int64_t values, void *out) {
    switch (type) {
    case QSA_F32: memcpy(out, x, (size_t)values * sizeof *x); break;
    case QSA_F16:
    case QSA_BF16:
        for (int64_t i = 0; i < values; i++) {
            ((uint16_t *)out)[i] = type == QSA_F16 ? qsa_f32_to_f16(x[i]) : qsa_f32_to_bf16(x[i]);
        }
        break;
    default:
        for (int64_t i = 0; i < values / Q8_VALUES; i++) {
            prepare_q8_0(x + i * Q8_VALUES, (unsigned char *)out + i * Q8_BYTES);
        }
    }
}

void qsa_merge_head(const qsa_merge_kernels *kernels, qsa_merge_job *job, qsa_type type, int64_t head, void *row) {
    float merged[QSA_HEAD_DIM_MAX];
    job->out = merged;
    kernels->run(job);
    qsa_prepare_output(type, merged, job->head_dim, (char *)row + head * qsa_prepared_size(type, job->head_dim));
}

typedef struct merge_call {
    const qsa_merge_kernels *kernels;
    const qsa_shape *shape;
    const qsa_merge_args *args;
    qsa_type type;
    int64_t out_stride;
} merge_call;

static void merge_item(void *arg, int64_t item) {
    const merge_call *call = arg;
    const qsa_merge_args *a = call->args;
    int64_t heads = call->shape->q_heads, dim = call->shape->head_dim, t = item / heads, h = item % heads;
    qsa_merge_job job = {
        .partials = a->parts ? a->partials + (t * a->parts * heads + h) * (dim + 2) : NULL,
        .part_stride = heads * (dim + 2),
        .parts = a->parts,
        .head_dim = dim,
        .gate = a->gate ? a->gate + (t * heads + h) * dim : NULL,
    };
    qsa_merge_head(call->kernels, &job, call->type, h, (char *)a->out + t * call->out_stride);
}

qsa_status qsa_merge(qsa_context *context, const qsa_shape *shape, const qsa_merge_args *args, qsa_error *error) {
    if (!context) {
        return qsa_fail(error, QSA_E_ARGUMENT, "context is NULL");
    }
    qsa_status status = qsa_shape_check(shape, error);
    if (status) {
        return status;
    }
    if (!args || args->size != sizeof *args) {
        return qsa_fail(error, QSA_E_ARGUMENT, "args is %s: expected a qsa_merge_args with its size set",
                        args ? "of another size" : "NULL");
    }
    merge_call call = {.kernels = qsa_context_merge(context), .shape = shape, .args = args};
    call.type = args->out_type ? args->out_type : QSA_F32;
    int64_t packed = qsa_prepared_size(call.type, shape->q_heads * shape->head_dim);
    if (!packed) {
        return qsa_fail(error, QSA_E_SHAPE, "out_type is %s: expected f32, f16, bf16 or q8_0", qsa_type_name(args->out_type));
    }
    call.out_stride = args->out_stride ? args->out_stride : packed;
    if (call.out_stride < packed || call.out_stride % (call.type == QSA_F32 ? 4 : 2)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "out_stride is %lld: a row takes %lld bytes", (long long)args->out_stride,
                        (long long)packed);
    }
    if (args->rows < 0 || args->parts < 0) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is %lld: expected 0 or more", args->rows < 0 ? "rows" : "parts",
                        (long long)(args->rows < 0 ? args->rows : args->parts));
    }
    if (args->rows > 0 && (!args->out || (!args->partials && args->parts > 0))) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL with %lld rows", args->out ? "partials" : "out",
                        (long long)args->rows);
    }
    if (qsa_mul(args->rows, call.out_stride) < 0 || qsa_mul(args->rows, args->parts) < 0 ||
        !qsa_array_fits(args->rows, shape->q_heads, shape->head_dim) ||
        !qsa_array_fits(args->rows * args->parts, shape->q_heads, shape->head_dim + 2)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "rows is %lld, parts is %lld and out_stride is %lld: an array passes 2^62 bytes",
                        (long long)args->rows, (long long)args->parts, (long long)call.out_stride);
    }
    qsa_run(context, args->rows * shape->q_heads, merge_item, &call);
    return qsa_ok(error);
}
