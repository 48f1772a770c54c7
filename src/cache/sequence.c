/* SPDX-License-Identifier: MIT */
/* Sequences: their lives, forking, shrinking, and the views that the stages read. append.c makes them grow. */
#include "cache/pages.h"

#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "runtime/status.h"

enum { ALIGN = 64 };

/* ------------------------------------------------------------------------------------------------ life */

static size_t header_bytes(const qsa_cache *cache) {
    size_t bytes = sizeof(qsa_sequence) + (size_t)cache->layers * sizeof(qsa_sequence_layer);
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static int64_t ring_floats(const qsa_cache *cache) {
    return cache->rollback * cache->shape.index_dim;
}

/* Of one layer: the ring of raw keys, then that of rotations. */
static int64_t kept_floats(const qsa_cache *cache) {
    return ring_floats(cache) + cache->turn_rows * cache->recipe.rope.dims;
}

qsa_status qsa_sequence_create(qsa_cache *cache, qsa_sequence **sequence, qsa_error *error) {
    if (!cache || !sequence) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL", cache ? "sequence" : "cache");
    }
    *sequence = NULL;
    size_t kept_bytes = (size_t)(cache->layers * kept_floats(cache)) * sizeof(float);
    size_t bytes = header_bytes(cache) + kept_bytes + (size_t)cache->pages * sizeof(int32_t);
    char *memory = qsa_allocate(qsa_context_allocator(cache->context), bytes, ALIGN);
    if (!memory) {
        return qsa_fail(error, QSA_E_MEMORY, "%zu bytes for a sequence were refused", bytes);
    }
    qsa_sequence *s = (qsa_sequence *)(void *)memory;
    float *kept = (float *)(void *)(memory + header_bytes(cache));
    s->cache = cache;
    s->pages = (int32_t *)(void *)(memory + header_bytes(cache) + kept_bytes);
    s->page_count = 0;
    s->bytes = bytes;
    for (int64_t i = 0; i < cache->layers; i++) {
        float *ring = kept + i * kept_floats(cache);
        s->layer[i] = (qsa_sequence_layer){.ring = ring, .turns = ring + ring_floats(cache)};
    }
    pthread_mutex_lock(&cache->lock);
    cache->sequences++;
    cache->sequence_bytes += (int64_t)bytes;
    pthread_mutex_unlock(&cache->lock);
    *sequence = s;
    return qsa_ok(error);
}

void qsa_sequence_destroy(qsa_sequence *sequence) {
    if (!sequence) {
        return;
    }
    qsa_cache *cache = sequence->cache;
    size_t bytes = sequence->bytes;
    qsa_pages_drop(sequence, 0);
    pthread_mutex_lock(&cache->lock);
    cache->sequences--;
    cache->sequence_bytes -= (int64_t)bytes;
    pthread_mutex_unlock(&cache->lock);
    qsa_release(qsa_context_allocator(cache->context), sequence, bytes, ALIGN);
}

int64_t qsa_sequence_length(const qsa_sequence *sequence, int64_t layer) {
    return sequence && layer >= 0 && layer < sequence->cache->layers ? sequence->layer[layer].length : -1;
}

/* ------------------------------------------------------------------------------------------------ cutting */

qsa_status qsa_sequence_check_cut(const qsa_sequence *s, int64_t length, qsa_error *error) {
    if (!s) {
        return qsa_fail(error, QSA_E_ARGUMENT, "sequence is NULL");
    }
    if (length < 0) {
        return qsa_fail(error, QSA_E_ARGUMENT, "length is %lld: expected 0 or more", (long long)length);
    }
    int64_t block_start = length - length % s->cache->shape.block;
    for (int64_t i = 0; i < s->cache->layers; i++) {
        const qsa_sequence_layer *layer = &s->layer[i];
        if (length < layer->keyed && block_start < length && block_start < layer->raw_low) {
            return qsa_fail(error, QSA_E_STATE,
                            "length is %lld, inside a block whose raw index keys are gone in layer %lld: %lld works", (long long)length,
                            (long long)i, (long long)block_start);
        }
    }
    return QSA_OK;
}

/* Shortens the layers; returns the pages that they need. */
static int64_t cut(qsa_sequence *s, int64_t length) {
    int64_t longest = 0;
    for (int64_t i = 0; i < s->cache->layers; i++) {
        qsa_sequence_layer *layer = &s->layer[i];
        layer->length = qsa_min(layer->length, length);
        layer->keyed = qsa_min(layer->keyed, length);
        layer->raw_low = qsa_min(layer->raw_low, layer->keyed);
        longest = qsa_max(longest, layer->length);
    }
    return qsa_div_up(longest, s->cache->page_cells);
}

qsa_status qsa_truncate(qsa_sequence *sequence, int64_t length, qsa_error *error) {
    qsa_status status = qsa_sequence_check_cut(sequence, length, error);
    if (status) {
        return status;
    }
    qsa_pages_drop(sequence, cut(sequence, length));
    return qsa_ok(error);
}

qsa_status qsa_sequence_fork(const qsa_sequence *source, int64_t length, qsa_sequence **fork, qsa_error *error) {
    if (!source || !fork) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL", source ? "fork" : "source");
    }
    *fork = NULL;
    qsa_sequence *s;
    qsa_status status = qsa_sequence_check_cut(source, length, error);
    if (status || (status = qsa_sequence_create(source->cache, &s, error))) {
        return status;
    }
    const qsa_cache *cache = source->cache;
    for (int64_t i = 0; i < cache->layers; i++) {
        const qsa_sequence_layer *from = &source->layer[i];
        qsa_sequence_layer *to = &s->layer[i];
        to->length = from->length;
        to->keyed = from->keyed;
        to->raw_low = from->raw_low;
        memcpy(to->ring, from->ring, (size_t)kept_floats(cache) * sizeof(float));
    }
    s->page_count = cut(s, length);
    memcpy(s->pages, source->pages, (size_t)s->page_count * sizeof *s->pages);
    qsa_pages_share(source->cache, s->pages, s->page_count);
    *fork = s;
    return qsa_ok(error);
}

/* ------------------------------------------------------------------------------------------------ views */

static qsa_status check_view(const qsa_sequence *s, int64_t layer, const void *view, qsa_error *error) {
    if (!s || !view) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL", s ? "view" : "sequence");
    }
    if (layer < 0 || layer >= s->cache->layers) {
        return qsa_fail(error, QSA_E_ARGUMENT, "layer is %lld: expected 0..%lld", (long long)layer, (long long)(s->cache->layers - 1));
    }
    return QSA_OK;
}

qsa_status qsa_sequence_kv(const qsa_sequence *sequence, int64_t layer, qsa_kv *view, qsa_error *error) {
    qsa_status status = check_view(sequence, layer, view, error);
    if (status) {
        return status;
    }
    const qsa_cache *cache = sequence->cache;
    int64_t row = qsa_cache_row(cache), scales = qsa_cache_scale_row(cache);
    const char *kv = qsa_cache_plane(cache, layer, QSA_PLANE_KV);
    *view = (qsa_kv){
        .size = sizeof *view,
        .type = cache->kv_type,
        .k = kv,
        .v = kv + row,
        .cell_stride = 2 * row * cache->shape.kv_heads,
        .head_stride = 2 * row,
        .page_stride = cache->page.kv,
        .scale_cell_stride = 2 * scales * cache->shape.kv_heads,
        .scale_head_stride = 2 * scales,
        .scale_page_stride = cache->page.scales,
        .pages = sequence->pages,
        .page_cells = cache->page_cells,
        .cells = sequence->layer[layer].length,
    };
    if (cache->kv_type == QSA_I8_G64) {
        view->k_scale = (const uint16_t *)(const void *)qsa_cache_plane(cache, layer, QSA_PLANE_SCALES);
        view->v_scale = view->k_scale + scales / 2;
    }
    return qsa_ok(error);
}

qsa_status qsa_sequence_keys(const qsa_sequence *sequence, int64_t layer, qsa_keys *view, qsa_error *error) {
    qsa_status status = check_view(sequence, layer, view, error);
    if (status) {
        return status;
    }
    const qsa_cache *cache = sequence->cache;
    *view = (qsa_keys){
        .size = sizeof *view,
        .type = cache->key_type,
        .layout = cache->page.screen ? QSA_KEYS_ROWS : QSA_KEYS_TILES,
        .data = qsa_cache_plane(cache, layer, QSA_PLANE_KEYS),
        .block_stride = cache->page.keys / cache->page_blocks,
        .page_stride = cache->page.keys,
        .pages = sequence->pages,
        .page_blocks = cache->page_blocks,
        .blocks = sequence->layer[layer].keyed / cache->shape.block,
    };
    return qsa_ok(error);
}
