/* SPDX-License-Identifier: MIT */
/* Appending cells to a layer of a sequence: K/V encoded into pages, keys of the blocks that become complete. */
#include "cache/cells.h"
#include "cache/pages.h"

#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "runtime/status.h"
#include "score/screen.h"

enum { CELLS_OF_ITEM = 32 };

typedef struct append_call {
    const qsa_sequence *sequence;
    const qsa_append_args *args;
    const qsa_cell_kernels *kernels;
    int64_t start;        /* cells there before */
    int64_t cell_items;   /* of CELLS_OF_ITEM cells; block-key items follow */
    int64_t first_block, blocks;
    int64_t keep_from;    /* the first cell whose raw key is kept */
    qsa_block_key_recipe recipe;
} append_call;

static int64_t page_of(const qsa_sequence *s, int64_t cell) {
    return s->pages[cell / s->cache->page_cells];
}

static void store_cell(const append_call *call, int64_t i) {
    const qsa_sequence *s = call->sequence;
    const qsa_cache *cache = s->cache;
    int64_t cell = call->start + i, in_page = cell % cache->page_cells, page = page_of(s, cell);
    int64_t dim = cache->shape.head_dim, groups = dim / 64, row = qsa_cache_row(cache), scale_row = qsa_cache_scale_row(cache);
    const float *from[] = {call->args->k, call->args->v};
    char *values = qsa_cache_plane(cache, call->args->layer, QSA_PLANE_KV) + page * cache->page.kv;
    char *scales = qsa_cache_plane(cache, call->args->layer, QSA_PLANE_SCALES) + page * cache->page.scales;
    for (int64_t h = 0; h < cache->shape.kv_heads; h++) {
        for (int v = 0; v < 2; v++) {
            int64_t slot = 2 * (in_page * cache->shape.kv_heads + h) + v;
            call->kernels->encode[cache->kv_type](from[v] + (i * cache->shape.kv_heads + h) * dim, groups, values + slot * row,
                                                  (uint16_t *)(void *)(scales + slot * scale_row));
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

/* The rotation of block b's first cell: kept from before, given, or that of its rank, made in `memory`. */
static const float *rotation_of(const append_call *call, int64_t b, float *memory) {
    const qsa_cache *cache = call->sequence->cache;
    int64_t dims = cache->recipe.rope.dims, cell = b * cache->shape.block;
    if (cell < call->start) {
        return call->sequence->layer[call->args->layer].turns + b % cache->turn_rows * dims;
    }
    if (call->args->rotation) {
        return call->args->rotation + (cell - call->start) * dims;
    }
    qsa_rope_turn(call->kernels->angles, &cache->recipe.rope, cache->frequency, cell, memory);
    return memory;
}

static void store_block_key(const append_call *call, int64_t b) {
    const qsa_sequence *s = call->sequence;
    const qsa_cache *cache = s->cache;
    int64_t block = cache->shape.block, dim = cache->shape.index_dim;
    const float *raw[QSA_BLOCK_MAX];
    float turn[QSA_INDEX_DIM_MAX], key[QSA_INDEX_DIM_MAX];
    for (int64_t i = 0; i < block; i++) {
        raw[i] = raw_key(call, b * block + i);
    }
    call->kernels->block_key(&call->recipe, raw, rotation_of(call, b, turn), key);
    int64_t page = page_of(s, b * block), in_page = b % cache->page_blocks, bytes = cache->key_type == QSA_F32 ? 4 : 2;
    char *keys = qsa_cache_plane(cache, call->args->layer, QSA_PLANE_KEYS) + page * cache->page.keys;
    if (cache->page.screen) {
        char *copies = qsa_cache_plane(cache, call->args->layer, QSA_PLANE_SCREEN) + page * cache->page.screen;
        qsa_screen_store(key, dim, copies + in_page / QSA_TILE * qsa_screen_tile_bytes(dim), in_page % QSA_TILE);
    }
    int64_t step = cache->key_type == QSA_F32 ? 1 : 2; /* channels that lie side by side in a tile */
    for (int64_t c = 0; c < dim; c += step) {
        int64_t offset = (in_page * dim + c) * bytes;
        char *at = keys + (cache->page.screen ? offset : qsa_tile_offset(cache->key_type, dim, in_page, c));
        if (cache->key_type == QSA_F32) {
            memcpy(at, key + c, sizeof *key);
        } else {
            const uint16_t pair[2] = {qsa_f32_to_bf16(key[c]), qsa_f32_to_bf16(key[c + 1])};
            memcpy(at, pair, sizeof pair);
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

/* Keeps the last `rollback` raw keys and the rotations of the blocks that begin there; those of earlier cells go. */
static void keep_item(void *arg, int64_t item) {
    const append_call *call = arg;
    const qsa_cache *cache = call->sequence->cache;
    const qsa_sequence_layer *layer = &call->sequence->layer[call->args->layer];
    int64_t dim = cache->shape.index_dim, dims = cache->recipe.rope.dims, cell = call->keep_from + item;
    memcpy(layer->ring + cell % cache->rollback * dim, raw_key(call, cell), (size_t)dim * sizeof(float));
    if (cell % cache->shape.block == 0) {
        int64_t b = cell / cache->shape.block;
        float memory[QSA_INDEX_DIM_MAX];
        memcpy(layer->turns + b % cache->turn_rows * dims, rotation_of(call, b, memory), (size_t)dims * sizeof(float));
    }
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
    if (a->rotation && !a->raw_index) {
        return qsa_fail(error, QSA_E_ARGUMENT, "rotation is given without raw_index");
    }
    if (a->cells > 0 && a->raw_index && !a->rotation) {
        int64_t last = length + a->cells - 1;
        return qsa_rope_check_position(&s->cache->recipe.rope, last - last % s->cache->shape.block, error);
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
    if ((status = qsa_pages_own(sequence, layer->length, end, error))) {
        return status;
    }
    int keyed = args->raw_index && layer->keyed == layer->length;
    append_call call = {
        .sequence = sequence,
        .args = args,
        .kernels = qsa_context_cell(cache->context),
        .start = layer->length,
        .cell_items = qsa_div_up(args->cells, CELLS_OF_ITEM),
        .first_block = layer->length / block,
        .blocks = keyed ? end / block - layer->length / block : 0,
        .keep_from = qsa_max(layer->length, end - cache->rollback),
        .recipe = cache->recipe,
    };
    call.recipe.norm_weight = cache->norms + args->layer * cache->shape.index_dim;
    qsa_run(cache->context, call.cell_items + call.blocks, append_item, &call);
    if (keyed) {
        qsa_run(cache->context, end - call.keep_from, keep_item, &call);
        layer->raw_low = qsa_max(layer->raw_low, end - cache->rollback);
        layer->keyed = end;
    }
    layer->length = end;
    pthread_mutex_lock(&cache->lock);
    cache->block_keys_built += call.blocks;
    pthread_mutex_unlock(&cache->lock);
    return qsa_ok(error);
}
