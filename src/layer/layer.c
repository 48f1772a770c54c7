/* SPDX-License-Identifier: MIT */
/* A layer at work: projections, norms, rotation. docs/spec.md, "One layer", 1 and 2. */
#include "layer/layer.h"

#include "cache/cells.h"
#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "runtime/status.h"

const qsa_shape *qsa_layer_shape(const qsa_layer *layer) {
    return &layer->shape;
}

int64_t qsa_layer_hidden_size(const qsa_layer *layer) {
    return layer->hidden;
}

const float *qsa_layer_index_norm(const qsa_layer *layer) {
    return layer->norm[QSA_INDEX_NORM];
}

const char *qsa_layer_prefix(const qsa_layer *layer) {
    return layer->prefix;
}

void qsa_layer_destroy(qsa_layer *layer) {
    if (layer) {
        qsa_allocator allocator = layer->allocator;
        qsa_release(&allocator, layer->memory, layer->memory_bytes, 64);
        qsa_release(&allocator, layer, layer->bytes, 64);
    }
}

static qsa_status check_tokens(const qsa_layer *layer, int64_t tokens, qsa_error *error) {
    int64_t widest = qsa_max(layer->hidden, layer->shape.q_heads * layer->shape.head_dim);
    if (tokens < 0 || qsa_mul(qsa_mul(tokens, widest), (int64_t)sizeof(float)) < 0) {
        return qsa_fail(error, QSA_E_ARGUMENT, "tokens is %lld: expected 0 or more, and arrays below 2^62 bytes",
                        (long long)tokens);
    }
    return QSA_OK;
}

static int64_t position_of(const qsa_layer_args *args, int64_t token) {
    return args->positions ? args->positions[token] : args->first_position + token;
}

static qsa_status check_positions(const qsa_layer *layer, const qsa_layer_args *args, qsa_error *error) {
    if (args->positions) {
        for (int64_t t = 0; t < args->tokens; t++) {
            if (args->positions[t] < 0 || args->positions[t] >= layer->rope.positions) {
                return qsa_fail(error, QSA_E_ARGUMENT, "positions[%lld] is %lld: the rotation has 0..%lld",
                                (long long)t, (long long)args->positions[t], (long long)(layer->rope.positions - 1));
            }
        }
        return QSA_OK;
    }
    if (args->first_position < 0 || args->first_position > layer->rope.positions - args->tokens) {
        return qsa_fail(error, QSA_E_ARGUMENT, "first_position is %lld with %lld tokens: the rotation has 0..%lld",
                        (long long)args->first_position, (long long)args->tokens,
                        (long long)(layer->rope.positions - 1));
    }
    return QSA_OK;
}

static qsa_status check_args(qsa_context *context, const qsa_layer *layer, const qsa_layer_args *args,
                             qsa_error *error) {
    if (!context || !layer) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL", context ? "layer" : "context");
    }
    if (!args || args->size != sizeof *args) {
        return qsa_fail(error, QSA_E_ARGUMENT, "args is %s: expected a qsa_layer_args with its size set",
                        args ? "of another size" : "NULL");
    }
    qsa_status status = check_tokens(layer, args->tokens, error);
    if (status) {
        return status;
    }
    if (args->tokens > 0 && !args->hidden) {
        return qsa_fail(error, QSA_E_ARGUMENT, "hidden is NULL with %lld tokens", (long long)args->tokens);
    }
    return args->tokens > 0 ? check_positions(layer, args, error) : QSA_OK;
}

/* A wave of tokens from `first` on. */
typedef struct wave {
    const qsa_layer *layer;
    const qsa_layer_args *args;
    int64_t first;
    qsa_turn_fn *turn;
    qsa_angles_fn *angles;
} wave;

/* Norm and rotation of a token's heads in q, k and iq. */
static void finish_token(void *arg, int64_t item) {
    const wave *w = arg;
    const qsa_layer *layer = w->layer;
    const qsa_shape *s = &layer->shape;
    const struct {
        float *all;
        int64_t heads, dim;
        const float *weight;
    } arrays[] = {
        {w->args->q, s->q_heads, s->head_dim, layer->norm[QSA_Q_NORM]},
        {w->args->k, s->kv_heads, s->head_dim, layer->norm[QSA_K_NORM]},
        {w->args->iq, s->index_heads, s->index_dim, layer->norm[QSA_IQ_NORM]},
    };
    float cos_sin[QSA_INDEX_DIM_MAX];
    int64_t token = w->first + item;
    qsa_rope_turn(w->angles, &layer->rope, layer->frequency, position_of(w->args, token), cos_sin);
    for (int i = 0; i < 3; i++) {
        if (arrays[i].all) {
            float *x = arrays[i].all + token * arrays[i].heads * arrays[i].dim;
            w->turn(&(qsa_turn_job){x, arrays[i].heads, arrays[i].dim, layer->rope.dims, arrays[i].weight, layer->eps,
                                    cos_sin});
        }
    }
}

static qsa_status take_scratch(const qsa_context *context, int64_t columns, int64_t tokens, float **scratch,
                               qsa_error *error) {
    int64_t bytes = qsa_multiply_scratch(columns, tokens);
    *scratch = bytes < 0 ? NULL : qsa_allocate(qsa_context_allocator(context), (size_t)bytes, 64);
    return *scratch ? QSA_OK
                    : qsa_fail(error, QSA_E_MEMORY, "%lld bytes for a projection were refused", (long long)bytes);
}

static void give_scratch(const qsa_context *context, int64_t columns, int64_t tokens, float *scratch) {
    qsa_release(qsa_context_allocator(context), scratch, (size_t)qsa_multiply_scratch(columns, tokens), 64);
}

qsa_status qsa_layer_project(qsa_context *context, const qsa_layer *layer, const qsa_layer_args *args,
                             qsa_error *error) {
    qsa_status status = check_args(context, layer, args, error);
    if (status) {
        return status;
    }
    float *const out[] = {args->q, args->gate, args->k, args->v, args->iq, args->raw_index};
    qsa_product wanted[QSA_O];
    int64_t count = 0;
    for (int i = 0; i < QSA_O; i++) {
        if (out[i]) {
            wanted[count++] = (qsa_product){&layer->matrix[i], out[i]};
        }
    }
    if (!args->tokens || !count) {
        return qsa_ok(error);
    }
    float *scratch;
    if ((status = take_scratch(context, layer->hidden, args->tokens, &scratch, error))) {
        return status;
    }
    wave w = {layer, args, 0, qsa_layer_kernels_of(qsa_context_cpu(context)).turn, qsa_context_cell(context)->angles};
    for (; w.first < args->tokens; w.first += QSA_PROJECT_WAVE) {
        int64_t tokens = qsa_min(QSA_PROJECT_WAVE, args->tokens - w.first);
        qsa_multiply(context, args->hidden + w.first * layer->hidden, tokens, layer->hidden, wanted, count, scratch);
        for (int64_t i = 0; i < count; i++) {
            wanted[i].out += tokens * wanted[i].matrix->rows;
        }
        if (args->q || args->k || args->iq) {
            qsa_run(context, tokens, finish_token, &w);
        }
    }
    give_scratch(context, layer->hidden, args->tokens, scratch);
    return qsa_ok(error);
}

qsa_status qsa_layer_output(qsa_context *context, const qsa_layer *layer, const float *gated, int64_t tokens,
                            float *out, qsa_error *error) {
    if (!context || !layer) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL", context ? "layer" : "context");
    }
    qsa_status status = check_tokens(layer, tokens, error);
    if (status || !tokens) {
        return status ? status : qsa_ok(error);
    }
    if (!gated || !out) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL with %lld tokens", gated ? "out" : "gated",
                        (long long)tokens);
    }
    const qsa_matrix *o = &layer->matrix[QSA_O];
    float *scratch;
    if ((status = take_scratch(context, o->columns, tokens, &scratch, error))) {
        return status;
    }
    for (int64_t first = 0; first < tokens; first += QSA_PROJECT_WAVE) {
        qsa_product product = {o, out + first * o->rows};
        qsa_multiply(context, gated + first * o->columns, qsa_min(QSA_PROJECT_WAVE, tokens - first), o->columns,
                     &product, 1, scratch);
    }
    give_scratch(context, o->columns, tokens, scratch);
    return qsa_ok(error);
}
