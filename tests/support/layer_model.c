/* SPDX-License-Identifier: MIT */
/* Random layers for tests. */
#include "support/layer_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const char *const part_names[PARTS] = {"q_proj.weight",
                                       "k_proj.weight",
                                       "v_proj.weight",
                                       "o_proj.weight",
                                       "q_norm.weight",
                                       "k_norm.weight",
                                       "indexer.index_qk_proj.weight",
                                       "indexer.q_layernorm.weight",
                                       "indexer.k_layernorm.weight"};

const model small_sizes = {37, 4, 2, 64, 3, 16, {NULL}};

static float random_float(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)((double)(*state >> 40) / (double)(1 << 23) - 1.0);
}

float *random_floats(uint64_t *state, int64_t count, float scale) {
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        x[i] = random_float(state) * scale;
    }
    return x;
}

/* rows, columns (0: a vector) */
static void part_shape(const model *m, int part, int64_t shape[2]) {
    const int64_t shapes[PARTS][2] = {{2 * m->q_heads * m->head_dim, m->hidden},
                                      {m->kv_heads * m->head_dim, m->hidden},
                                      {m->kv_heads * m->head_dim, m->hidden},
                                      {m->hidden, m->q_heads * m->head_dim},
                                      {m->head_dim, 0},
                                      {m->head_dim, 0},
                                      {(m->index_heads + 1) * m->index_dim, m->hidden},
                                      {m->index_dim, 0},
                                      {m->index_dim, 0}};
    memcpy(shape, shapes[part], sizeof shapes[part]);
}

model random_model(model sizes, uint64_t seed) {
    for (int p = 0; p < PARTS; p++) {
        int64_t shape[2];
        part_shape(&sizes, p, shape);
        sizes.w[p] = random_floats(&seed, shape[0] * (shape[1] ? shape[1] : 1), shape[1] ? 0.3f : 0.5f);
    }
    return sizes;
}

void free_model(model *m) {
    for (int p = 0; p < PARTS; p++) {
        free(m->w[p]);
    }
}

void add_layer(st_writer *writer, const model *m, const char *prefix, int without) {
    for (int p = 0; p < PARTS; p++) {
        char name[128];
        int64_t shape[2];
        snprintf(name, sizeof name, "%sself_attn.%s", prefix, part_names[p]);
        part_shape(m, p, shape);
        if (p != without) {
            st_add_f32(writer, name, shape[1] ? 2 : 1, shape, m->w[p]);
        }
    }
}

qsa_tensors *open_writer(st_writer *writer) {
    char *folder = st_folder(), *path = st_path(folder, "layer.safetensors");
    qsa_tensors *tensors;
    qsa_error error;
    st_write(writer, path);
    st_free(writer);
    if (qsa_tensors_open(path, NULL, &tensors, &error)) {
        fail_msg("%s", error.message);
    }
    free(path);
    st_remove_folder(folder); /* open files live on */
    return tensors;
}

qsa_tensors *model_tensors(const model *m, const char *prefix) {
    st_writer *writer = st_new();
    add_layer(writer, m, prefix, PARTS);
    return open_writer(writer);
}

qsa_context *open_context(qsa_cpu cpu, int64_t threads) {
    qsa_options options = {.size = sizeof options};
    qsa_context *context;
    qsa_error error;
    options.cpu = cpu;
    options.threads = threads;
    if (qsa_open(&options, &context, &error)) {
        fail_msg("%s", error.message);
    }
    return context;
}

qsa_layer_options options_of(int64_t dims) {
    qsa_layer_options options = {.size = sizeof options};
    options.rope.size = sizeof options.rope;
    options.rope.dims = dims;
    return options;
}

qsa_layer *load(qsa_context *context, const model *m, int64_t dims) {
    qsa_tensors *tensors = model_tensors(m, "model.layers.3.");
    qsa_layer_options options = options_of(dims);
    qsa_layer *layer;
    qsa_error error;
    if (qsa_layer_load(context, tensors, &options, &layer, &error)) {
        fail_msg("%s", error.message);
    }
    qsa_tensors_close(tensors);
    return layer;
}

outputs new_outputs(const qsa_shape *s, int64_t tokens) {
    outputs o = {.width = {s->q_heads * s->head_dim, s->q_heads * s->head_dim, s->kv_heads * s->head_dim,
                           s->kv_heads * s->head_dim, s->index_heads * s->index_dim, s->index_dim},
                 .tokens = tokens};
    for (int i = 0; i < OUTPUTS; i++) {
        size_t bytes = (size_t)(o.width[i] * tokens) * sizeof(float);
        o.x[i] = malloc(bytes);
        memset(o.x[i], 0x7b, bytes); /* so that what is not written cannot be right */
    }
    return o;
}

void free_outputs(outputs *o) {
    for (int i = 0; i < OUTPUTS; i++) {
        free(o->x[i]);
    }
}

void assert_same_bits(const outputs *a, const outputs *b) {
    for (int i = 0; i < OUTPUTS; i++) {
        assert_memory_equal(a->x[i], b->x[i], (size_t)(a->width[i] * a->tokens) * sizeof(float));
    }
}

qsa_layer_args args_of(const outputs *o, const float *hidden, int64_t hidden_size, int64_t first, int64_t count,
                       unsigned mask) {
    qsa_layer_args args = {.size = sizeof args};
    float *at[OUTPUTS];
    for (int i = 0; i < OUTPUTS; i++) {
        at[i] = mask >> i & 1u ? o->x[i] + first * o->width[i] : NULL;
    }
    args.hidden = hidden + first * hidden_size;
    args.tokens = count;
    args.first_position = first;
    args.q = at[0], args.gate = at[1], args.k = at[2], args.v = at[3], args.iq = at[4], args.raw_index = at[5];
    return args;
}

void project(qsa_context *context, const qsa_layer *layer, const qsa_layer_args *args) {
    qsa_error error;
    if (qsa_layer_project(context, layer, args, &error)) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(error.status, QSA_OK);
}
