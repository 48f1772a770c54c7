/* SPDX-License-Identifier: MIT */
/* qsa_decode(): checks every item, then runs the rows wave by wave through the four stages. */
#define _DEFAULT_SOURCE
#include "runtime/memory.h"
#include "runtime/status.h"
#include "step/step.h"

#include <time.h>

enum { ALIGN = 64 };

/* The list of ids that row t was given. */
static int64_t list_of(const qsa_item *item, int64_t t) {
    return item->list_of ? item->list_of[t] : t;
}

static int64_t list_length(const qsa_item *item, int64_t list) {
    return item->n_ids ? item->n_ids[list] : item->id_stride;
}

static int64_t ids_of(const qsa_cache *cache, const qsa_decode_args *a, const qsa_item *item, int64_t t, int64_t n) {
    if (item->ids) {
        int64_t list = list_of(item, t);
        return list_length(item, list) + (item->seen ? n - item->seen[list] : 0);
    }
    return qsa_width(&cache->shape, a->contract, n);
}

static qsa_slice slice_of(const qsa_cache *cache, const qsa_decode_args *a, const qsa_item *item, int64_t t, int64_t n) {
    int64_t n_ids = ids_of(cache, a, item, t, n), put_together = item->ids && item->seen ? n_ids : 0;
    return qsa_slice_of(cache, a->contract, n, n_ids, put_together, a->chunk ? a->chunk : QSA_CHUNK_MAX, a->fold);
}

/* ------------------------------------------------------------------------------------------------ checks */

static qsa_status check_list(const qsa_item *item, int64_t i, int64_t t, int64_t n, qsa_error *error) {
    int64_t list = list_of(item, t), lists = item->lists ? item->lists : item->rows;
    if (list < 0 || list >= lists) {
        return qsa_fail(error, QSA_E_ARGUMENT, "items[%lld]: row %lld reads list %lld: expected 0..%lld", (long long)i, (long long)t,
                        (long long)list, (long long)(lists - 1));
    }
    int64_t count = list_length(item, list), end = item->seen ? item->seen[list] : n;
    if (count < 0 || count > item->id_stride) {
        return qsa_fail(error, QSA_E_ARGUMENT, "items[%lld].n_ids[%lld] is %lld: expected 0..%lld", (long long)i, (long long)list,
                        (long long)count, (long long)item->id_stride);
    }
    if (end < 0 || end > n) {
        return qsa_fail(error, QSA_E_ARGUMENT, "items[%lld].seen[%lld] is %lld: expected 0..%lld, what row %lld sees", (long long)i,
                        (long long)list, (long long)end, (long long)n, (long long)t);
    }
    for (int64_t j = 0; j < count; j++) {
        int64_t id = item->ids[list * item->id_stride + j];
        if (id < -1 || id >= end) {
            return qsa_fail(error, QSA_E_ARGUMENT, "items[%lld].ids[%lld][%lld] is %lld: expected -1, or a cell in 0..%lld",
                            (long long)i, (long long)list, (long long)j, (long long)id, (long long)(end - 1));
        }
    }
    return QSA_OK;
}

static qsa_status check_row(const qsa_cache *cache, const qsa_decode_args *a, int64_t i, int64_t t, int64_t n,
                            qsa_error *error) {
    const qsa_item *item = &a->items[i];
    const qsa_sequence_layer *layer = &item->sequence->layer[a->layer];
    if (item->ids) {
        qsa_status status = check_list(item, i, t, n, error);
        if (status) {
            return status;
        }
    } else if (qsa_select_needed(&cache->shape, a->contract, n)) {
        if (!item->iq) {
            return qsa_fail(error, QSA_E_ARGUMENT, "items[%lld].iq is NULL: row %lld of %lld cells needs scores", (long long)i,
                            (long long)t, (long long)n);
        }
        if (n / cache->shape.block > layer->keyed / cache->shape.block) {
            return qsa_fail(error, QSA_E_STATE, "items[%lld]: index keys are missing from cell %lld on, row %lld needs them up to %lld",
                            (long long)i, (long long)layer->keyed, (long long)t, (long long)n);
        }
    }
    int64_t count = ids_of(cache, a, item, t, n);
    if (item->ids_out && item->id_stride < count) {
        return qsa_fail(error, QSA_E_ARGUMENT, "items[%lld].id_stride is %lld: row %lld selects %lld cells", (long long)i,
                        (long long)item->id_stride, (long long)t, (long long)count);
    }
    return QSA_OK;
}

static qsa_status check_item(const qsa_cache *cache, const qsa_decode_args *a, int64_t i, size_t *slice, qsa_error *error) {
    const qsa_item *item = &a->items[i];
    if (!item->sequence || item->sequence->cache != cache) {
        return qsa_fail(error, QSA_E_ARGUMENT, "items[%lld].sequence is %s", (long long)i,
                        item->sequence ? "of another cache" : "NULL");
    }
    int64_t length = item->sequence->layer[a->layer].length;
    if (item->rows < 0 || item->rows > length) {
        return qsa_fail(error, QSA_E_ARGUMENT, "items[%lld].rows is %lld: the layer has %lld cells", (long long)i,
                        (long long)item->rows, (long long)length);
    }
    if (item->rows > 0 && (!item->q || !item->out)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "items[%lld].%s is NULL with %lld rows", (long long)i, item->q ? "out" : "q",
                        (long long)item->rows);
    }
    if (item->lists < 0) {
        return qsa_fail(error, QSA_E_ARGUMENT, "items[%lld].lists is %lld: expected 0 or more", (long long)i, (long long)item->lists);
    }
    if (item->id_stride < 0 || !qsa_array_fits(qsa_max(item->rows, item->lists), item->id_stride, 1)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "items[%lld].id_stride is %lld with %lld rows: expected 0 or more, and at most 2^62 bytes",
                        (long long)i, (long long)item->id_stride, (long long)item->rows);
    }
    for (int64_t t = 0; t < item->rows; t++) {
        int64_t n = length - item->rows + t + 1;
        qsa_status status = check_row(cache, a, i, t, n, error);
        if (status) {
            return status;
        }
        size_t end = slice_of(cache, a, item, t, n).end;
        *slice = end > *slice ? end : *slice;
    }
    return QSA_OK;
}

static qsa_status check_args(const qsa_cache *cache, const qsa_decode_args *a, qsa_error *error) {
    if (!cache) {
        return qsa_fail(error, QSA_E_ARGUMENT, "cache is NULL");
    }
    if (!a || a->size != sizeof *a) {
        return qsa_fail(error, QSA_E_ARGUMENT, "args is %s: expected a qsa_decode_args with its size set",
                        a ? "of another size" : "NULL");
    }
    if (a->layer < 0 || a->layer >= cache->layers) {
        return qsa_fail(error, QSA_E_ARGUMENT, "layer is %lld: expected 0..%lld", (long long)a->layer, (long long)(cache->layers - 1));
    }
    if (a->item_count < 0 || (a->item_count > 0 && !a->items)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "item_count is %lld with items %s", (long long)a->item_count,
                        a->items ? "given" : "NULL");
    }
    if (a->contract < QSA_BLOCKS || a->contract > QSA_DENSE) {
        return qsa_fail(error, QSA_E_ARGUMENT, "contract is %d: expected 0..2", (int)a->contract);
    }
    if (a->chunk != 0 && a->chunk != 32 && a->chunk != 64) {
        return qsa_fail(error, QSA_E_ARGUMENT, "chunk is %lld: expected 32 or 64", (long long)a->chunk);
    }
    if (a->fold < 0 || a->fold > INT32_MAX) {
        return qsa_fail(error, QSA_E_ARGUMENT, "fold is %lld: expected 1 or more", (long long)a->fold);
    }
    if (a->out_type && !qsa_prepared_size(a->out_type, 64)) {
        return qsa_fail(error, QSA_E_SHAPE, "out_type is %s: expected f32, f16, bf16 or q8_0", qsa_type_name(a->out_type));
    }
    if ((uintptr_t)a->workspace % ALIGN) {
        return qsa_fail(error, QSA_E_ARGUMENT, "workspace is %p: expected a multiple of %d", a->workspace, ALIGN);
    }
    return QSA_OK;
}

/* ------------------------------------------------------------------------------------------------ waves */

static void add_row(qsa_wave *wave, const qsa_item *item, int64_t t, size_t slice) {
    const qsa_cache *cache = wave->cache;
    const qsa_decode_args *a = wave->args;
    qsa_row *row = &wave->row[wave->rows];
    char *memory = (char *)a->workspace + (size_t)wave->rows * slice;
    int64_t n = item->sequence->layer[a->layer].length - item->rows + t + 1, n_ids = ids_of(cache, a, item, t, n);
    qsa_slice cut = slice_of(cache, a, item, t, n);
    *row = (qsa_row){
        .item = item,
        .t = t,
        .n = n,
        .n_ids = n_ids,
        .in_part = wave->chunk * qsa_fold(n_ids, wave->chunk, a->fold),
        .scored = !item->ids && qsa_select_needed(&cache->shape, a->contract, n),
        .scores = (float *)(void *)memory,
        .selected = (int32_t *)(void *)(memory + cut.ids),
        .prepared = memory + cut.prepared,
        .partials = (float *)(void *)(memory + cut.partials),
        .high = (float *)(void *)(memory + cut.high),
        .list = (int32_t *)(void *)(memory + cut.list),
        .lows = (float *)(void *)(memory + cut.lows),
        .query_memory = memory + cut.query,
    };
    row->parts = qsa_div_up(n_ids, row->in_part);
    if (item->ids) {
        int64_t list = list_of(item, t);
        row->given = item->ids + list * item->id_stride;
        row->given_ids = list_length(item, list);
        row->ids = item->seen ? row->selected : row->given;
    } else {
        row->ids = a->contract == QSA_DENSE ? NULL : row->selected;
    }
    (void)qsa_sequence_kv(item->sequence, a->layer, &row->kv, NULL);
    (void)qsa_sequence_keys(item->sequence, a->layer, &row->keys, NULL);
    wave->rows++;
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void run_wave(qsa_wave *wave) {
    static void (*const stages[])(qsa_wave *) = {qsa_wave_score, qsa_wave_select, qsa_wave_attend, qsa_wave_merge};
    for (int i = 0; i < 4; i++) {
        int64_t start = wave->args->stage_ns ? now_ns() : 0;
        stages[i](wave);
        if (wave->args->stage_ns) {
            wave->args->stage_ns[i] += now_ns() - start;
        }
    }
    wave->rows = 0;
}

qsa_status qsa_decode(qsa_cache *cache, const qsa_decode_args *args, qsa_error *error) {
    qsa_status status = check_args(cache, args, error);
    size_t slice = 0;
    for (int64_t i = 0; !status && i < args->item_count; i++) {
        status = check_item(cache, args, i, &slice, error);
    }
    if (status || slice == 0) {
        return status ? status : qsa_ok(error);
    }
    if (!args->workspace || args->workspace_bytes < slice) {
        return qsa_fail(error, QSA_E_CAPACITY, "workspace is %s of %zu bytes: a row needs %zu", args->workspace ? "one" : "NULL",
                        args->workspace_bytes, slice);
    }
    int64_t fit = (int64_t)(args->workspace_bytes / slice);
    qsa_wave wave = {.cache = cache, .args = args, .chunk = args->chunk ? args->chunk : QSA_CHUNK_MAX};
    wave.out_type = args->out_type ? args->out_type : QSA_F32;
    for (int64_t i = 0; i < args->item_count; i++) {
        for (int64_t t = 0; t < args->items[i].rows; t++) {
            add_row(&wave, &args->items[i], t, slice);
            if (wave.rows == qsa_min(fit, QSA_WAVE)) {
                run_wave(&wave);
            }
        }
    }
    if (wave.rows) {
        run_wave(&wave);
    }
    return qsa_ok(error);
}
