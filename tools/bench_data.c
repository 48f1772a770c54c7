/* SPDX-License-Identifier: MIT */
/* The cache of a benchmark: a few layers of random cells. */
#define _DEFAULT_SOURCE
#include "bench.h"

#include "options.h"

#include <stdlib.h>

enum { POOL_CELLS = 1024, SHORT_CELLS = 64, PAGE_CELLS = 256 };

static uint64_t mix(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The sum of four uniform numbers. */
void bench_fill_normal(uint64_t seed, float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits = mix(&seed);
        int32_t sum = (int32_t)((bits & 0xffffu) + (bits >> 16 & 0xffffu) + (bits >> 32 & 0xffffu) + (bits >> 48));
        x[i] = (float)(sum - 131070) * (1.0f / 37837.0f);
    }
}

static int64_t pages_of(int64_t cells) {
    return (cells + PAGE_CELLS - 1) / PAGE_CELLS;
}

int64_t bench_place_bytes(const bench_case *c, const qsa_shape *shape) {
    int64_t screen = c->screen ? (shape->index_dim + 8) / shape->block : 0;
    return (pages_of(c->n) + 1) * PAGE_CELLS * (qsa_bytes_per_cell(shape, c->kv, c->keys) + screen);
}

/* K and V repeat from append to append; index keys do not: equal ones would make ties that real ones do not have. */
static int fill_layer(bench_data *data, const qsa_shape *shape, qsa_sequence *sequence, int64_t layer, int64_t n) {
    int64_t kv = POOL_CELLS * shape->kv_heads * shape->head_dim;
    float *raw = data->pool + 2 * kv;
    qsa_error error;
    for (int64_t done = 0; done < n; done += POOL_CELLS) {
        QSA_INIT(qsa_append_args, append);
        append.layer = layer;
        append.cells = n - done < POOL_CELLS ? n - done : POOL_CELLS;
        append.k = data->pool;
        append.v = data->pool + kv;
        append.raw_index = raw;
        bench_fill_normal((uint64_t)(layer + 1) << 40 | (uint64_t)done, raw, append.cells * shape->index_dim);
        if (qsa_append(sequence, &append, &error)) {
            return complain_library("bench", "cells cannot be appended", &error);
        }
    }
    return EXIT_OK;
}

/* The one place that says which cache is measured. */
static int create_cache(bench_data *data, const bench_case *c, const qsa_shape *shape, int64_t places,
                        const float *norm) {
    qsa_error error;
    QSA_INIT(qsa_options, options);
    options.threads = c->threads;
    options.cpu = c->cpu;
    if (qsa_open(&options, &data->context, &error)) {
        return complain_library("bench", "a context cannot be opened", &error);
    }
    QSA_INIT(qsa_cache_options, o);
    o.shape = *shape;
    o.layers = places;
    o.kv_type = c->kv;
    o.key_type = c->keys;
    o.page_cells = PAGE_CELLS;
    o.capacity = (pages_of(c->n) + 1) * PAGE_CELLS;
    o.index_norm = norm;
    o.screen = c->screen;
    if (qsa_cache_create(data->context, &o, &data->cache, &error) ||
        qsa_sequence_create(data->cache, &data->sequence, &error) ||
        qsa_sequence_create(data->cache, &data->short_one, &error)) {
        return complain_library("bench", "a cache cannot be made", &error);
    }
    return EXIT_OK;
}

int bench_data_create(bench_data *data, const bench_case *c, const qsa_shape *shape, int64_t places) {
    int64_t pool = POOL_CELLS * (2 * shape->kv_heads * shape->head_dim + shape->index_dim);
    *data = (bench_data){0};
    float *norm = calloc((size_t)(places * shape->index_dim), sizeof *norm);
    data->pool = malloc((size_t)pool * sizeof *data->pool);
    if (!norm || !data->pool) {
        free(norm);
        return complain("bench", "no memory for the cells");
    }
    bench_fill_normal(1, data->pool, pool);
    int failed = create_cache(data, c, shape, places, norm);
    for (int64_t layer = 0; !failed && layer < places; layer++) {
        failed = fill_layer(data, shape, data->sequence, layer, c->n);
    }
    failed = failed ? failed : fill_layer(data, shape, data->short_one, 0, SHORT_CELLS);
    free(norm);
    return failed;
}

void bench_data_destroy(bench_data *data) {
    qsa_sequence_destroy(data->short_one);
    qsa_sequence_destroy(data->sequence);
    qsa_cache_destroy(data->cache);
    qsa_close(data->context);
    free(data->pool);
}
