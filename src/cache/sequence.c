/* SPDX-License-Identifier: MIT */
/* Sequences: growing, shrinking, and the views that the stages read. */
#include "cache/cache.h"
#include "cache/codec.h"

#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "runtime/status.h"
#include "score/screen.h"

enum { ALIGN = 64, CELLS_OF_ITEM = 32 };

/* ------------------------------------------------------------------------------------------------ life */

static size_t header_bytes(const qsa_cache *cache) {
    size_t bytes = sizeof(qsa_sequence) + (size_t)cache->layers * sizeof(qsa_sequence_layer);
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t ring_bytes(const qsa_cache *cache) {
    return (size_t)(cache->rollback * cache->shape.index_dim) * sizeof(float);
}

qsa_status qsa_sequence_create(qsa_cache *cache, qsa_sequence **sequence, qsa_error *error) {
    if (!cache || !sequence) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL", cache ? "sequence" : "cache");
    }
    *sequence = NULL;
    size_t bytes = header_bytes(cache) + (size_t)cache->layers * ring_bytes(cache) + (size_t)cache->pages * sizeof(int32_t);
    char *memory = qsa_allocate(qsa_context_allocator(cache->context), bytes, ALIGN);
    if (!memory) {
        return qsa_fail(error, QSA_E_MEMORY, "%zu bytes for a sequence were refused", bytes);
    }
    qsa_sequence *s = (qsa_sequence *)(void *)memory;
    char *rings = memory + header_bytes(cache);
    s->cache = cache;
    s->pages = (int32_t *)(void *)(rings + (size_t)cache->layers * ring_bytes(cache));
    s->page_count = 0;
    s->bytes = bytes;
    for (int64_t i = 0; i < cache->layers; i++) {
        s->layer[i] = (qsa_sequence_layer){.ring = (float *)(void *)(rings + (size_t)i * ring_bytes(cache))};
    }
    pthread_mutex_lock(&cache->lock);
    cache->sequences++;
    cache->sequence_bytes += (int64_t)bytes;
    pthread_mutex_unlock(&cache->lock);
    *sequence = s;
    return qsa_ok(error);
}

/* Gives the pages behind the first `keep` back. */
static void give_back(qsa_sequence *s, int64_t keep) {
    qsa_cache *cache = s->cache;
    pthread_mutex_lock(&cache->lock);
    while (s->page_count > keep) {
        cache->free_pages[cache->free_count++] = s->pages[--s->page_count];
    }
    pthread_mutex_unlock(&cache->lock);
}

void qsa_sequence_destroy(qsa_sequence *sequence) {
    if (!sequence) {
        return;
    }
    qsa_cache *cache = sequence->cache;
    size_t bytes = sequence->bytes;
    give_back(sequence, 0);
    pthread_mutex_lock(&cache->lock);
    cache->sequences--;
    cache->sequence_bytes -= (int64_t)bytes;
    pthread_mutex_unlock(&cache->lock);
    qsa_release(qsa_context_allocator(cache->context), sequence, bytes, ALIGN);
}

int64_t qsa_sequence_length(const qsa_sequence *sequence, int64_t layer) {
    return sequence && layer >= 0 && layer < sequence->cache->layers ? sequence->layer[layer].length : -1;
}

/* ------------------------------------------------------------------------------------------------ append */

typedef struct append_call {
    const qsa_sequence *sequence;
    const qsa_append_args *args;
    int64_t start;        /* cells there before */
    int64_t cell_items;   /* of CELLS_OF_ITEM cells; block-key items follow */
    int64_t first_block, blocks;
    qsa_block_key_recipe recipe;
} append_call;

static int64_t page_of(const qsa_sequence *s, int64_t cell) {
    return s->pages[cell / s->cache->page_cells];
}

static void store_cell(const append_call *call, int64_t i) {
    const qsa_sequence *s = call->sequence;
    const qsa_cache *cache = s->cache;
    int64_t cell = call->start + i, in_page = cell % cache->page_cells, page = page_of(s, cell);
    int64_t dim = cache->shape.head_dim, groups = dim / 64, head_bytes = dim * qsa_kv_element(cache->kv_type);
    const float *from[] = {call->args->k, call->args->v};
    for (int plane = 0; plane < 2; plane++) {
        char *values = qsa_cache_plane(cache, call->args->layer, plane ? QSA_PLANE_V : QSA_PLANE_K) + page * cache->page.kv;
        char *scales = qsa_cache_plane(cache, call->args->layer, plane ? QSA_PLANE_V_SCALE : QSA_PLANE_K_SCALE) +
                       page * cache->page.scales;
        for (int64_t h = 0; h < cache->shape.kv_heads; h++) {
            int64_t slot = h * cache->page_cells + in_page;
            qsa_encode_head(cache->kv_type, from[plane] + (i * cache->shape.kv_heads + h) * dim, groups,
                            values + slot * head_bytes, (uint16_t *)(void *)(scales + slot * groups * 2));
        }
    }
}

/* Where the raw key of a cell is: in this call's arguments, or kept from before. */
static const float *raw_key(const append_call *call, int64_t cell) {
    const qsa_cache *cache = call->sequence->cache;
    int64_t dim = cache->shape.index_dim;
    if (cell >= call->start) {
        return call->args->raw_index + (cell - call->start) * dim;
    }
    return call->sequence->layer[call->args->layer].ring + cell % cache->rollback * dim;
}

static void store_block_key(const append_call *call, int64_t b) {
    const qsa_sequence *s = call->sequence;
    const qsa_cache *cache = s->cache;
    int64_t block = cache->shape.block, dim = cache->shape.index_dim;
    const float *raw[QSA_BLOCK_MAX];
    float key[QSA_INDEX_DIM_MAX];
    for (int64_t i = 0; i < block; i++) {
        raw[i] = raw_key(call, b * block + i);
    }
    qsa_block_key(&call->recipe, raw, b * block, key);
    int64_t page = page_of(s, b * block), in_page = b % cache->page_blocks, bytes = cache->key_type == QSA_F32 ? 4 : 2;
    char *keys = qsa_cache_plane(cache, call->args->layer, QSA_PLANE_KEYS) + page * cache->page.keys;
    if (cache->page.screen) {
        char *copies = qsa_cache_plane(cache, call->args->layer, QSA_PLANE_SCREEN) + page * cache->page.screen;
        qsa_screen_store(key, dim, copies + in_page / QSA_TILE * qsa_screen_tile_bytes(dim), in_page % QSA_TILE);
    }
    for (int64_t c = 0; c < dim; c++) {
        int64_t offset = (in_page * dim + c) * bytes;
        char *at = keys + (cache->page.screen ? offset : qsa_tile_offset(cache->key_type, dim, in_page, c));
        uint16_t half = qsa_f32_to_bf16(key[c]);
        if (cache->key_type == QSA_F32) {
            memcpy(at, key + c, sizeof *key);
        } else {
            memcpy(at, &half, sizeof half);
        }
    }
}

static void append_item(void *arg, int64_t item) {
    const append_call *call = arg;
    if (item >= call->cell_items) {
        store_block_key(call, call->first_block + item - call->cell_items);
        return;
    }
    int64_t last = qsa_min((item + 1) * CELLS_OF_ITEM, call->args->cells);
    for (int64_t i = item * CELLS_OF_ITEM; i < last; i++) {
        store_cell(call, i);
    }
}

/* Keeps the last `rollback` raw keys; those of earlier cells go. */
static void keep_raw(const append_call *call, qsa_sequence_layer *layer) {
    const qsa_cache *cache = call->sequence->cache;
    int64_t dim = cache->shape.index_dim, end = call->start + call->args->cells;
    for (int64_t cell = qsa_max(call->start, end - cache->rollback); cell < end; cell++) {
        memcpy(layer->ring + cell % cache->rollback * dim, raw_key(call, cell), (size_t)dim * sizeof(float));
    }
    layer->raw_low = qsa_max(layer->raw_low, end - cache->rollback);
}

/* Takes pages until `cells` cells fit, all or none. */
static qsa_status take_pages(qsa_sequence *s, int64_t cells, qsa_error *error) {
    qsa_cache *cache = s->cache;
    int64_t wanted = qsa_div_up(cells, cache->page_cells) - s->page_count;
    if (wanted <= 0) {
        return QSA_OK;
    }
    pthread_mutex_lock(&cache->lock);
    int64_t free_count = cache->free_count;
    if (wanted <= free_count) {
        for (int64_t i = 0; i < wanted; i++) {
            s->pages[s->page_count++] = cache->free_pages[--cache->free_count];
        }
    }
    pthread_mutex_unlock(&cache->lock);
    if (wanted > free_count) {
        return qsa_fail(error, QSA_E_CAPACITY, "%lld cells need %lld more pages of %lld cells: %lld of %lld are free",
                        (long long)cells, (long long)wanted, (long long)cache->page_cells, (long long)free_count,
                        (long long)cache->pages);
    }
    return QSA_OK;
}

static qsa_status check_append(const qsa_sequence *s, const qsa_append_args *a, qsa_error *error) {
    if (!s) {
        return qsa_fail(error, QSA_E_ARGUMENT, "sequence is NULL");
    }
    if (!a || a->size != sizeof *a) {
        return qsa_fail(error, QSA_E_ARGUMENT, "args is %s: expected a qsa_append_args with its size set",
                        a ? "of another size" : "NULL");
    }
    if (a->layer < 0 || a->layer >= s->cache->layers) {
        return qsa_fail(error, QSA_E_ARGUMENT, "layer is %lld: expected 0..%lld", (long long)a->layer,
                        (long long)(s->cache->layers - 1));
    }
    if (a->cells < 0) {
        return qsa_fail(error, QSA_E_ARGUMENT, "cells is %lld: expected 0 or more", (long long)a->cells);
    }
    if (a->cells > 0 && (!a->k || !a->v)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL with %lld cells", a->k ? "v" : "k", (long long)a->cells);
    }
    int64_t length = s->layer[a->layer].length;
    if (a->cells > s->cache->pages * s->cache->page_cells - length) {
        return qsa_fail(error, QSA_E_CAPACITY, "cells is %lld behind %lld: the cache holds %lld", (long long)a->cells,
                        (long long)length, (long long)(s->cache->pages * s->cache->page_cells));
    }
    const qsa_rope *rope = &s->cache->recipe.rope;
    int64_t last_block = (length + a->cells) / s->cache->shape.block - 1;
    if (a->raw_index && last_block >= 0) {
        return qsa_rope_check_position(rope, last_block * s->cache->shape.block, error);
    }
    return QSA_OK;
}

qsa_status qsa_append(qsa_sequence *sequence, const qsa_append_args *args, qsa_error *error) {
    qsa_status status = check_append(sequence, args, error);
    if (status || args->cells == 0) {
        return status ? status : qsa_ok(error);
    }
    qsa_cache *cache = sequence->cache;
    qsa_sequence_layer *layer = &sequence->layer[args->layer];
    int64_t end = layer->length + args->cells, block = cache->shape.block;
    if ((status = take_pages(sequence, end, error))) {
        return status;
    }
    int keyed = args->raw_index && layer->keyed == layer->length;
    append_call call = {
        .sequence = sequence,
        .args = args,
        .start = layer->length,
        .cell_items = qsa_div_up(args->cells, CELLS_OF_ITEM),
        .first_block = layer->length / block,
        .blocks = keyed ? end / block - layer->length / block : 0,
        .recipe = cache->recipe,
    };
    call.recipe.norm_weight = cache->norms + args->layer * cache->shape.index_dim;
    qsa_run(cache->context, call.cell_items + call.blocks, append_item, &call);
    if (keyed) {
        keep_raw(&call, layer);
        layer->keyed = end;
    }
    layer->length = end;
    pthread_mutex_lock(&cache->lock);
    cache->block_keys_built += call.blocks;
    pthread_mutex_unlock(&cache->lock);
    return qsa_ok(error);
}

/* ------------------------------------------------------------------------------------------------ truncate */

qsa_status qsa_truncate(qsa_sequence *sequence, int64_t length, qsa_error *error) {
    if (!sequence) {
        return qsa_fail(error, QSA_E_ARGUMENT, "sequence is NULL");
    }
    if (length < 0) {
        return qsa_fail(error, QSA_E_ARGUMENT, "length is %lld: expected 0 or more", (long long)length);
    }
    const qsa_cache *cache = sequence->cache;
    int64_t block_start = length - length % cache->shape.block, longest = 0;
    for (int64_t i = 0; i < cache->layers; i++) {
        const qsa_sequence_layer *layer = &sequence->layer[i];
        if (length < layer->keyed && block_start < length && block_start < layer->raw_low) {
            return qsa_fail(error, QSA_E_STATE,
                            "length is %lld, inside a block whose raw index keys are gone in layer %lld: %lld works", (long long)length,
                            (long long)i, (long long)block_start);
        }
    }
    for (int64_t i = 0; i < cache->layers; i++) {
        qsa_sequence_layer *layer = &sequence->layer[i];
        layer->length = qsa_min(layer->length, length);
        layer->keyed = qsa_min(layer->keyed, length);
        layer->raw_low = qsa_min(layer->raw_low, layer->keyed);
        longest = qsa_max(longest, layer->length);
    }
    give_back(sequence, qsa_div_up(longest, cache->page_cells));
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
    int64_t groups = cache->shape.head_dim / 64, bytes = cache->shape.head_dim * qsa_kv_element(cache->kv_type);
    *view = (qsa_kv){
        .size = sizeof *view,
        .type = cache->kv_type,
        .k = qsa_cache_plane(cache, layer, QSA_PLANE_K),
        .v = qsa_cache_plane(cache, layer, QSA_PLANE_V),
        .cell_stride = bytes,
        .head_stride = bytes * cache->page_cells,
        .page_stride = cache->page.kv,
        .scale_cell_stride = groups * 2,
        .scale_head_stride = groups * 2 * cache->page_cells,
        .scale_page_stride = cache->page.scales,
        .pages = sequence->pages,
        .page_cells = cache->page_cells,
        .cells = sequence->layer[layer].length,
    };
    if (cache->kv_type == QSA_I8_G64) {
        view->k_scale = (const uint16_t *)(const void *)qsa_cache_plane(cache, layer, QSA_PLANE_K_SCALE);
        view->v_scale = (const uint16_t *)(const void *)qsa_cache_plane(cache, layer, QSA_PLANE_V_SCALE);
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
