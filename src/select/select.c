/* SPDX-License-Identifier: MIT */
/* qsa_select(): checks the caller's arrays and gives each row to the kernel, or to nobody where all its cells are taken. */
#include "select/select.h"

#include "runtime/memory.h"
#include "runtime/status.h"

int64_t qsa_width(const qsa_shape *shape, qsa_contract contract, int64_t n) {
    if (n <= 0) {
        return 0;
    }
    switch (contract) {
    case QSA_BLOCKS: return qsa_min(n, shape->budget + n % shape->block);
    case QSA_CELLS: return qsa_min(n, shape->budget + shape->block - 1);
    default: return n;
    }
}

int64_t qsa_select_row(const qsa_select_kernels *kernels, const qsa_shape *shape, qsa_contract contract, const float *scores,
                       int64_t n, int32_t *ids) {
    int64_t width = qsa_width(shape, contract, n);
    if (width < n) {
        qsa_select_job job = {.scores = scores, .n = n, .block = shape->block, .target = width, .ids = ids};
        kernels->run(&job);
        return width;
    }
    for (int64_t c = 0; c < width; c++) {
        ids[c] = (int32_t)c;
    }
    return width;
}

int64_t qsa_select_listed(const qsa_select_kernels *kernels, const qsa_shape *shape, qsa_contract contract, const float *scores,
                          const int32_t *list, int64_t count, int64_t n, int32_t *ids) {
    int64_t block = shape->block, tail = n % block, width = qsa_width(shape, contract, n);
    qsa_select_job job = {.scores = scores, .n = count * block + tail, .block = block, .target = width, .ids = ids};
    if (width < job.n) {
        kernels->run(&job);
    } else {
        for (int64_t i = 0; i < width; i++) {
            ids[i] = (int32_t)i;
        }
    }
    for (int64_t i = 0; i < width; i++) { /* from cells of the list to cells of the sequence */
        int64_t at = ids[i] / block;
        ids[i] += (int32_t)(((at < count ? list[at] : n / block) - at) * block);
    }
    return width;
}

typedef struct select_call {
    const qsa_select_kernels *kernels;
    const qsa_shape *shape;
    const qsa_select_args *args;
} select_call;

static void select_item(void *arg, int64_t t) {
    const select_call *call = arg;
    const qsa_select_args *a = call->args;
    int32_t *ids = a->ids + t * a->id_stride;
    int64_t count = qsa_select_row(call->kernels, call->shape, a->contract, a->scores + t * a->score_stride, a->n[t], ids);
    for (int64_t i = count; i < a->id_stride; i++) {
        ids[i] = -1;
    }
    if (a->n_ids) {
        a->n_ids[t] = count;
    }
}

static qsa_status check_rows(const qsa_shape *shape, const qsa_select_args *a, qsa_error *error) {
    for (int64_t t = 0; t < a->rows; t++) {
        int64_t n = a->n[t];
        if (n < 0 || n > INT32_MAX) {
            return qsa_fail(error, QSA_E_ARGUMENT, "n[%lld] is %lld: expected 0..2147483647", (long long)t, (long long)n);
        }
        if (a->score_stride < n / shape->block) {
            return qsa_fail(error, QSA_E_ARGUMENT, "score_stride is %lld: row %lld has %lld block scores",
                            (long long)a->score_stride, (long long)t, (long long)(n / shape->block));
        }
        if (a->id_stride < qsa_width(shape, a->contract, n)) {
            return qsa_fail(error, QSA_E_ARGUMENT, "id_stride is %lld: row %lld selects %lld cells", (long long)a->id_stride,
                            (long long)t, (long long)qsa_width(shape, a->contract, n));
        }
        if (!a->scores && qsa_select_needed(shape, a->contract, n)) {
            return qsa_fail(error, QSA_E_ARGUMENT, "scores is NULL: row %lld needs them", (long long)t);
        }
    }
    return QSA_OK;
}

qsa_status qsa_select(qsa_context *context, const qsa_shape *shape, const qsa_select_args *args, qsa_error *error) {
    if (!context) {
        return qsa_fail(error, QSA_E_ARGUMENT, "context is NULL");
    }
    qsa_status status = qsa_shape_check(shape, error);
    if (status) {
        return status;
    }
    if (!args || args->size != sizeof *args) {
        return qsa_fail(error, QSA_E_ARGUMENT, "args is %s: expected a qsa_select_args with its size set",
                        args ? "of another size" : "NULL");
    }
    if (args->contract != QSA_BLOCKS && args->contract != QSA_CELLS) {
        return qsa_fail(error, QSA_E_ARGUMENT, "contract is %d: expected blocks (0) or cells (1)", (int)args->contract);
    }
    if (args->rows < 0) {
        return qsa_fail(error, QSA_E_ARGUMENT, "rows is %lld: expected 0 or more", (long long)args->rows);
    }
    if (args->rows > 0 && (!args->n || !args->ids)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL with %lld rows", !args->n ? "n" : "ids", (long long)args->rows);
    }
    if (!qsa_array_fits(args->rows, args->score_stride, 1) || !qsa_array_fits(args->rows, args->id_stride, 1)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "rows is %lld, score_stride is %lld and id_stride is %lld: an array passes 2^62 bytes",
                        (long long)args->rows, (long long)args->score_stride, (long long)args->id_stride);
    }
    if ((status = check_rows(shape, args, error))) {
        return status;
    }
    select_call call = {qsa_context_select(context), shape, args};
    qsa_run(context, args->rows, select_item, &call);
    return qsa_ok(error);
}
