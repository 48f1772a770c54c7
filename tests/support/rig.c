/* SPDX-License-Identifier: MIT */
/* Rigs: making, filling and decoding. rig_check.c compares. */
#include "support/rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/layer_model.h"

enum { KV_PERIOD = 1021, RAW_PERIOD = 4099, PIECE = 4096, CANARY = 16 };

double att_bound(qsa_type kv_type) {
    return kv_type == QSA_I8_G64 ? QSA_I8_BOUND : QSA_F32_BOUND;
}

qsa_shape shape_of(int64_t q_heads, int64_t kv_heads, int64_t head_dim, int64_t index_heads, int64_t index_dim,
                   int64_t block, int64_t budget) {
    QSA_INIT(qsa_shape, s);
    s.q_heads = q_heads;
    s.kv_heads = kv_heads;
    s.head_dim = head_dim;
    s.index_heads = index_heads;
    s.index_dim = index_dim;
    s.block = block;
    s.budget = budget;
    s.scale = (float)(1 / sqrt((double)head_dim));
    s.index_scale = (float)(1 / sqrt((double)index_dim));
    return s;
}

qsa_shape small_shape(void) {
    return shape_of(2, 1, 64, 1, 16, 4, 2048);
}

qsa_shape model_shape(void) {
    qsa_shape s;
    qsa_shape_qwen38_flash_next(&s);
    return s;
}

rig open_rig(const rig_options *o) {
    rig r = {.shape = o->shape, .kv_type = o->kv_type ? o->kv_type : QSA_I8_G64};
    int64_t layers = o->layers ? o->layers : 1, kv = o->shape.kv_heads * o->shape.head_dim;
    rng random = rng_of(o->seed);
    r.context = open_context(o->cpu, o->threads ? o->threads : 1);
    r.norm = rng_floats(&random, layers * o->shape.index_dim, 0.5f);
    r.k = rng_floats(&random, KV_PERIOD * kv, 1.0f);
    r.v = rng_floats(&random, KV_PERIOD * kv, 1.0f);
    r.raw = rng_floats(&random, RAW_PERIOD * o->shape.index_dim, 1.0f);
    QSA_INIT(qsa_cache_options, options);
    options.shape = o->shape;
    options.layers = layers;
    options.kv_type = o->kv_type;
    options.key_type = o->key_type;
    options.capacity = o->capacity ? o->capacity : 4096;
    options.page_cells = o->page_cells;
    options.index_norm = r.norm;
    options.rope.size = sizeof options.rope;
    options.rope.dims = o->shape.index_dim < 64 ? o->shape.index_dim : 64;
    MUST(qsa_cache_create, r.context, &options, &r.cache);
    MUST(qsa_sequence_create, r.cache, &r.sequence);
    return r;
}

void close_rig(rig *r) {
    qsa_sequence_destroy(r->sequence);
    qsa_cache_destroy(r->cache);
    qsa_close(r->context);
    free(r->norm), free(r->k), free(r->v), free(r->raw);
}

static void copy_cells(const float *source, int64_t period, int64_t width, int64_t first, int64_t cells, float *out) {
    for (int64_t c = 0; c < cells && out; c++) {
        memcpy(out + c * width, source + (first + c) % period * width, (size_t)width * sizeof *out);
    }
}

void source_cells(const rig *r, int64_t first, int64_t cells, float *k, float *v, float *raw) {
    int64_t kv = r->shape.kv_heads * r->shape.head_dim;
    copy_cells(r->k, KV_PERIOD, kv, first, cells, k);
    copy_cells(r->v, KV_PERIOD, kv, first, cells, v);
    copy_cells(r->raw, RAW_PERIOD, r->shape.index_dim, first, cells, raw);
}

void append_cells(const rig *r, qsa_sequence *sequence, int64_t cells) {
    int64_t kv = r->shape.kv_heads * r->shape.head_dim, first = qsa_sequence_length(sequence, 0);
    size_t room = (size_t)(cells + 1) * sizeof(float);
    float *k = malloc(room * (size_t)kv), *v = malloc(room * (size_t)kv);
    float *raw = malloc(room * (size_t)r->shape.index_dim);
    source_cells(r, first, cells, k, v, raw);
    QSA_INIT(qsa_append_args, args);
    args.cells = cells;
    args.k = k;
    args.v = v;
    args.raw_index = raw;
    MUST(qsa_append, sequence, &args);
    free(k), free(v), free(raw);
}

void grow(const rig *r, qsa_sequence *sequence, int64_t length) {
    for (;;) {
        int64_t left = length - qsa_sequence_length(sequence, 0);
        if (left <= 0) {
            break;
        }
        append_cells(r, sequence, left < PIECE ? left : PIECE);
    }
    assert_int_equal(qsa_sequence_length(sequence, 0), length);
}

queries new_queries(rng *r, const qsa_shape *s, int64_t rows) {
    queries q = {.rows = rows};
    q.q = rng_floats(r, rows * s->q_heads * s->head_dim, 4.0f);
    q.gate = rng_floats(r, rows * s->q_heads * s->head_dim, 2.0f);
    q.iq = rng_floats(r, rows * s->index_heads * s->index_dim, 1.0f);
    return q;
}

void free_queries(queries *q) {
    free(q->q), free(q->gate), free(q->iq);
}

queries queries_at(const rig *r, const queries *q, int64_t first, int64_t rows) {
    int64_t width = r->shape.q_heads * r->shape.head_dim;
    queries part = {.rows = rows, .q = q->q + first * width};
    part.gate = q->gate ? q->gate + first * width : NULL;
    part.iq = q->iq + first * r->shape.index_heads * r->shape.index_dim;
    return part;
}

/* Memory with a byte pattern that is no result, aligned to 64. */
static void *garbage(size_t bytes) {
    size_t rounded = (bytes + 127) / 64 * 64;
    void *memory = aligned_alloc(64, rounded);
    assert_non_null(memory);
    memset(memory, 0xa5, rounded);
    return memory;
}

static void assert_canary(const void *at) {
    const unsigned char *bytes = at;
    for (int i = 0; i < CANARY; i++) {
        assert_int_equal(bytes[i], 0xa5);
    }
}

/* Calls qsa_decode() on items whose ids_out and out are set here. */
static decoded decode_items(const rig *r, qsa_item *items, int64_t item_count, int64_t width, int64_t longest,
                            const qsa_decode_args *options) {
    decoded d = {.width = width, .out_width = r->shape.q_heads * r->shape.head_dim};
    for (int64_t i = 0; i < item_count; i++) {
        d.rows += items[i].rows;
    }
    size_t ids_bytes = (size_t)(d.rows * width) * sizeof *d.ids, workspace;
    size_t out_bytes = (size_t)(d.rows * d.out_width) * sizeof *d.out;
    d.ids = garbage(ids_bytes + CANARY);
    d.out = garbage(out_bytes + CANARY);
    for (int64_t i = 0, row = 0; i < item_count; row += items[i++].rows) {
        items[i].id_stride = width;
        items[i].ids_out = d.ids + row * width;
        items[i].out = d.out + row * d.out_width;
    }
    MUST(qsa_plan, r->cache, options->contract, d.rows, longest, options->chunk, options->fold, &workspace);
    qsa_decode_args args = *options;
    args.items = items;
    args.item_count = item_count;
    args.workspace = garbage(workspace + CANARY);
    args.workspace_bytes = workspace;
    MUST(qsa_decode, r->cache, &args);
    assert_canary((char *)d.ids + ids_bytes);
    assert_canary((char *)d.out + out_bytes);
    assert_canary((char *)args.workspace + workspace);
    free(args.workspace);
    return d;
}

decoded decode_rows(const rig *r, qsa_sequence *sequence, const queries *q, qsa_contract contract, int64_t chunk,
                    int64_t fold) {
    int64_t n = qsa_sequence_length(sequence, 0), width = 0;
    for (int64_t t = n - q->rows + 1; t <= n; t++) { /* the widest row need not be the longest */
        int64_t of_row = qsa_width(&r->shape, contract, t);
        width = of_row > width ? of_row : width;
    }
    qsa_item item = {.sequence = sequence, .rows = q->rows, .q = q->q, .gate = q->gate, .iq = q->iq};
    qsa_decode_args args = {.size = sizeof args, .contract = contract, .chunk = chunk, .fold = fold};
    return decode_items(r, &item, 1, width, n, &args);
}

decoded decode_batch(const rig *r, qsa_sequence *const *sequences, const queries *q, qsa_contract contract) {
    int64_t width = 0, longest = 0;
    qsa_item *items = calloc((size_t)q->rows, sizeof *items);
    for (int64_t i = 0; i < q->rows; i++) {
        queries row = queries_at(r, q, i, 1);
        int64_t n = qsa_sequence_length(sequences[i], 0), of_row = qsa_width(&r->shape, contract, n);
        items[i] = (qsa_item){.sequence = sequences[i], .rows = 1, .q = row.q, .gate = row.gate, .iq = row.iq};
        width = of_row > width ? of_row : width;
        longest = n > longest ? n : longest;
    }
    qsa_decode_args args = {.size = sizeof args, .contract = contract};
    decoded d = decode_items(r, items, q->rows, width, longest, &args);
    free(items);
    return d;
}

decoded decode(const rig *r, const queries *q, qsa_contract contract) {
    return decode_rows(r, r->sequence, q, contract, 0, 0);
}

void free_decoded(decoded *d) {
    free(d->ids), free(d->out);
}

void assert_same_decoded(const decoded *a, const decoded *b) {
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->width, b->width);
    assert_memory_equal(a->ids, b->ids, (size_t)(a->rows * a->width) * sizeof *a->ids);
    assert_memory_equal(a->out, b->out, (size_t)(a->rows * a->out_width) * sizeof *a->out);
}

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void stage_medians(const rig *r, const queries *q, qsa_contract contract, const int32_t *ids, int64_t n_ids,
                   int repeats, int64_t medians[4]) {
    enum { MOST = 99 };
    int64_t times[4][MOST], n = qsa_sequence_length(r->sequence, 0), cells = n > n_ids ? n : n_ids;
    size_t workspace;
    float *out = malloc((size_t)(q->rows * r->shape.q_heads * r->shape.head_dim) * sizeof *out);
    qsa_item item = {.sequence = r->sequence, .rows = q->rows, .q = q->q, .gate = q->gate, .iq = q->iq, .out = out};
    item.ids = ids;
    item.id_stride = n_ids;
    MUST(qsa_plan, r->cache, contract, q->rows, cells, 0, 0, &workspace);
    QSA_INIT(qsa_decode_args, args);
    args.items = &item;
    args.item_count = 1;
    args.contract = contract;
    args.workspace = garbage(workspace);
    args.workspace_bytes = workspace;
    assert_true(repeats > 0 && repeats <= MOST);
    for (int i = -1; i < repeats; i++) { /* the first call only warms the caches */
        int64_t stage_ns[4] = {0};
        args.stage_ns = stage_ns;
        MUST(qsa_decode, r->cache, &args);
        for (int s = 0; s < 4 && i >= 0; s++) {
            times[s][i] = stage_ns[s];
        }
    }
    for (int s = 0; s < 4; s++) {
        qsort(times[s], (size_t)repeats, sizeof times[s][0], by_size);
        medians[s] = times[s][repeats / 2];
    }
    free(args.workspace);
    free(out);
}
