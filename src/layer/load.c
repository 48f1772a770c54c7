/* SPDX-License-Identifier: MIT */
/* Loading a layer: which tensors it is made of, what shape they imply, and packing them. */
#include "layer/layer.h"
#include "layer/tensors.h"

#include "runtime/file.h"
#include "runtime/context.h"
#include "runtime/fpenv.h"
#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "runtime/status.h"

#include <stdio.h>

enum { Q_PROJ, K_PROJ, V_PROJ, O_PROJ, Q_NORM, K_NORM, INDEX_PROJ, INDEX_Q_NORM, INDEX_K_NORM, PARTS };

static const char *const part_names[PARTS] = {
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "self_attn.q_norm.weight",
    "self_attn.k_norm.weight",
    "self_attn.indexer.index_qk_proj.weight",
    "self_attn.indexer.q_layernorm.weight",
    "self_attn.indexer.k_layernorm.weight",
};

enum { NAME_LIMIT = 1024, CANDIDATES = 4 };

/* prefix + part's name, looked up; NULL if there is no such tensor. */
static const qsa_tensor *part_of(const qsa_tensors *tensors, const char *prefix, size_t length, int part) {
    char name[NAME_LIMIT];
    int written =
        length < NAME_LIMIT ? snprintf(name, sizeof name, "%.*s%s", (int)length, prefix, part_names[part]) : NAME_LIMIT;
    return written >= 0 && written < NAME_LIMIT ? qsa_list_find(&tensors->tensors, sizeof(qsa_tensor), name) : NULL;
}

/* The first part that is not there; PARTS if all are. */
static int missing_part(const qsa_tensors *tensors, const char *prefix, size_t length) {
    int part = 0;
    while (part < PARTS && part_of(tensors, prefix, length, part)) {
        part++;
    }
    return part;
}

static qsa_status missing(const char *prefix, int part, qsa_error *error) {
    return qsa_fail(error, QSA_E_ARGUMENT, "prefix is \"%s\": there is no tensor \"%s\" behind it",
                    qsa_show(prefix).text, part_names[part]);
}

/* Length of the prefix if the name is a layer's index projection, else -1. */
static int64_t prefix_length(const char *name) {
    size_t length = strlen(name), tail = strlen(part_names[INDEX_PROJ]);
    if (length < tail || strcmp(name + length - tail, part_names[INDEX_PROJ]) != 0) {
        return -1;
    }
    length -= tail;
    return length == 0 || name[length - 1] == '.' ? (int64_t)length : -1;
}

/* The only prefix that fits: its first `*length` bytes. */
static qsa_status find_prefix(const qsa_tensors *tensors, const char **prefix, size_t *length, qsa_error *error) {
    const qsa_tensor *all = tensors->tensors.items;
    char listed[256] = "";
    int64_t fits = 0;
    for (int64_t i = 0; i < tensors->tensors.count; i++) {
        int64_t bytes = prefix_length(all[i].name);
        if (bytes < 0 || missing_part(tensors, all[i].name, (size_t)bytes) < PARTS) {
            continue;
        }
        *prefix = all[i].name;
        *length = (size_t)bytes;
        if (fits++ < CANDIDATES) {
            size_t used = strlen(listed);
            char one[NAME_LIMIT];
            snprintf(one, sizeof one, "%.*s", (int)bytes, all[i].name);
            qsa_shown shown = qsa_show(one);
            if (used + strlen(shown.text) + 5 < sizeof listed) {
                snprintf(listed + used, sizeof listed - used, "%s\"%s\"", used ? ", " : "", shown.text);
            }
        }
    }
    if (fits == 0) {
        return qsa_fail(error, QSA_E_ARGUMENT,
                        "prefix is NULL: no tensors make a layer; one has \"%s\" and %d more of its kind",
                        part_names[INDEX_PROJ], PARTS - 1);
    }
    if (fits > 1) {
        return qsa_fail(error, QSA_E_ARGUMENT, "prefix is NULL: %lld layers fit: %s%s", (long long)fits, listed,
                        fits > CANDIDATES ? ", ..." : "");
    }
    return QSA_OK;
}

typedef struct shape_text {
    char text[64];
} shape_text;

static shape_text show_shape(int64_t rank, int64_t rows, int64_t columns) {
    shape_text shown;
    if (rank == 1) {
        snprintf(shown.text, sizeof shown.text, "[%lld]", (long long)rows);
    } else if (rank == 2) {
        snprintf(shown.text, sizeof shown.text, "[%lld, %lld]", (long long)rows, (long long)columns);
    } else {
        snprintf(shown.text, sizeof shown.text, "of rank %lld", (long long)rank);
    }
    return shown;
}

/* columns 0: a vector. */
static qsa_status check_part(const qsa_tensor *tensor, int64_t rows, int64_t columns, qsa_error *error) {
    int64_t rank = columns ? 2 : 1;
    if (tensor->rank == rank && tensor->shape[0] == rows && (rank == 1 || tensor->shape[1] == columns)) {
        return QSA_OK;
    }
    return qsa_fail(error, QSA_E_SHAPE, "tensor \"%s\" is %s: expected %s", qsa_show(tensor->name).text,
                    show_shape(tensor->rank, tensor->shape[0], tensor->shape[1]).text,
                    show_shape(rank, rows, columns).text);
}

/* How many times `size` rows a tensor has. */
static qsa_status count_heads(const qsa_tensor *tensor, int64_t size, int64_t *heads, qsa_error *error) {
    if (tensor->rank != 2 || tensor->shape[0] % size) {
        return qsa_fail(error, QSA_E_SHAPE,
                        "tensor \"%s\" is %s: expected two dimensions, the first a multiple of %lld",
                        qsa_show(tensor->name).text, show_shape(tensor->rank, tensor->shape[0], tensor->shape[1]).text,
                        (long long)size);
    }
    *heads = tensor->shape[0] / size;
    return QSA_OK;
}

/* The length of a norm's weights, where shapes that we compute can have it. */
static qsa_status norm_length(const qsa_tensor *tensor, int64_t *length, qsa_error *error) {
    if (tensor->rank != 1 || tensor->shape[0] < 1 || tensor->shape[0] > 512) {
        return qsa_fail(error, QSA_E_SHAPE, "tensor \"%s\" is %s: expected one dimension of 1..512",
                        qsa_show(tensor->name).text, show_shape(tensor->rank, tensor->shape[0], tensor->shape[1]).text);
    }
    *length = tensor->shape[0];
    return QSA_OK;
}

/* The shape that the tensors imply; then every tensor against it. */
static qsa_status derive_shape(const qsa_tensor *const *part, qsa_shape *s, int64_t *hidden, qsa_error *error) {
    qsa_status status;
    int64_t index_parts;
    if ((status = norm_length(part[Q_NORM], &s->head_dim, error)) ||
        (status = norm_length(part[INDEX_Q_NORM], &s->index_dim, error)) ||
        (status = count_heads(part[Q_PROJ], 2 * s->head_dim, &s->q_heads, error)) ||
        (status = count_heads(part[K_PROJ], s->head_dim, &s->kv_heads, error)) ||
        (status = count_heads(part[INDEX_PROJ], s->index_dim, &index_parts, error))) {
        return status;
    }
    s->index_heads = index_parts - 1;
    s->scale = (float)(1.0 / qsa_sqrt((double)s->head_dim));
    s->index_scale = (float)(1.0 / qsa_sqrt((double)s->index_dim));
    if ((status = qsa_shape_check(s, error))) {
        return status;
    }
    int64_t width = part[Q_PROJ]->shape[1];
    if (width < 1) {
        return qsa_fail(error, QSA_E_SHAPE, "tensor \"%s\" has no columns", qsa_show(part[Q_PROJ]->name).text);
    }
    *hidden = width;
    const struct {
        int part;
        int64_t rows, columns;
    } expected[] = {
        {Q_PROJ, 2 * s->q_heads * s->head_dim, width},
        {K_PROJ, s->kv_heads * s->head_dim, width},
        {V_PROJ, s->kv_heads * s->head_dim, width},
        {O_PROJ, width, s->q_heads * s->head_dim},
        {K_NORM, s->head_dim, 0},
        {INDEX_PROJ, (s->index_heads + 1) * s->index_dim, width},
        {INDEX_K_NORM, s->index_dim, 0},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected && !status; i++) {
        status = check_part(part[expected[i].part], expected[i].rows, expected[i].columns, error);
    }
    return status;
}

/* Where the rows of a matrix come from: runs of `run` rows, `stride` apart, from row `first` of a tensor on. */
typedef struct source {
    int part;
    int64_t first, run, stride, rows, columns;
} source;

static void list_sources(const qsa_shape *s, int64_t hidden, source sources[QSA_MATRICES]) {
    int64_t d = s->head_dim, q = s->q_heads * d, kv = s->kv_heads * d, iq = s->index_heads * s->index_dim;
    sources[QSA_Q] = (source){Q_PROJ, 0, d, 2 * d, q, hidden};
    sources[QSA_GATE] = (source){Q_PROJ, d, d, 2 * d, q, hidden};
    sources[QSA_K] = (source){K_PROJ, 0, kv, kv, kv, hidden};
    sources[QSA_V] = (source){V_PROJ, 0, kv, kv, kv, hidden};
    sources[QSA_IQ] = (source){INDEX_PROJ, 0, iq, iq, iq, hidden};
    sources[QSA_RAW_INDEX] = (source){INDEX_PROJ, iq, s->index_dim, s->index_dim, s->index_dim, hidden};
    sources[QSA_O] = (source){O_PROJ, 0, hidden, hidden, hidden, q};
}

/* A panel never spans two runs: heads are multiples of 64 wide. */
static qsa_status fill_matrix(const qsa_tensors *tensors, const qsa_tensor *tensor, const source *from,
                              const qsa_matrix *matrix, float *rows, qsa_error *error) {
    for (int64_t panel = 0; panel < qsa_matrix_panels(matrix); panel++) {
        int64_t r = panel * QSA_PANEL;
        int64_t row = from->first + r / from->run * from->stride + r % from->run;
        qsa_status status = qsa_tensors_read_part(tensors, tensor, row * matrix->columns,
                                                  qsa_matrix_live(matrix, panel) * matrix->columns, rows, error);
        if (status) {
            return status;
        }
        qsa_matrix_pack(matrix, panel, rows);
    }
    return QSA_OK;
}

static qsa_status fill(qsa_layer *layer, const qsa_tensors *tensors, const qsa_tensor *const *part,
                       const source *sources, float *rows, qsa_error *error) {
    static const int norm_parts[QSA_NORMS] = {Q_NORM, K_NORM, INDEX_Q_NORM, INDEX_K_NORM};
    qsa_status status = QSA_OK;
    for (int i = 0; i < QSA_NORMS && !status; i++) {
        const qsa_tensor *tensor = part[norm_parts[i]];
        status = qsa_tensors_read_part(tensors, tensor, 0, tensor->shape[0], layer->norm[i], error);
    }
    for (int i = 0; i < QSA_MATRICES && !status; i++) {
        status = fill_matrix(tensors, part[sources[i].part], &sources[i], &layer->matrix[i], rows, error);
    }
    return status;
}

/* Memory for the matrices and norms, and what points into it. */
static qsa_status take_memory(qsa_layer *layer, const source *sources, qsa_error *error) {
    const int64_t lengths[QSA_NORMS] = {layer->shape.head_dim, layer->shape.head_dim, layer->shape.index_dim,
                                        layer->shape.index_dim};
    int64_t floats = 0;
    for (int i = 0; i < QSA_MATRICES; i++) {
        int64_t more = qsa_matrix_floats(sources[i].rows, sources[i].columns);
        if (more < 0 || more > (INT64_C(1) << 58) - floats) {
            return qsa_fail(error, QSA_E_MEMORY, "the layer's weights pass 2^60 bytes");
        }
        floats += more;
    }
    for (int i = 0; i < QSA_NORMS; i++) {
        floats += lengths[i];
    }
    layer->memory_bytes = (size_t)floats * sizeof(float);
    layer->memory = qsa_allocate(&layer->allocator, layer->memory_bytes, 64);
    if (!layer->memory) {
        return qsa_fail(error, QSA_E_MEMORY, "%zu bytes for a layer's weights were refused", layer->memory_bytes);
    }
    float *next = layer->memory;
    for (int i = 0; i < QSA_MATRICES; i++) {
        layer->matrix[i] = (qsa_matrix){sources[i].rows, sources[i].columns, next};
        next += qsa_matrix_floats(sources[i].rows, sources[i].columns);
    }
    for (int i = 0; i < QSA_NORMS; next += lengths[i++]) {
        layer->norm[i] = next;
    }
    return QSA_OK;
}

/* The parts behind the wished prefix, or behind the only one that fits. */
static qsa_status find_parts(const qsa_tensors *tensors, const char *wish, const qsa_tensor **part, const char **prefix,
                             size_t *length, qsa_error *error) {
    *prefix = wish;
    *length = wish ? strlen(wish) : 0;
    qsa_status status = wish ? QSA_OK : find_prefix(tensors, prefix, length, error);
    if (status) {
        return status;
    }
    int absent = missing_part(tensors, *prefix, *length);
    if (absent < PARTS) {
        return missing(wish, absent, error);
    }
    for (int i = 0; i < PARTS; i++) {
        part[i] = part_of(tensors, *prefix, *length, i);
    }
    return QSA_OK;
}

/* The layer's own settings, defaults filled and checked. */
static qsa_status settle(qsa_layer *layer, const qsa_layer_options *o, const qsa_tensor *const *part,
                         qsa_error *error) {
    layer->eps = o->eps == 0.0f ? 1e-6f : o->eps;
    if (!(layer->eps > 0.0f) || layer->eps >= QSA_INFINITY) {
        return qsa_fail(error, QSA_E_ARGUMENT, "options.eps is %g: expected 0 or more", (double)o->eps);
    }
    layer->shape.block = o->block ? o->block : 4;
    layer->shape.budget = o->budget ? o->budget : 2048;
    qsa_status status = derive_shape(part, &layer->shape, &layer->hidden, error);
    if (status) {
        return status;
    }
    status = qsa_rope_resolve(&o->rope, qsa_min(layer->shape.head_dim, layer->shape.index_dim), &layer->rope, error);
    if (!status) {
        qsa_rope_frequencies(&layer->rope, layer->frequency);
    }
    return status;
}

static qsa_status build(qsa_layer *layer, const qsa_tensors *tensors, const qsa_layer_options *o,
                        const qsa_tensor *const *part, qsa_error *error) {
    source sources[QSA_MATRICES];
    qsa_status status = settle(layer, o, part, error);
    if (status) {
        return status;
    }
    list_sources(&layer->shape, layer->hidden, sources);
    if ((status = take_memory(layer, sources, error))) {
        return status;
    }
    int64_t widest = qsa_max(layer->hidden, layer->matrix[QSA_O].columns);
    size_t bytes = (size_t)(widest * QSA_PANEL) * sizeof(float);
    float *rows = qsa_allocate(&layer->allocator, bytes, 64);
    if (!rows) {
        return qsa_fail(error, QSA_E_MEMORY, "%zu bytes for loading a layer were refused", bytes);
    }
    status = fill(layer, tensors, part, sources, rows, error);
    qsa_release(&layer->allocator, rows, bytes, 64);
    return status;
}

qsa_status qsa_layer_load(qsa_context *context, const qsa_tensors *tensors, const qsa_layer_options *options,
                          qsa_layer **layer, qsa_error *error) {
    const qsa_tensor *part[PARTS];
    const char *prefix;
    size_t length;
    if (!layer) {
        return qsa_fail(error, QSA_E_ARGUMENT, "layer is NULL: expected where to put the handle");
    }
    *layer = NULL;
    if (!context || !tensors) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL", context ? "tensors" : "context");
    }
    if (options && options->size != sizeof *options) {
        return qsa_fail(error, QSA_E_ARGUMENT, "options.size is %zu: expected %zu", options->size, sizeof *options);
    }
    qsa_layer_options o = options ? *options : (qsa_layer_options){.size = sizeof o};
    qsa_status status = find_parts(tensors, o.prefix, part, &prefix, &length, error);
    if (status) {
        return status;
    }
    const qsa_allocator *allocator = qsa_context_allocator(context);
    size_t bytes = sizeof(qsa_layer) + length + 1;
    qsa_layer *made = qsa_allocate(allocator, bytes, 64);
    if (!made) {
        return qsa_fail(error, QSA_E_MEMORY, "%zu bytes for a layer were refused", bytes);
    }
    memset(made, 0, bytes);
    made->allocator = *allocator;
    made->bytes = bytes;
    made->shape.size = sizeof made->shape;
    memcpy(made->prefix, prefix, length);
    uint64_t saved = qsa_fpenv_enter();
    status = build(made, tensors, &o, part, error);
    qsa_fpenv_leave(saved);
    if (status) {
        qsa_layer_destroy(made);
        return status;
    }
    *layer = made;
    return qsa_ok(error);
}
