/* SPDX-License-Identifier: MIT */
/* Small layers with random weights as safetensors, and arrays for what they project. For tests: failures fail the test.
 */
#ifndef QSA_TEST_LAYER_MODEL_H
#define QSA_TEST_LAYER_MODEL_H

#include <qsa/qsa.h>

#include "support/safetensors_writer.h"

enum { Q_PROJ, K_PROJ, V_PROJ, O_PROJ, Q_NORM, K_NORM, INDEX_PROJ, INDEX_Q_NORM, INDEX_K_NORM, PARTS };

/* "q_proj.weight", ... behind "self_attn." */
extern const char *const part_names[PARTS];

typedef struct model {
    int64_t hidden, q_heads, kv_heads, head_dim, index_heads, index_dim;
    float *w[PARTS];
} model;

/* 37 wide, 4 and 2 heads of 64, 3 index heads of 16. */
extern const model small_sizes;

/* -1..1 times scale, from malloc. */
float *random_floats(uint64_t *state, int64_t count, float scale);

model random_model(model sizes, uint64_t seed);
void free_model(model *m);

/* All parts but `without` (PARTS: all), named prefix + "self_attn." + part_names[part]. */
void add_layer(st_writer *writer, const model *m, const char *prefix, int without);

/* Writes, opens and forgets the writer's file. */
qsa_tensors *open_writer(st_writer *writer);
qsa_tensors *model_tensors(const model *m, const char *prefix);

qsa_context *open_context(qsa_cpu cpu, int64_t threads);
qsa_layer_options options_of(int64_t rope_dims);
qsa_layer *load(qsa_context *context, const model *m, int64_t rope_dims);

enum { OUTPUTS = 6 };

typedef struct outputs {
    float *x[OUTPUTS]; /* q, gate, k, v, iq, raw_index: [tokens][width] */
    int64_t width[OUTPUTS], tokens;
} outputs;

/* Filled with bytes that no result has. */
outputs new_outputs(const qsa_shape *s, int64_t tokens);
void free_outputs(outputs *o);
void assert_same_bits(const outputs *a, const outputs *b);

/* Arguments for `count` tokens from `first` on, with the outputs whose bit is set in `mask`. */
enum { ALL_OUTPUTS = 63 };
qsa_layer_args args_of(const outputs *o, const float *hidden, int64_t hidden_size, int64_t first, int64_t count,
                       unsigned mask);
void project(qsa_context *context, const qsa_layer *layer, const qsa_layer_args *args);

#endif
