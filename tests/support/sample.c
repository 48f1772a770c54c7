/* SPDX-License-Identifier: MIT */
/* Random cells and rows of a small shape. */
#include "support/sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/levels.h"

enum { ARRAYS = 7 };

qsa_shape sample_shape(void) {
    QSA_INIT(qsa_shape, s);
    s.q_heads = 4;
    s.kv_heads = 2;
    s.head_dim = 64;
    s.index_heads = 2;
    s.index_dim = 32;
    s.block = 4;
    s.budget = 32;
    s.scale = 0.125f;
    s.index_scale = 0.1767767f;
    return s;
}

float *sample_floats(uint64_t *seed, int64_t count, float scale) {
    float *x = malloc((size_t)(count ? count : 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) {
        *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        x[i] = (float)((double)(*seed >> 40) / (double)(1 << 23) - 1.0) * scale;
    }
    return x;
}

sample sample_make(const qsa_shape *shape, int64_t cells, uint64_t seed) {
    sample s = {.shape = *shape, .cells = cells};
    int64_t kv = cells * shape->kv_heads * shape->head_dim, q = cells * shape->q_heads * shape->head_dim;
    s.k = sample_floats(&seed, kv, 2.0f);
    s.v = sample_floats(&seed, kv, 2.0f);
    s.raw = sample_floats(&seed, cells * shape->index_dim, 1.0f);
    s.q = sample_floats(&seed, q, 2.0f);
    s.gate = sample_floats(&seed, q, 3.0f);
    s.iq = sample_floats(&seed, cells * shape->index_heads * shape->index_dim, 1.0f);
    s.norm = sample_floats(&seed, SAMPLE_LAYERS * shape->index_dim, 0.5f);
    float *all[ARRAYS] = {s.k, s.v, s.raw, s.q, s.gate, s.iq, s.norm};
    s.arrays = malloc(sizeof all);
    assert_non_null(s.arrays);
    memcpy(s.arrays, all, sizeof all);
    return s;
}

void sample_free(sample *s) {
    for (int i = 0; i < ARRAYS; i++) {
        free(s->arrays[i]);
    }
    free(s->arrays);
}

void sample_ok(qsa_status status, const qsa_error *error) {
    if (status) {
        fail_msg("%s: %s", qsa_status_name(status), error->message);
    }
}

qsa_context *sample_context(qsa_cpu cpu, int64_t threads) {
    QSA_INIT(qsa_options, options);
    qsa_context *context = NULL;
    qsa_error error;
    options.cpu = cpu;
    options.threads = threads;
    sample_ok(qsa_open(&options, &context, &error), &error);
    return context;
}

void sample_each_level(void (*body)(qsa_context *context)) {
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        qsa_context *context = sample_context(cpu, 2);
        body(context);
        qsa_close(context);
    }
}

qsa_cache_options sample_options(const sample *s, qsa_type kv_type, qsa_type key_type, int64_t capacity) {
    QSA_INIT(qsa_cache_options, o);
    o.shape = s->shape;
    o.layers = SAMPLE_LAYERS;
    o.kv_type = kv_type;
    o.key_type = key_type;
    o.capacity = capacity;
    o.page_cells = SAMPLE_PAGE;
    o.rollback = SAMPLE_ROLLBACK;
    o.index_norm = s->norm;
    o.rope.size = sizeof o.rope;
    o.rope.dims = 16;
    return o;
}

qsa_cache *sample_cache(qsa_context *context, const qsa_cache_options *options) {
    qsa_cache *cache = NULL;
    qsa_error error;
    sample_ok(qsa_cache_create(context, options, &cache, &error), &error);
    return cache;
}

qsa_sequence *sample_sequence(qsa_cache *cache) {
    qsa_sequence *sequence = NULL;
    qsa_error error;
    sample_ok(qsa_sequence_create(cache, &sequence, &error), &error);
    return sequence;
}

qsa_append_args sample_append_args(const sample *s, int64_t layer, int64_t first, int64_t cells) {
    QSA_INIT(qsa_append_args, a);
    int64_t width = s->shape.kv_heads * s->shape.head_dim;
    assert_true(first >= 0 && cells >= 0 && first + cells <= s->cells);
    a.layer = layer;
    a.cells = cells;
    a.k = s->k + first * width;
    a.v = s->v + first * width;
    a.raw_index = s->raw + first * s->shape.index_dim;
    return a;
}

void sample_append(qsa_sequence *sequence, const sample *s, int64_t layer, int64_t first, int64_t cells) {
    qsa_append_args args = sample_append_args(s, layer, first, cells);
    qsa_error error;
    sample_ok(qsa_append(sequence, &args, &error), &error);
}

void sample_grow(qsa_sequence *sequence, const sample *s, int64_t length) {
    for (int64_t layer = 0; layer < SAMPLE_LAYERS; layer++) {
        int64_t first = qsa_sequence_length(sequence, layer);
        sample_append(sequence, s, layer, first, length - first);
    }
}

sample_result sample_result_make(const qsa_shape *shape, int64_t rows, int64_t id_stride) {
    sample_result r = {.rows = rows, .id_stride = id_stride};
    r.out_bytes = (size_t)(rows * shape->q_heads * shape->head_dim) * sizeof *r.out;
    r.id_bytes = (size_t)(rows * id_stride) * sizeof *r.ids;
    r.out = malloc(r.out_bytes + 1);
    r.ids = malloc(r.id_bytes + 1);
    assert_true(r.out && r.ids);
    memset(r.out, 0x7b, r.out_bytes); /* so that what is not written cannot be right */
    memset(r.ids, 0x7b, r.id_bytes);
    return r;
}

void sample_result_free(sample_result *r) {
    free(r->out);
    free(r->ids);
}

void sample_same_bits(const sample_result *a, const sample_result *b) {
    assert_true(a->out_bytes == b->out_bytes && a->id_bytes == b->id_bytes);
    assert_memory_equal(a->ids, b->ids, a->id_bytes);
    assert_memory_equal(a->out, b->out, a->out_bytes);
}

qsa_item sample_item(const qsa_sequence *sequence, const sample *s, int64_t layer, sample_result *r) {
    int64_t first = qsa_sequence_length(sequence, layer) - r->rows;
    int64_t width = s->shape.q_heads * s->shape.head_dim, index_width = s->shape.index_heads * s->shape.index_dim;
    return (qsa_item){
        .sequence = sequence,
        .rows = r->rows,
        .q = s->q + first * width,
        .gate = s->gate + first * width,
        .iq = s->iq + first * index_width,
        .out = r->out,
        .id_stride = r->id_stride,
        .ids_out = r->ids,
    };
}

void *sample_workspace(const qsa_cache *cache, qsa_contract contract, int64_t rows, int64_t cells, size_t *bytes) {
    qsa_error error;
    sample_ok(qsa_plan(cache, contract, rows, cells, 0, 0, bytes, &error), &error);
    void *workspace = aligned_alloc(64, *bytes ? *bytes : 64);
    assert_non_null(workspace);
    memset(workspace, 0x7b, *bytes);
    return workspace;
}

qsa_status sample_try_decode(qsa_cache *cache, const qsa_sequence *sequence, const sample *s, int64_t layer,
                             qsa_contract contract, sample_result *r, qsa_error *error) {
    QSA_INIT(qsa_decode_args, args);
    qsa_item item = sample_item(sequence, s, layer, r);
    args.layer = layer;
    args.items = &item;
    args.item_count = 1;
    args.contract = contract;
    args.workspace =
        sample_workspace(cache, contract, r->rows, qsa_sequence_length(sequence, layer), &args.workspace_bytes);
    qsa_status status = qsa_decode(cache, &args, error);
    free(args.workspace);
    return status;
}

sample_result sample_decode(qsa_cache *cache, const qsa_sequence *sequence, const sample *s, int64_t layer,
                            int64_t rows, qsa_contract contract) {
    int64_t length = qsa_sequence_length(sequence, layer), widest = s->shape.budget + s->shape.block - 1;
    qsa_error error;
    sample_result r = sample_result_make(&s->shape, rows, contract == QSA_DENSE ? length : widest);
    sample_ok(sample_try_decode(cache, sequence, s, layer, contract, &r, &error), &error);
    return r;
}
