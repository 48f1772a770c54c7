/* SPDX-License-Identifier: MIT */
/* Taking, sharing, copying and giving back pages. */
#include "cache/pages.h"

#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "runtime/status.h"
#include "score/screen.h"

/* ------------------------------------------------------------------------------------------------ holders */

/* With the lock held. */
static int32_t take(qsa_cache *cache) {
    int32_t page = cache->free_pages[--cache->free_count];
    cache->page_info[page] = (qsa_page_info){.holders = 1, .copy_of = -1};
    return page;
}

static void release(qsa_cache *cache, int32_t page) {
    qsa_page_info *info = &cache->page_info[page];
    cache->shared_count -= info->holders == 2;
    if (--info->holders == 0) {
        cache->free_pages[cache->free_count++] = page;
    }
}

void qsa_pages_share(qsa_cache *cache, const int32_t *pages, int64_t count) {
    pthread_mutex_lock(&cache->lock);
    for (int64_t i = 0; i < count; i++) {
        cache->shared_count += cache->page_info[pages[i]].holders++ == 1;
    }
    pthread_mutex_unlock(&cache->lock);
}

void qsa_pages_drop(qsa_sequence *s, int64_t keep) {
    pthread_mutex_lock(&s->cache->lock);
    while (s->page_count > keep) {
        release(s->cache, s->pages[--s->page_count]);
    }
    pthread_mutex_unlock(&s->cache->lock);
}

/* ------------------------------------------------------------------------------------------------ copying */

typedef struct copy_call {
    const qsa_sequence *sequence;
    int64_t first; /* index in the page table of item 0 */
} copy_call;

/* Item i: what the sequence has of one layer in one page, from the page that it was a copy of. */
static void copy_item(void *arg, int64_t item) {
    const copy_call *call = arg;
    const qsa_sequence *s = call->sequence;
    const qsa_cache *cache = s->cache;
    int64_t l = item % cache->layers, i = call->first + item / cache->layers;
    int64_t to = s->pages[i], from = cache->page_info[to].copy_of;
    int64_t cells = qsa_min(cache->page_cells, s->layer[l].length - i * cache->page_cells);
    int64_t keyed = qsa_min(cache->page_cells, s->layer[l].keyed - i * cache->page_cells);
    if (from < 0 || cells <= 0) {
        return;
    }
    int64_t tiles = qsa_div_up(qsa_max(keyed, 0) / cache->shape.block, QSA_TILE), page_tiles = cache->page_blocks / QSA_TILE;
    int64_t rows = 2 * cache->shape.kv_heads * cells;
    const struct {
        int plane;
        int64_t page_bytes, bytes;
    } planes[] = {
        {QSA_PLANE_KV, cache->page.kv, rows * qsa_cache_row(cache)},
        {QSA_PLANE_SCALES, cache->page.scales, rows * qsa_cache_scale_row(cache)},
        {QSA_PLANE_KEYS, cache->page.keys, cache->page.keys / page_tiles * tiles},
        {QSA_PLANE_SCREEN, cache->page.screen, cache->page.screen / page_tiles * tiles},
    };
    for (size_t p = 0; p < sizeof planes / sizeof *planes; p++) {
        char *plane = qsa_cache_plane(cache, l, planes[p].plane);
        memcpy(plane + to * planes[p].page_bytes, plane + from * planes[p].page_bytes, (size_t)planes[p].bytes);
    }
}

/* The copies are made: their originals have one holder less. */
static void let_go(qsa_sequence *s, int64_t first, int64_t last, int64_t copies) {
    qsa_cache *cache = s->cache;
    pthread_mutex_lock(&cache->lock);
    for (int64_t i = first; i < last; i++) {
        int32_t *copy_of = &cache->page_info[s->pages[i]].copy_of;
        if (*copy_of >= 0) {
            release(cache, *copy_of);
            *copy_of = -1;
        }
    }
    cache->pages_copied += copies;
    pthread_mutex_unlock(&cache->lock);
}

qsa_status qsa_pages_own(qsa_sequence *s, int64_t start, int64_t end, qsa_error *error) {
    qsa_cache *cache = s->cache;
    int64_t first = start / cache->page_cells, last = qsa_div_up(end, cache->page_cells), had = qsa_min(s->page_count, last);
    int64_t copies = 0, more = qsa_max(last - s->page_count, 0);
    pthread_mutex_lock(&cache->lock);
    for (int64_t i = first; i < had; i++) {
        copies += cache->page_info[s->pages[i]].holders > 1;
    }
    int64_t free_count = cache->free_count, wanted = more + copies;
    if (wanted <= free_count) {
        for (int64_t i = first; i < had; i++) {
            int32_t shared = s->pages[i];
            if (cache->page_info[shared].holders > 1) {
                s->pages[i] = take(cache);
                cache->page_info[s->pages[i]].copy_of = shared; /* which stays held until it is copied */
            }
        }
        for (int64_t i = 0; i < more; i++) {
            s->pages[s->page_count++] = take(cache);
        }
    }
    pthread_mutex_unlock(&cache->lock);
    if (wanted > free_count) {
        return qsa_fail(error, QSA_E_CAPACITY,
                        "%lld cells need %lld more pages of %lld cells, %lld of them to copy shared ones: %lld of %lld are free",
                        (long long)end, (long long)wanted, (long long)cache->page_cells, (long long)copies,
                        (long long)free_count, (long long)cache->pages);
    }
    if (copies) {
        copy_call call = {s, first};
        qsa_run(cache->context, (had - first) * cache->layers, copy_item, &call);
        let_go(s, first, had, copies);
    }
    return QSA_OK;
}
