/* SPDX-License-Identifier: MIT */
/* The slow model's cells: made from seeds, packed, and put through the stages of the portable C. */
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void world_fail(const char *format, ...) {
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    abort();
}

void *world_take(int64_t count, size_t bytes) {
    size_t all = (size_t)(count ? count : 1) * bytes;
    void *memory = aligned_alloc(64, (all + 63) / 64 * 64);
    if (!memory) {
        world_fail("no memory for %zu bytes", all);
    }
    memset(memory, 0x7b, all); /* so that what is not written cannot be right */
    return memory;
}

/* ------------------------------------------------------------------------------------------------ values */

static uint64_t next(uint64_t *state) {
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Of every 8 cells one has an index key of zeros, so that scores tie; of every 16 one has large values. */
void world_values(uint32_t seed, int64_t layer, world_kind kind, int64_t count, float *out) {
    static const float scale[] = {2.0f, 2.0f, 1.0f, 2.0f, 3.0f, 1.0f, 0.5f};
    uint64_t state = (uint64_t)seed << 32 | (uint64_t)layer << 8 | (uint64_t)kind;
    float factor = scale[kind] * (seed % 16 == 5 && kind != WORLD_NORM ? 50.0f : 1.0f);
    if (kind == WORLD_RAW && seed % 8 == 3) {
        factor = 0.0f;
    }
    for (int64_t i = 0; i < count; i += 2) {
        uint64_t bits = next(&state);
        out[i] = ((float)(bits >> 40) / (float)(1 << 23) - 1.0f) * factor;
        if (i + 1 < count) {
            out[i + 1] = ((float)(bits & 0xffffff) / (float)(1 << 23) - 1.0f) * factor;
        }
    }
}

void world_rotation(const world *w, int64_t position, float *out) {
    qsa_error error;
    if (qsa_rope_row(&w->cache[0].options.rope, position, out, &error)) {
        world_fail("rotation of %lld: %s", (long long)position, error.message);
    }
}

/* ------------------------------------------------------------------------------------------------ packed arrays */

struct world_memory {
    const world_sequence *sequence;
    int64_t layer;
    void *k, *v, *keys;
    uint16_t *k_scale, *v_scale;
    qsa_kv kv;
    qsa_keys key_view;
};

static void ok(qsa_status status, const char *what, const qsa_error *error) {
    if (status) {
        world_fail("the model's %s: %s", what, error->message);
    }
}

static void *encode(const world *w, const world_sequence *s, int64_t l, world_kind kind, uint16_t *scales) {
    const qsa_shape *shape = &w->options.shape;
    const world_layer *layer = &s->layer[l];
    int64_t width = shape->kv_heads * shape->head_dim, n = layer->length;
    float *x = world_take(n * width, sizeof *x);
    void *encoded = world_take(n * width, 4);
    qsa_error error;
    for (int64_t c = 0; c < n; c++) {
        world_values(layer->seeds[c], l, kind, width, x + c * width);
    }
    ok(qsa_kv_encode(w->options.kv_type, n * shape->kv_heads, shape->head_dim / 64, x, encoded, scales, &error), "codec", &error);
    free(x);
    return encoded;
}

static void *build_keys(const world *w, const world_sequence *s, int64_t l) {
    const qsa_shape *shape = &w->options.shape;
    const world_layer *layer = &s->layer[l];
    int64_t dim = shape->index_dim, blocks = layer->keyed / shape->block;
    float *raw = world_take(blocks * shape->block * dim, sizeof *raw);
    int64_t *positions = world_take(blocks, sizeof *positions);
    for (int64_t c = 0; c < blocks * shape->block; c++) {
        world_values(layer->seeds[c], l, WORLD_RAW, dim, raw + c * dim);
    }
    for (int64_t b = 0; b < blocks; b++) {
        int64_t first = b * shape->block;
        positions[b] = layer->positions[first] < 0 ? first : layer->positions[first];
    }
    QSA_INIT(qsa_block_keys_args, args);
    args.raw = raw;
    args.blocks = blocks;
    args.positions = positions;
    args.norm_weight = w->norm + l * dim;
    args.eps = w->cache[0].options.eps;
    args.rope = &w->cache[0].options.rope;
    args.type = w->options.key_type;
    args.keys = world_take(blocks * dim, 4);
    qsa_error error;
    ok(qsa_block_keys(w->options.plain, shape, &args, &error), "block keys", &error);
    free(raw);
    free(positions);
    return args.keys;
}

world_memory *world_remember(const world *w, const world_sequence *s, int64_t layer) {
    const qsa_shape *shape = &w->options.shape;
    int64_t n = s->layer[layer].length, groups = shape->kv_heads * shape->head_dim / 64;
    world_memory *m = world_take(1, sizeof *m);
    *m = (world_memory){.sequence = s, .layer = layer};
    if (w->options.kv_type == QSA_I8_G64) {
        m->k_scale = world_take(n * groups, sizeof *m->k_scale);
        m->v_scale = world_take(n * groups, sizeof *m->v_scale);
    }
    m->k = encode(w, s, layer, WORLD_K, m->k_scale);
    m->v = encode(w, s, layer, WORLD_V, m->v_scale);
    m->keys = build_keys(w, s, layer);
    m->kv = (qsa_kv){.size = sizeof m->kv, .type = w->options.kv_type, .k = m->k, .v = m->v, .k_scale = m->k_scale,
                     .v_scale = m->v_scale, .cells = n};
    m->key_view = (qsa_keys){.size = sizeof m->key_view, .type = w->options.key_type, .data = m->keys,
                             .blocks = s->layer[layer].keyed / shape->block};
    return m;
}

void world_forget(world_memory *m) {
    if (m) {
        free(m->k);
        free(m->v);
        free(m->keys);
        free(m->k_scale);
        free(m->v_scale);
        free(m);
    }
}

/* ------------------------------------------------------------------------------------------------ answers */

/* Rows that read all they see need no scores; the others get the contract's cells. */
static int64_t choose(const world *w, const world_memory *m, qsa_contract contract, int64_t n, const float *iq, int32_t *ids) {
    const qsa_shape *shape = &w->options.shape;
    int64_t count = qsa_width(shape, contract, n), stride = n / shape->block + 1;
    if (count == n) {
        for (int64_t i = 0; i < n; i++) {
            ids[i] = (int32_t)i;
        }
        return n;
    }
    float *scores = world_take(stride, sizeof *scores);
    qsa_error error;
    QSA_INIT(qsa_score_args, score);
    score.iq = iq;
    score.rows = 1;
    score.n = &n;
    score.keys = &m->key_view;
    score.scores = scores;
    score.score_stride = stride;
    ok(qsa_score(w->options.plain, shape, &score, &error), "score", &error);
    QSA_INIT(qsa_select_args, select);
    select.contract = contract;
    select.scores = scores;
    select.score_stride = stride;
    select.rows = 1;
    select.n = &n;
    select.ids = ids;
    select.id_stride = count;
    select.n_ids = &count;
    ok(qsa_select(w->options.plain, shape, &select, &error), "select", &error);
    free(scores);
    return count;
}

int64_t world_answer(const world *w, const world_memory *m, const world_decode_options *options, int64_t n, float *out,
                     int32_t *ids) {
    const qsa_shape *shape = &w->options.shape;
    int64_t heads = shape->q_heads, dim = shape->head_dim, index = shape->index_heads * shape->index_dim;
    uint32_t seed = m->sequence->layer[m->layer].seeds[n - 1];
    float *q = world_take(2 * heads * dim + index, sizeof *q), *gate = q + heads * dim, *iq = gate + heads * dim;
    world_values(seed, m->layer, WORLD_Q, heads * dim, q);
    world_values(seed, m->layer, WORLD_GATE, heads * dim, gate);
    world_values(seed, m->layer, WORLD_IQ, index, iq);
    int64_t count = choose(w, m, options->contract, n, iq, ids), in_part = options->chunk * options->fold;
    qsa_error error;
    QSA_INIT(qsa_attend_args, attend);
    attend.q = q;
    attend.rows = 1;
    attend.ids = ids;
    attend.id_stride = count;
    attend.n_ids = &count;
    attend.kv = &m->kv;
    attend.chunk = options->chunk;
    attend.fold = options->fold;
    attend.parts = (count + in_part - 1) / in_part;
    attend.partials = world_take(attend.parts * heads * (dim + 2), sizeof *attend.partials);
    ok(qsa_attend(w->options.plain, shape, &attend, &error), "attend", &error);
    QSA_INIT(qsa_merge_args, merge);
    merge.partials = attend.partials;
    merge.parts = attend.parts;
    merge.rows = 1;
    merge.gate = gate;
    merge.out = out;
    ok(qsa_merge(w->options.plain, shape, &merge, &error), "merge", &error);
    free(attend.partials);
    free(q);
    return count;
}
