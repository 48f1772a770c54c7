/* SPDX-License-Identifier: MIT */
/* qsa_attend(): checks the caller's arrays and ids, and cuts the work by row, KV head and part. */
#include "attend/attend.h"

#include "runtime/memory.h"
#include "runtime/status.h"

/* Parts that one item computes: q is put on its grid once for all of them. */
enum { PARTS_OF_ITEM = 4, PAGE_CELLS_MAX = 1 << 30 };

static qsa_status check_strides(const qsa_kv *kv, int64_t bytes, qsa_error *error) {
    const struct {
        const char *name;
        int64_t value, unit;
    } strides[] = {
        {"cell_stride", kv->cell_stride, bytes},     {"head_stride", kv->head_stride, bytes},
        {"page_stride", kv->page_stride, bytes},     {"scale_cell_stride", kv->scale_cell_stride, 2},
        {"scale_head_stride", kv->scale_head_stride, 2}, {"scale_page_stride", kv->scale_page_stride, 2},
    };
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
        if (strides[i].value < 0 || strides[i].value % strides[i].unit) {
            return qsa_fail(error, QSA_E_ARGUMENT, "kv.%s is %lld: expected a multiple of %lld, 0 or more", strides[i].name,
                            (long long)strides[i].value, (long long)strides[i].unit);
        }
    }
    return QSA_OK;
}

static void fill_strides(const qsa_shape *shape, int64_t bytes, qsa_kv *kv) {
    int64_t groups = shape->head_dim / QSA_GROUP;
    kv->head_stride = kv->head_stride ? kv->head_stride : shape->head_dim * bytes;
    kv->cell_stride = kv->cell_stride ? kv->cell_stride : qsa_mul(shape->kv_heads, kv->head_stride);
    kv->page_stride = kv->page_stride ? kv->page_stride : qsa_mul(kv->page_cells, kv->cell_stride);
    kv->scale_head_stride = kv->scale_head_stride ? kv->scale_head_stride : groups * 2;
    kv->scale_cell_stride = kv->scale_cell_stride ? kv->scale_cell_stride : qsa_mul(shape->kv_heads, kv->scale_head_stride);
    kv->scale_page_stride = kv->scale_page_stride ? kv->scale_page_stride : qsa_mul(kv->page_cells, kv->scale_cell_stride);
}

/* Strides filled, -1 where filling overflowed: no offset may. */
static qsa_status check_span(const qsa_shape *shape, const qsa_kv *kv, qsa_error *error) {
    const struct {
        const char *name;
        int64_t head, cell, page;
    } strides[] = {
        {"", kv->head_stride, kv->cell_stride, kv->page_stride},
        {"scale_", kv->scale_head_stride, kv->scale_cell_stride, kv->scale_page_stride},
    };
    int64_t in_page = kv->pages ? kv->page_cells : kv->cells, last_page = 0;
    for (int64_t i = 0; kv->pages && i < qsa_div_up(kv->cells, kv->page_cells); i++) {
        last_page = qsa_max(last_page, kv->pages[i]);
    }
    for (int i = 0; i < 2; i++) {
        int64_t head = qsa_mul(shape->kv_heads, strides[i].head), cell = qsa_mul(in_page, strides[i].cell);
        int64_t page = qsa_mul(last_page + 1, strides[i].page);
        if (head < 0 || cell < 0 || page < 0 || head / 4 + cell / 4 + page / 4 >= INT64_C(1) << 60) {
            return qsa_fail(error, QSA_E_ARGUMENT,
                            "kv.%shead_stride is %lld, kv.%scell_stride is %lld, kv.%spage_stride is %lld: the cells pass 2^62 bytes",
                            strides[i].name, (long long)strides[i].head, strides[i].name, (long long)strides[i].cell,
                            strides[i].name, (long long)strides[i].page);
        }
    }
    return QSA_OK;
}

qsa_status qsa_kv_resolve(const qsa_shape *shape, const qsa_kv *kv, qsa_kv *out, qsa_error *error) {
    if (!kv || kv->size != sizeof *kv) {
        return qsa_fail(error, QSA_E_ARGUMENT, "kv is %s: expected a qsa_kv with its size set", kv ? "of another size" : "NULL");
    }
    *out = *kv;
    if (kv->type < QSA_F32 || kv->type > QSA_I8_G64) {
        return qsa_fail(error, QSA_E_SHAPE, "kv.type is %s: expected f32, f16, bf16 or i8_g64", qsa_type_name(kv->type));
    }
    if (kv->cells < 0 || kv->cells > INT32_MAX) {
        return qsa_fail(error, QSA_E_ARGUMENT, "kv.cells is %lld: expected 0..2147483647", (long long)kv->cells);
    }
    if (kv->cells > 0 && (!kv->k || !kv->v)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "kv.%s is NULL with %lld cells", kv->k ? "v" : "k", (long long)kv->cells);
    }
    if (kv->cells > 0 && kv->type == QSA_I8_G64 && (!kv->k_scale || !kv->v_scale)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "kv.%s is NULL with type i8_g64", kv->k_scale ? "v_scale" : "k_scale");
    }
    if (kv->type != QSA_I8_G64 && (kv->k_scale || kv->v_scale)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "kv.%s is given with type %s: expected NULL", kv->k_scale ? "k_scale" : "v_scale",
                        qsa_type_name(kv->type));
    }
    int64_t bytes = qsa_kv_element(kv->type);
    qsa_status status = check_strides(kv, bytes, error);
    if (status) {
        return status;
    }
    if (!kv->pages) {
        out->page_cells = 0;
        out->page_stride = 0;
        out->scale_page_stride = 0;
    } else {
        if (kv->page_cells < shape->block || kv->page_cells > PAGE_CELLS_MAX || (kv->page_cells & (kv->page_cells - 1))) {
            return qsa_fail(error, QSA_E_ARGUMENT, "kv.page_cells is %lld: expected a power of two, %lld..2^30",
                            (long long)kv->page_cells, (long long)shape->block);
        }
        for (int64_t i = 0; i < qsa_div_up(kv->cells, kv->page_cells); i++) {
            if (kv->pages[i] < 0) {
                return qsa_fail(error, QSA_E_ARGUMENT, "kv.pages[%lld] is %d: expected a page, 0 or more", (long long)i,
                                (int)kv->pages[i]);
            }
        }
    }
    fill_strides(shape, bytes, out);
    return check_span(shape, out, error);
}

typedef struct attend_call {
    const qsa_attend_kernels *kernels;
    const qsa_shape *shape;
    const qsa_attend_args *args;
    qsa_kv kv;
    int64_t chunk, fold;
    int64_t runs; /* of PARTS_OF_ITEM parts, of each row and KV head */
} attend_call;

static void attend_item(void *arg, int64_t item) {
    const attend_call *call = arg;
    const qsa_attend_args *a = call->args;
    const qsa_shape *shape = call->shape;
    int64_t run = item % call->runs, kv_head = item / call->runs % shape->kv_heads, t = item / call->runs / shape->kv_heads;
    int64_t heads = shape->q_heads / shape->kv_heads, dim = shape->head_dim, in_part = call->chunk * call->fold;
    _Alignas(64) char prepared[QSA_HEADS_MAX * QSA_HEAD_DIM_MAX * 2 + QSA_HEADS_MAX * QSA_GROUPS_MAX * 8 + 64];
    qsa_attend_unit unit = {
        .kv = &call->kv,
        .kv_head = kv_head,
        .heads = heads,
        .head_dim = dim,
        .scale = shape->scale,
        .chunk = call->chunk,
        .q = a->q + (t * shape->q_heads + kv_head * heads) * dim,
        .prepared = prepared,
    };
    if (call->kv.type == QSA_I8_G64) {
        call->kernels->prepare(unit.q, heads, dim, shape->scale, prepared);
    }
    for (int64_t j = run * PARTS_OF_ITEM; j < qsa_min((run + 1) * PARTS_OF_ITEM, a->parts); j++) {
        int64_t first = j * in_part;
        unit.part = a->partials + ((t * a->parts + j) * shape->q_heads + kv_head * heads) * (dim + 2);
        unit.first_cell = first;
        unit.ids = a->ids ? a->ids + t * a->id_stride + first : NULL;
        unit.n_ids = qsa_max(0, qsa_min(a->n_ids[t] - first, in_part));
        call->kernels->run[call->kv.type](&unit);
    }
}

static qsa_status check_ids(const qsa_attend_args *a, const qsa_kv *kv, int64_t in_part, qsa_error *error) {
    for (int64_t t = 0; t < a->rows; t++) {
        int64_t n = a->n_ids[t];
        if (n < 0 || (!a->ids && n > kv->cells) || (a->ids && n > a->id_stride)) {
            return qsa_fail(error, QSA_E_ARGUMENT, "n_ids[%lld] is %lld: expected 0..%lld", (long long)t, (long long)n,
                            (long long)(a->ids ? a->id_stride : kv->cells));
        }
        if (qsa_div_up(n, in_part) > a->parts) {
            return qsa_fail(error, QSA_E_ARGUMENT, "parts is %lld: row %lld has %lld ids, which need %lld parts",
                            (long long)a->parts, (long long)t, (long long)n, (long long)qsa_div_up(n, in_part));
        }
        for (int64_t i = 0; a->ids && i < n; i++) {
            int64_t id = a->ids[t * a->id_stride + i];
            if (id < -1 || id >= kv->cells) {
                return qsa_fail(error, QSA_E_ARGUMENT, "ids[%lld][%lld] is %lld: expected -1, or a cell in 0..%lld", (long long)t,
                                (long long)i, (long long)id, (long long)(kv->cells - 1));
            }
        }
    }
    return QSA_OK;
}

static qsa_status check_args(const qsa_shape *shape, const qsa_attend_args *a, qsa_error *error) {
    if (!a || a->size != sizeof *a) {
        return qsa_fail(error, QSA_E_ARGUMENT, "args is %s: expected a qsa_attend_args with its size set",
                        a ? "of another size" : "NULL");
    }
    if (a->chunk != 0 && a->chunk != 32 && a->chunk != 64) {
        return qsa_fail(error, QSA_E_ARGUMENT, "chunk is %lld: expected 32 or 64", (long long)a->chunk);
    }
    if (a->fold < 0 || a->fold > INT32_MAX) {
        return qsa_fail(error, QSA_E_ARGUMENT, "fold is %lld: expected 1 or more", (long long)a->fold);
    }
    if (a->rows < 0 || a->parts < 0) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is %lld: expected 0 or more", a->rows < 0 ? "rows" : "parts",
                        (long long)(a->rows < 0 ? a->rows : a->parts));
    }
    if (a->rows > 0 && (!a->q || !a->n_ids || (!a->partials && a->parts > 0))) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL with %lld rows", !a->q ? "q" : !a->n_ids ? "n_ids" : "partials",
                        (long long)a->rows);
    }
    if (!qsa_array_fits(a->rows, a->id_stride, 1) || !qsa_array_fits(a->rows, shape->q_heads, shape->head_dim) ||
        !qsa_array_fits(qsa_mul(a->rows, a->parts), shape->q_heads, shape->head_dim + 2) || qsa_mul(a->rows, a->parts) < 0) {
        return qsa_fail(error, QSA_E_ARGUMENT, "rows is %lld, id_stride is %lld and parts is %lld: an array passes 2^62 bytes",
                        (long long)a->rows, (long long)a->id_stride, (long long)a->parts);
    }
    return QSA_OK;
}

qsa_status qsa_attend(qsa_context *context, const qsa_shape *shape, const qsa_attend_args *args, qsa_error *error) {
    if (!context) {
        return qsa_fail(error, QSA_E_ARGUMENT, "context is NULL");
    }
    attend_call call = {.kernels = qsa_context_attend(context), .shape = shape, .args = args};
    qsa_status status;
    if ((status = qsa_shape_check(shape, error)) || (status = check_args(shape, args, error)) ||
        (status = qsa_kv_resolve(shape, args->kv, &call.kv, error))) {
        return status;
    }
    call.chunk = args->chunk ? args->chunk : QSA_CHUNK_MAX;
    int64_t longest = qsa_max(1, args->ids ? args->id_stride : call.kv.cells);
    call.fold = qsa_min(args->fold ? args->fold : 1, qsa_div_up(longest, call.chunk)); /* more would hold no more ids */
    if ((status = check_ids(args, &call.kv, call.chunk * call.fold, error))) {
        return status;
    }
    call.runs = qsa_div_up(args->parts, PARTS_OF_ITEM);
    qsa_run(context, args->rows * shape->kv_heads * call.runs, attend_item, &call);
    return qsa_ok(error);
}
