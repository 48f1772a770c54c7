/* SPDX-License-Identifier: MIT */
#include "haystack.h"

#include "options.h"
#include "report.h"
#include "settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 1024 };

/* Logit of a needle's cell for a query that looks for it: exp(-40) times all others is nothing. */
static const float NEEDLE_LOGIT = 40;

/* splitmix64 */
static uint64_t next(uint64_t *state) {
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Evenly spread over -size..size. */
static void fill(uint64_t seed, float size, float *x, int64_t count) {
    uint64_t state = seed, bits = 0;
    for (int64_t i = 0; i < count; i++) {
        bits = i % 4 ? bits >> 16 : next(&state);
        x[i] = ((float)(bits & 0xffff) - 32767.5f) * (size / 32768.0f);
    }
}

/* ------------------------------------------------------------------------------------------------ needles */

/* Variance 1, as a normed head has. */
static const float UNIT = 1.7320508f;

static void point_queries(const qsa_shape *s, uint64_t seed, needle *x) {
    int64_t group = s->q_heads / s->kv_heads, dim = s->head_dim;
    fill(seed, UNIT, x->q, s->q_heads * dim);
    for (int64_t g = 0; g < s->kv_heads; g++) {
        float *first = x->q + g * group * dim;
        double square = 0;
        for (int64_t i = 0; i < dim; i++) {
            square += (double)first[i] * (double)first[i];
        }
        float along = NEEDLE_LOGIT / (s->scale * (float)square);
        for (int64_t i = 0; i < dim; i++) {
            x->k[g * dim + i] = along * first[i];
        }
        for (int64_t h = 2; h < group; h += 2) {
            memcpy(first + h * dim, first, (size_t)dim * sizeof(float));
        }
    }
}

/* The index query is the needle's own block key, and a little noise that differs from head to head. */
static int point_index_query(haystack *h, uint64_t seed, needle *x) {
    const qsa_shape *s = &h->shape;
    float *raw = take_memory(h->command, s->block * s->index_dim, sizeof(float));
    float *key = take_memory(h->command, s->index_dim, sizeof(float));
    int64_t position = x->cell;
    for (int64_t i = 0; i < s->block; i++) {
        memcpy(raw + i * s->index_dim, x->raw_index, (size_t)s->index_dim * sizeof(float));
    }
    QSA_INIT(qsa_block_keys_args, args);
    args.raw = raw;
    args.blocks = 1;
    args.positions = &position;
    args.norm_weight = h->index_norm;
    args.eps = 1e-6f;
    args.type = QSA_F32;
    args.keys = key;
    qsa_error error;
    qsa_status status = qsa_block_keys(h->context, s, &args, &error);
    fill(seed, 0.25f, x->iq, s->index_heads * s->index_dim);
    for (int64_t i = 0; i < s->index_heads * s->index_dim; i++) {
        x->iq[i] += key[i % s->index_dim];
    }
    free(raw), free(key);
    return status ? complain_library(h->command, "a needle's block key", &error) : EXIT_OK;
}

static int make_needle(haystack *h, int64_t n, int64_t cell, needle *x) {
    const qsa_shape *s = &h->shape;
    int64_t q = s->q_heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    uint64_t seed = (uint64_t)n << 32;
    *x = (needle){
        .n = n,
        .cell = cell - cell % s->block,
        .q = take_memory(h->command, q, sizeof(float)),
        .gate = take_memory(h->command, q, sizeof(float)),
        .iq = take_memory(h->command, s->index_heads * s->index_dim, sizeof(float)),
        .k = take_memory(h->command, kv, sizeof(float)),
        .v = take_memory(h->command, kv, sizeof(float)),
        .raw_index = take_memory(h->command, s->index_dim, sizeof(float)),
    };
    point_queries(s, seed + 1, x);
    fill(seed + 2, 3, x->gate, q);
    fill(seed + 3, 1, x->v, kv);
    fill(seed + 4, 1, x->raw_index, s->index_dim);
    return point_index_query(h, seed + 5, x);
}

/* ------------------------------------------------------------------------------------------------ cells */

int haystack_create(const char *command, qsa_context *context, qsa_type kv_type, haystack *h) {
    static const int64_t lengths[NEEDLES] = {120000, 210000}, cells[NEEDLES] = {44402, 130333};
    *h = (haystack){.command = command, .context = context};
    qsa_shape_qwen38_flash_next(&h->shape);
    const qsa_shape *s = &h->shape;
    int64_t kv = s->kv_heads * s->head_dim;
    h->index_norm = take_memory(command, s->index_dim, sizeof(float));
    h->k = take_memory(command, BATCH * kv, sizeof(float));
    h->v = take_memory(command, BATCH * kv, sizeof(float));
    h->raw_index = take_memory(command, BATCH * s->index_dim, sizeof(float));
    for (int i = 0; i < NEEDLES; i++) {
        if (make_needle(h, lengths[i], cells[i], &h->needles[i])) {
            return EXIT_USAGE;
        }
    }
    QSA_INIT(qsa_cache_options, options);
    options.shape = *s;
    options.layers = 1;
    options.kv_type = kv_type;
    options.capacity = lengths[NEEDLES - 1];
    options.index_norm = h->index_norm;
    qsa_error error;
    if (qsa_cache_create(context, &options, &h->cache, &error) || qsa_sequence_create(h->cache, &h->sequence, &error)) {
        return complain_library(command, "the cache of the self-test", &error);
    }
    return EXIT_OK;
}

void haystack_destroy(haystack *h) {
    for (int i = 0; i < NEEDLES; i++) {
        needle *x = &h->needles[i];
        free(x->q), free(x->gate), free(x->iq), free(x->k), free(x->v), free(x->raw_index);
    }
    free(h->index_norm), free(h->k), free(h->v), free(h->raw_index);
    qsa_sequence_destroy(h->sequence);
    qsa_cache_destroy(h->cache);
    *h = (haystack){0};
}

static void make_cell(haystack *h, int64_t cell, int64_t at) {
    const qsa_shape *s = &h->shape;
    int64_t kv = s->kv_heads * s->head_dim, index = s->index_dim;
    uint64_t seed = (uint64_t)cell * 4;
    fill(seed, 1, h->k + at * kv, kv);
    fill(seed + 1, 1, h->v + at * kv, kv);
    fill(seed + 2, 1, h->raw_index + at * index, index);
    for (int i = 0; i < NEEDLES; i++) {
        const needle *x = &h->needles[i];
        if (cell >= x->cell && cell < x->cell + s->block) {
            memcpy(h->k + at * kv, x->k, (size_t)kv * sizeof(float));
            memcpy(h->v + at * kv, x->v, (size_t)kv * sizeof(float));
            memcpy(h->raw_index + at * index, x->raw_index, (size_t)index * sizeof(float));
        }
    }
}

int haystack_grow(haystack *h, int64_t n, int64_t cells) {
    int64_t end = n - h->length < cells ? n : h->length + cells;
    while (h->length < end) {
        int64_t count = end - h->length < BATCH ? end - h->length : BATCH;
        for (int64_t i = 0; i < count; i++) {
            make_cell(h, h->length + i, i);
        }
        QSA_INIT(qsa_append_args, append);
        append.cells = count;
        append.k = h->k;
        append.v = h->v;
        append.raw_index = h->raw_index;
        qsa_error error;
        if (qsa_append(h->sequence, &append, &error)) {
            return complain_library(h->command, "cells of the self-test", &error);
        }
        h->length += count;
    }
    return EXIT_OK;
}
