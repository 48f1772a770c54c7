/* SPDX-License-Identifier: MIT */
/* The header of a snapshot: taken from a sequence, written, read, checked, compared with a cache. */
#include "cache/snapshot.h"

#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "runtime/status.h"

static const char magic[8] = {'q', 's', 'a', '-', 's', 'n', 'a', 'p'};

/* ------------------------------------------------------------------------------------------------ sizes */

static int64_t key_element(const qsa_snapshot_header *h) {
    return h->key_type == QSA_F32 ? 4 : 2;
}

int64_t qsa_snapshot_section_bytes(const qsa_snapshot_header *h, int64_t i) {
    const qsa_snapshot_layer *layer = &h->layer[i];
    int64_t head = h->shape.head_dim * qsa_kv_element(h->kv_type) + (h->kv_type == QSA_I8_G64 ? h->shape.head_dim / 64 * 2 : 0);
    int64_t turns = qsa_div_up(layer->keyed, h->shape.block) - qsa_div_up(layer->raw_low, h->shape.block);
    return 2 * h->shape.kv_heads * layer->length * head + layer->keyed / h->shape.block * h->shape.index_dim * key_element(h) +
           (layer->keyed - layer->raw_low) * h->shape.index_dim * 4 + turns * h->rope_dims * 4 + QSA_SNAPSHOT_SUM;
}

static int64_t header_bytes(int64_t layers) {
    return QSA_SNAPSHOT_FIXED + layers * QSA_SNAPSHOT_LAYER + QSA_SNAPSHOT_SUM;
}

static int64_t all_bytes(const qsa_snapshot_header *h) {
    int64_t bytes = header_bytes(h->layers);
    for (int64_t i = 0; i < h->layers; i++) {
        bytes += qsa_snapshot_section_bytes(h, i); /* below 2^50 */
    }
    return bytes;
}

/* ------------------------------------------------------------------------------------------------ describing */

/* Rows of a table that the first cells of blocks before cell `end` have, and their checksum. */
static int64_t table_rows(const qsa_cache *cache, int64_t end) {
    const qsa_rope *rope = &cache->recipe.rope;
    return rope->table ? qsa_div_up(qsa_min(end, rope->positions), cache->shape.block) : 0;
}

static uint32_t table_sum(const qsa_crc *crc, const qsa_cache *cache, int64_t rows) {
    const qsa_rope *rope = &cache->recipe.rope;
    uint32_t sum = 0;
    for (int64_t i = 0; i < rows; i++) {
        sum = qsa_crc_add(crc, sum, rope->table + i * cache->shape.block * rope->dims, rope->dims * 4);
    }
    return sum;
}

static uint32_t norm_sum(const qsa_crc *crc, const qsa_cache *cache, int64_t layer) {
    int64_t dim = cache->shape.index_dim;
    return qsa_crc_add(crc, 0, cache->norms + layer * dim, dim * 4);
}

void qsa_snapshot_describe(qsa_snapshot *snapshot, const qsa_sequence *s, int64_t length) {
    const qsa_cache *cache = s->cache;
    qsa_snapshot_header *h = &snapshot->header;
    int64_t keyed = 0;
    h->shape = cache->shape;
    h->kv_type = cache->kv_type;
    h->key_type = cache->key_type;
    h->eps = cache->recipe.eps;
    h->layers = cache->layers;
    for (int64_t i = 0; i < cache->layers; i++) {
        qsa_snapshot_layer *layer = &h->layer[i];
        layer->length = qsa_min(s->layer[i].length, length);
        layer->keyed = qsa_min(s->layer[i].keyed, length);
        layer->raw_low = qsa_min(s->layer[i].raw_low, layer->keyed);
        layer->norm = norm_sum(&snapshot->crc, cache, i);
        keyed = qsa_max(keyed, layer->keyed);
    }
    h->rope_dims = cache->recipe.rope.dims;
    h->rope_theta = cache->recipe.rope.table ? 0.0 : cache->recipe.rope.theta;
    h->rope_rows = table_rows(cache, keyed);
    h->rope_sum = table_sum(&snapshot->crc, cache, h->rope_rows);
    h->bytes = all_bytes(h);
}

/* ------------------------------------------------------------------------------------------------ bytes */

/* Goes along the header's bytes, to write fields there or to read them. */
typedef struct cursor {
    unsigned char *at;
    int writing;
} cursor;

static void field(cursor *c, void *value, size_t bytes) {
    memcpy(c->writing ? (void *)c->at : value, c->writing ? value : (void *)c->at, bytes);
    c->at += bytes;
}

static void type_field(cursor *c, qsa_type *type) {
    uint32_t number = (uint32_t)*type;
    field(c, &number, sizeof number);
    *type = number <= QSA_Q8_0 ? (qsa_type)number : (qsa_type)0;
}

static void layer_fields(cursor *c, qsa_snapshot_layer *layer, uint32_t *reserved) {
    uint32_t zero = 0;
    field(c, &layer->length, 8);
    field(c, &layer->keyed, 8);
    field(c, &layer->raw_low, 8);
    field(c, &layer->norm, 4);
    field(c, &zero, 4);
    *reserved |= zero;
}

/* The fields between the first QSA_SNAPSHOT_START bytes and the layers. */
static void fixed_fields(cursor *c, qsa_snapshot_header *h) {
    field(c, &h->bytes, 8);
    field(c, &h->layers, 8);
    field(c, &h->shape.q_heads, 8);
    field(c, &h->shape.kv_heads, 8);
    field(c, &h->shape.head_dim, 8);
    field(c, &h->shape.index_heads, 8);
    field(c, &h->shape.index_dim, 8);
    field(c, &h->shape.block, 8);
    field(c, &h->shape.budget, 8);
    field(c, &h->shape.scale, 4);
    field(c, &h->shape.index_scale, 4);
    type_field(c, &h->kv_type);
    type_field(c, &h->key_type);
    field(c, &h->eps, 4);
    field(c, &h->rope_sum, 4);
    field(c, &h->rope_dims, 8);
    field(c, &h->rope_theta, 8);
    field(c, &h->rope_rows, 8);
}

/* The layers, behind which only the checksum is. Returns what is not 0 in the reserved fields. */
static uint32_t all_layer_fields(cursor *c, qsa_snapshot_header *h) {
    uint32_t reserved = 0;
    for (int64_t i = 0; i < h->layers; i++) {
        layer_fields(c, &h->layer[i], &reserved);
    }
    return reserved;
}

qsa_status qsa_snapshot_write_header(qsa_snapshot *snapshot, qsa_error *error) {
    qsa_snapshot_header *h = &snapshot->header;
    cursor c = {snapshot->bytes, 1};
    char mark[sizeof magic];
    uint32_t version = QSA_SNAPSHOT_VERSION, bytes = (uint32_t)header_bytes(h->layers);
    memcpy(mark, magic, sizeof mark);
    field(&c, mark, sizeof mark);
    field(&c, &version, sizeof version);
    field(&c, &bytes, sizeof bytes);
    fixed_fields(&c, h);
    all_layer_fields(&c, h);
    snapshot->header_sum = qsa_crc_add(&snapshot->crc, 0, snapshot->bytes, bytes - QSA_SNAPSHOT_SUM);
    field(&c, &snapshot->header_sum, sizeof snapshot->header_sum);
    return qsa_snapshot_move(snapshot, snapshot->bytes, bytes, error);
}

/* ------------------------------------------------------------------------------------------------ checking */

static qsa_status check_start(const cursor *start, int64_t *bytes, qsa_error *error) {
    cursor c = *start;
    char mark[sizeof magic];
    uint32_t version, length;
    field(&c, mark, sizeof mark);
    field(&c, &version, sizeof version);
    field(&c, &length, sizeof length);
    if (memcmp(mark, magic, sizeof magic) != 0) {
        return qsa_fail(error, QSA_E_FORMAT, "byte 0: expected \"qsa-snap\": this is no snapshot");
    }
    if (version != QSA_SNAPSHOT_VERSION) {
        return qsa_fail(error, QSA_E_FORMAT, "byte 8: the format's version is %lu: this library reads %d", (unsigned long)version,
                        QSA_SNAPSHOT_VERSION);
    }
    if (length < (uint32_t)header_bytes(1) || length > QSA_SNAPSHOT_HEADER_MAX ||
        (length - (uint32_t)header_bytes(0)) % QSA_SNAPSHOT_LAYER != 0) {
        return qsa_fail(error, QSA_E_FORMAT, "byte 12: a header of %lu bytes: expected %d and %d for each of 1..%d layers",
                        (unsigned long)length, (int)header_bytes(0), QSA_SNAPSHOT_LAYER, QSA_LAYERS_MAX);
    }
    *bytes = length;
    return QSA_OK;
}

/* Cells that a sequence can have. The raw keys of an unfinished block are there, or its key could never be made. */
static qsa_status check_layer(const qsa_snapshot_header *h, int64_t i, qsa_error *error) {
    const qsa_snapshot_layer *layer = &h->layer[i];
    int sound = layer->length >= 0 && layer->length <= INT32_MAX && layer->keyed >= 0 && layer->keyed <= layer->length &&
                layer->raw_low >= 0 && layer->raw_low <= layer->keyed - layer->keyed % h->shape.block &&
                layer->keyed - layer->raw_low <= QSA_ROLLBACK_MAX;
    if (!sound) {
        return qsa_fail(error, QSA_E_FORMAT, "layer %lld of the header has %lld cells, %lld with keys, raw ones from %lld: impossible",
                        (long long)i, (long long)layer->length, (long long)layer->keyed, (long long)layer->raw_low);
    }
    return QSA_OK;
}

static qsa_status check_fields(const qsa_snapshot_header *h, qsa_error *error) {
    qsa_status status = qsa_shape_check(&h->shape, error) ? QSA_E_FORMAT : QSA_OK;
    if (status) {
        return qsa_fail(error, QSA_E_FORMAT, "the header's shape is none that this library computes");
    }
    if (!qsa_kv_element(h->kv_type) || (h->key_type != QSA_F32 && h->key_type != QSA_BF16)) {
        return qsa_fail(error, QSA_E_FORMAT, "the header's formats are none that this library has");
    }
    int rope = h->rope_dims >= 2 && h->rope_dims <= h->shape.index_dim && h->rope_dims % 2 == 0 && h->rope_rows >= 0 &&
               h->rope_rows <= INT32_MAX && h->rope_theta >= 0.0;
    if (!rope || !(h->eps >= 0.0f) || h->eps == QSA_INFINITY) {
        return qsa_fail(error, QSA_E_FORMAT, "the header's rope (%lld dims) or eps (%g) is impossible", (long long)h->rope_dims,
                        (double)h->eps);
    }
    for (int64_t i = 0; !status && i < h->layers; i++) {
        status = check_layer(h, i, error);
    }
    if (!status && h->bytes != all_bytes(h)) {
        return qsa_fail(error, QSA_E_FORMAT, "byte 16: the header says %lld bytes, its layers take %lld", (long long)h->bytes,
                        (long long)all_bytes(h));
    }
    return status;
}

qsa_status qsa_snapshot_read_header(qsa_snapshot *snapshot, qsa_error *error) {
    qsa_snapshot_header *h = &snapshot->header;
    cursor c = {snapshot->bytes, 0};
    int64_t bytes = 0;
    qsa_status status = qsa_snapshot_move(snapshot, snapshot->bytes, QSA_SNAPSHOT_START, error);
    if (status || (status = check_start(&c, &bytes, error)) ||
        (status = qsa_snapshot_move(snapshot, snapshot->bytes + QSA_SNAPSHOT_START, bytes - QSA_SNAPSHOT_START, error))) {
        return status;
    }
    uint32_t written;
    memcpy(&written, snapshot->bytes + bytes - QSA_SNAPSHOT_SUM, sizeof written);
    snapshot->header_sum = qsa_crc_add(&snapshot->crc, 0, snapshot->bytes, bytes - QSA_SNAPSHOT_SUM);
    if (written != snapshot->header_sum) {
        return qsa_fail(error, QSA_E_FORMAT, "the header's checksum is %08lx: its bytes give %08lx", (unsigned long)written,
                        (unsigned long)snapshot->header_sum);
    }
    c.at += QSA_SNAPSHOT_START;
    h->shape.size = sizeof h->shape;
    fixed_fields(&c, h);
    if (h->layers < 1 || h->layers > QSA_LAYERS_MAX || header_bytes(h->layers) != bytes) {
        return qsa_fail(error, QSA_E_FORMAT, "a header of %lld bytes with %lld layers", (long long)bytes, (long long)h->layers);
    }
    if (all_layer_fields(&c, h)) {
        return qsa_fail(error, QSA_E_FORMAT, "the header has bits set that version %d does not have", QSA_SNAPSHOT_VERSION);
    }
    return check_fields(h, error);
}

/* ------------------------------------------------------------------------------------------------ comparing */

static qsa_status refuse_number(const char *name, double was, double expected, qsa_error *error) {
    return qsa_fail(error, QSA_E_ARGUMENT, "the snapshot's %s is %.9g: the cache's is %.9g", name, was, expected);
}

static qsa_status shape_fits(const qsa_shape *was, const qsa_shape *has, qsa_error *error) {
    const struct {
        const char *name;
        double was, has;
    } numbers[] = {
        {"q_heads", (double)was->q_heads, (double)has->q_heads},
        {"kv_heads", (double)was->kv_heads, (double)has->kv_heads},
        {"head_dim", (double)was->head_dim, (double)has->head_dim},
        {"index_heads", (double)was->index_heads, (double)has->index_heads},
        {"index_dim", (double)was->index_dim, (double)has->index_dim},
        {"block", (double)was->block, (double)has->block},
        {"budget", (double)was->budget, (double)has->budget},
        {"scale", (double)was->scale, (double)has->scale},
        {"index_scale", (double)was->index_scale, (double)has->index_scale},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].was < numbers[i].has || numbers[i].was > numbers[i].has) {
            return refuse_number(numbers[i].name, numbers[i].was, numbers[i].has, error);
        }
    }
    return QSA_OK;
}

static qsa_status type_fits(const char *name, qsa_type was, qsa_type has, qsa_error *error) {
    return was == has ? QSA_OK
                      : qsa_fail(error, QSA_E_ARGUMENT, "the snapshot's %s is %s: the cache's is %s", name, qsa_type_name(was),
                                 qsa_type_name(has));
}

static qsa_status rope_fits(const qsa_snapshot *snapshot, const qsa_cache *cache, qsa_error *error) {
    const qsa_snapshot_header *h = &snapshot->header;
    const qsa_rope *rope = &cache->recipe.rope;
    double theta = rope->table ? 0.0 : rope->theta;
    if (h->rope_dims != rope->dims) {
        return refuse_number("rope.dims", (double)h->rope_dims, (double)rope->dims, error);
    }
    if (h->rope_theta < theta || h->rope_theta > theta) {
        return refuse_number("rope.theta (0: a table)", h->rope_theta, theta, error);
    }
    if (h->rope_rows > table_rows(cache, INT32_MAX) || table_sum(&snapshot->crc, cache, h->rope_rows) != h->rope_sum) {
        return qsa_fail(error, QSA_E_ARGUMENT, "the first %lld rows of blocks in the snapshot's rope table are not those of the cache's",
                        (long long)h->rope_rows);
    }
    return QSA_OK;
}

qsa_status qsa_snapshot_fits(const qsa_snapshot *snapshot, const qsa_cache *cache, qsa_error *error) {
    const qsa_snapshot_header *h = &snapshot->header;
    qsa_status status = shape_fits(&h->shape, &cache->shape, error);
    if (status || (status = type_fits("kv_type", h->kv_type, cache->kv_type, error)) ||
        (status = type_fits("key_type", h->key_type, cache->key_type, error))) {
        return status;
    }
    if (h->layers != cache->layers) {
        return refuse_number("number of layers", (double)h->layers, (double)cache->layers, error);
    }
    if (h->eps < cache->recipe.eps || h->eps > cache->recipe.eps) {
        return refuse_number("eps", (double)h->eps, (double)cache->recipe.eps, error);
    }
    for (int64_t i = 0; i < h->layers; i++) {
        if (h->layer[i].norm != norm_sum(&snapshot->crc, cache, i)) {
            return qsa_fail(error, QSA_E_ARGUMENT, "the index_norm weights of the snapshot's layer %lld are not those of the cache's",
                            (long long)i);
        }
    }
    return rope_fits(snapshot, cache, error);
}
