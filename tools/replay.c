/* SPDX-License-Identifier: MIT */
#include "replay.h"

#include "options.h"
#include "report.h"
#include "settings.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 256 };

static int refuse(const replay *p, const qsa_error *error) {
    return complain_library(p->recording->command, p->recording->path, error);
}

/* A number that the file's metadata names, or 0: the library's default. */
static double metadata_number(const recording *r, const char *key) {
    const char *text = qsa_tensors_metadata(r->tensors, key);
    return text ? strtod(text, NULL) : 0;
}

static int load_layer(replay *p) {
    const recording *r = p->recording;
    QSA_INIT(qsa_layer_options, options);
    options.prefix = p->settings.prefix;
    options.block = p->settings.block;
    options.budget = p->settings.budget;
    options.eps = (float)metadata_number(r, "eps");
    options.rope.size = sizeof options.rope;
    options.rope.theta = metadata_number(r, "rope_theta");
    qsa_error error;
    if (qsa_layer_load(p->context, r->tensors, &options, &p->layer, &error)) {
        return refuse(p, &error);
    }
    p->shape = qsa_layer_shape(p->layer);
    if (qsa_layer_hidden_size(p->layer) != r->hidden_size) {
        return complain(r->command, "%s: tensor 'hidden' is %lld wide: the layer takes %lld", r->path,
                        (long long)r->hidden_size, (long long)qsa_layer_hidden_size(p->layer));
    }
    int64_t size = p->shape->q_heads * p->shape->head_dim;
    if (r->gated && r->gated_size != size) {
        return complain(r->command, "%s: tensor 'gated' is %lld wide: the layer makes %lld", r->path,
                        (long long)r->gated_size, (long long)size);
    }
    QSA_INIT(qsa_cache_options, cache);
    cache.shape = *p->shape;
    cache.layers = 1;
    cache.kv_type = p->settings.kv;
    cache.key_type = p->settings.keys;
    cache.capacity = r->tokens;
    cache.index_norm = qsa_layer_index_norm(p->layer);
    cache.eps = options.eps;
    cache.rope = options.rope;
    cache.screen = p->settings.screen;
    if (qsa_cache_create(p->context, &cache, &p->cache, &error) ||
        qsa_sequence_create(p->cache, &p->sequence, &error)) {
        return refuse(p, &error);
    }
    return EXIT_OK;
}

static int take_arrays(replay *p) {
    const char *command = p->recording->command;
    const qsa_shape *s = p->shape;
    int64_t kv = s->kv_heads * s->head_dim, q = s->q_heads * s->head_dim, tokens = p->recording->tokens;
    qsa_contract contract = p->settings.contract;
    for (int64_t n = tokens; n > 0 && n > tokens - s->block; n--) { /* the widest row is one of the last `block` */
        int64_t width = qsa_width(s, contract, n);
        p->id_stride = width > p->id_stride ? width : p->id_stride;
    }
    qsa_error error;
    int64_t longest = tokens > p->recording->id_stride ? tokens : p->recording->id_stride;
    if (qsa_plan(p->cache, contract, 1, longest, p->settings.chunk, 0, &p->workspace_bytes, &error)) {
        return refuse(p, &error);
    }
    p->k = take_memory(command, BATCH * kv, sizeof(float));
    p->v = take_memory(command, BATCH * kv, sizeof(float));
    p->raw_index = take_memory(command, BATCH * s->index_dim, sizeof(float));
    p->q = take_memory(command, q, sizeof(float));
    p->gate = take_memory(command, q, sizeof(float));
    p->iq = take_memory(command, s->index_heads * s->index_dim, sizeof(float));
    p->ids = take_memory(command, p->id_stride, sizeof(int32_t));
    p->gated = take_memory(command, q, sizeof(float));
    p->out = take_memory(command, p->recording->hidden_size, sizeof(float));
    p->workspace = take_memory(command, (int64_t)p->workspace_bytes, 1);
    return EXIT_OK;
}

int replay_open(const recording *r, const replay_settings *settings, replay *p) {
    *p = (replay){.recording = r, .settings = *settings};
    p->context = open_context(r->command, settings->cpu, settings->threads);
    return !p->context || load_layer(p) || take_arrays(p) ? EXIT_USAGE : EXIT_OK;
}

void replay_close(replay *p) {
    free(p->k), free(p->v), free(p->raw_index), free(p->q), free(p->gate), free(p->iq);
    free(p->ids), free(p->gated), free(p->out), free(p->workspace);
    qsa_sequence_destroy(p->sequence);
    qsa_cache_destroy(p->cache);
    qsa_layer_destroy(p->layer);
    qsa_close(p->context);
    *p = (replay){0};
}

int replay_advance(replay *p, int64_t length) {
    const recording *r = p->recording;
    qsa_error error;
    while (p->length < length) {
        int64_t tokens = length - p->length < BATCH ? length - p->length : BATCH;
        QSA_INIT(qsa_layer_args, project);
        project.hidden = r->hidden + p->length * r->hidden_size;
        project.tokens = tokens;
        project.first_position = p->length;
        project.k = p->k;
        project.v = p->v;
        project.raw_index = p->raw_index;
        QSA_INIT(qsa_append_args, append);
        append.cells = tokens;
        append.k = p->k;
        append.v = p->v;
        append.raw_index = p->raw_index;
        if (qsa_layer_project(p->context, p->layer, &project, &error) || qsa_append(p->sequence, &append, &error)) {
            return refuse(p, &error);
        }
        p->length += tokens;
    }
    return EXIT_OK;
}

int replay_decode(replay *p, const int32_t *ids, int64_t id_count) {
    const recording *r = p->recording;
    qsa_error error;
    QSA_INIT(qsa_layer_args, project);
    project.hidden = r->hidden + (p->length - 1) * r->hidden_size;
    project.tokens = 1;
    project.first_position = p->length - 1;
    project.q = p->q;
    project.gate = p->gate;
    project.iq = p->iq;
    p->id_count = ids ? id_count : qsa_width(p->shape, p->settings.contract, p->length);
    qsa_item item = {
        .sequence = p->sequence,
        .rows = 1,
        .q = p->q,
        .gate = p->gate,
        .iq = p->iq,
        .out = p->gated,
        .ids = ids,
        .id_stride = ids ? id_count : p->id_stride,
        .ids_out = ids ? NULL : p->ids,
    };
    QSA_INIT(qsa_decode_args, decode);
    decode.items = &item;
    decode.item_count = 1;
    decode.contract = p->settings.contract;
    decode.chunk = p->settings.chunk;
    decode.workspace = p->workspace;
    decode.workspace_bytes = p->workspace_bytes;
    decode.stage_ns = p->stage_ns;
    memset(p->stage_ns, 0, sizeof p->stage_ns);
    if (qsa_layer_project(p->context, p->layer, &project, &error) || qsa_decode(p->cache, &decode, &error) ||
        qsa_layer_output(p->context, p->layer, p->gated, 1, p->out, &error)) {
        return refuse(p, &error);
    }
    return EXIT_OK;
}

int64_t replay_bytes_read(const replay *p, int64_t n) {
    const qsa_shape *s = p->shape;
    int64_t key = s->index_dim * (p->settings.keys == QSA_F32 ? 4 : 2), width = qsa_width(s, p->settings.contract, n);
    int64_t cell = qsa_bytes_per_cell(s, p->settings.kv, p->settings.keys) - key / s->block;
    int64_t blocks = n / s->block, taken = width / s->block;
    if (p->settings.screen && width < n && blocks >= 1024 && blocks >= 32 * taken) { /* the rule of qsa_cache_options */
        return width * cell + blocks * (s->index_dim + 8) + taken * key;
    }
    return width * cell + (width < n ? blocks * key : 0);
}
