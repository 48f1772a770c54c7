/* SPDX-License-Identifier: MIT */
/*
 * The cache: pages of cells for all layers, and sequences that hold them.
 *
 * A page is page_cells cells of every layer. In one layer's plane, page p starts at p * page bytes: K and V are
 * [page_cells][kv_heads]{K, V}[head_dim], their scales [page_cells][kv_heads]{K, V}[groups], keys lie in tiles of 16 blocks. So
 * all that a row reads of a block is one piece of 4 KB (the model's shape, int8) and one of 128 bytes; scattered pieces of 1 KB
 * come at half the rate.
 *
 * With screening the keys are rows, for few of them are read, and the int8 copies are tiles (score/screen.h).
 */
#ifndef QSA_CACHE_CACHE_H
#define QSA_CACHE_CACHE_H

#include "cache/block_key.h"
#include "runtime/context.h"
#include "runtime/numerics.h"

#include <pthread.h>

enum { QSA_LAYERS_MAX = 1024, QSA_ROLLBACK_MAX = 65536 };

/* Bytes of one page in each plane of one layer; all multiples of 64. */
typedef struct qsa_page_layout {
    int64_t kv, scales, keys;
    int64_t screen; /* 0: no screening */
} qsa_page_layout;

typedef struct qsa_page_info {
    int32_t holders; /* sequences; 0: free */
    int32_t copy_of; /* the page whose cells are being copied to this one, or -1 */
} qsa_page_info;

struct qsa_cache {
    qsa_context *context;
    qsa_shape shape;
    qsa_type kv_type, key_type;
    int64_t layers, page_cells, page_blocks, pages, rollback, turn_rows;
    qsa_page_layout page;
    qsa_block_key_recipe recipe; /* norm_weight: of layer 0; the others follow, index_dim apart */
    double frequency[QSA_INDEX_DIM_MAX / 2]; /* of recipe.rope */

    char *planes;          /* [layers]{kv, scales, keys, screen}, each of all pages */
    int64_t layer_bytes;
    float *norms;          /* [layers][index_dim] */
    size_t bytes, norm_bytes, free_bytes, info_bytes;

    pthread_mutex_t lock;     /* all below, but for the copy_of of pages with one holder */
    int32_t *free_pages;      /* a stack */
    int64_t free_count, shared_count;
    qsa_page_info *page_info; /* [pages] */
    int64_t pages_copied;
    int64_t sequences;
    int64_t sequence_bytes;
    int64_t block_keys_built;
};

typedef struct qsa_sequence_layer {
    int64_t length; /* cells */
    int64_t keyed;  /* leading cells that came with raw index keys */
    int64_t raw_low; /* raw keys of cells raw_low .. keyed - 1 are in the ring */
    float *ring;    /* [rollback][index_dim], cell c at c % rollback */
    float *turns;   /* [turn_rows][rope.dims] {cos, sin} of the first cell of block b at b % turn_rows, where its raw key is kept */
} qsa_sequence_layer;

struct qsa_sequence {
    qsa_cache *cache;
    int32_t *pages; /* [cache->pages] */
    int64_t page_count;
    size_t bytes;
    qsa_sequence_layer layer[]; /* [layers] */
};

/* Whether a layer can be cut to `length` cells (qsa_truncate, qsa_sequence_fork, qsa_sequence_save). */
qsa_status qsa_sequence_check_cut(const qsa_sequence *sequence, int64_t length, qsa_error *error);

/* Start of a plane of a layer. */
enum { QSA_PLANE_KV, QSA_PLANE_SCALES, QSA_PLANE_KEYS, QSA_PLANE_SCREEN };
char *qsa_cache_plane(const qsa_cache *cache, int64_t layer, int plane);

/* Bytes of one head's K, or V, of one cell, and of their scales. */
static inline int64_t qsa_cache_row(const qsa_cache *cache) {
    return cache->shape.head_dim * qsa_kv_element(cache->kv_type);
}
static inline int64_t qsa_cache_scale_row(const qsa_cache *cache) {
    return cache->kv_type == QSA_I8_G64 ? cache->shape.head_dim / 64 * 2 : 0;
}

#endif
