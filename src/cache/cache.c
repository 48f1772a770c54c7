/* SPDX-License-Identifier: MIT */
/* Caches: checking what is asked for, sizing the planes, accounting. */
#include "cache/cache.h"

#include "cache/codec.h"
#include "runtime/fpenv.h"
#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "runtime/status.h"
#include "score/screen.h"

enum { PAGE_CELLS = 256, PAGE_CELLS_MAX = 1 << 20, ROLLBACK = 64, PLANE_ALIGN = 64 };

char *qsa_cache_plane(const qsa_cache *cache, int64_t layer, int plane) {
    const qsa_page_layout *page = &cache->page;
    const int64_t before[] = {0, page->kv, page->kv + page->scales, page->kv + page->scales + page->keys};
    return cache->planes + layer * cache->layer_bytes + before[plane] * cache->pages;
}

static qsa_status check_numbers(const qsa_cache_options *o, qsa_error *error) {
    int64_t block = o->shape.block;
    const struct {
        const char *name;
        int64_t value, least, most;
    } fields[] = {
        {"layers", o->layers, 1, QSA_LAYERS_MAX},
        {"capacity", o->capacity, 1, INT32_MAX},
        {"page_cells", o->page_cells, QSA_TILE * block, PAGE_CELLS_MAX},
        {"rollback", o->rollback, block, QSA_ROLLBACK_MAX},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].value < fields[i].least || fields[i].value > fields[i].most) {
            return qsa_fail(error, QSA_E_ARGUMENT, "options.%s is %lld: expected %lld..%lld", fields[i].name,
                            (long long)fields[i].value, (long long)fields[i].least, (long long)fields[i].most);
        }
    }
    if (o->page_cells & (o->page_cells - 1)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "options.page_cells is %lld: expected a power of two", (long long)o->page_cells);
    }
    if (!o->index_norm) {
        return qsa_fail(error, QSA_E_ARGUMENT, "options.index_norm is NULL: expected [layers][index_dim] weights");
    }
    if (o->screen != 0 && o->screen != 1) {
        return qsa_fail(error, QSA_E_ARGUMENT, "options.screen is %d: expected 0 or 1", o->screen);
    }
    if (!(o->eps >= 0.0f) || o->eps == QSA_INFINITY) {
        return qsa_fail(error, QSA_E_ARGUMENT, "options.eps is %g: expected 0 or more", (double)o->eps);
    }
    return QSA_OK;
}

/* Options with their defaults filled. */
static qsa_status check_options(const qsa_cache_options *options, qsa_cache_options *o, qsa_error *error) {
    if (!options || options->size != sizeof *options) {
        return qsa_fail(error, QSA_E_ARGUMENT, "options is %s: expected a qsa_cache_options with its size set",
                        options ? "of another size" : "NULL");
    }
    *o = *options;
    qsa_status status = qsa_shape_check(&o->shape, error);
    if (status) {
        return status;
    }
    o->kv_type = o->kv_type ? o->kv_type : QSA_I8_G64;
    o->key_type = o->key_type ? o->key_type : QSA_BF16;
    o->page_cells = o->page_cells ? o->page_cells : PAGE_CELLS;
    o->rollback = o->rollback ? o->rollback : ROLLBACK;
    o->eps = o->eps == 0.0f ? 1e-6f : o->eps;
    if (!qsa_kv_element(o->kv_type)) {
        return qsa_fail(error, QSA_E_SHAPE, "options.kv_type is %s: expected f32, f16, bf16 or i8_g64", qsa_type_name(o->kv_type));
    }
    if (o->key_type != QSA_F32 && o->key_type != QSA_BF16) {
        return qsa_fail(error, QSA_E_SHAPE, "options.key_type is %s: index keys are f32 or bf16, never quantised with K/V",
                        qsa_type_name(o->key_type));
    }
    if ((status = check_numbers(o, error))) {
        return status;
    }
    qsa_rope rope;
    status = qsa_rope_resolve(&o->rope, o->shape.index_dim, &rope, error);
    o->rope = rope;
    return status;
}

static void size_cache(qsa_cache *c, const qsa_cache_options *o) {
    c->shape = o->shape;
    c->kv_type = o->kv_type;
    c->key_type = o->key_type;
    c->layers = o->layers;
    c->page_cells = o->page_cells;
    c->page_blocks = o->page_cells / o->shape.block;
    c->pages = qsa_div_up(o->capacity, o->page_cells);
    c->rollback = o->rollback;
    c->turn_rows = qsa_div_up(o->rollback, o->shape.block);
    c->page.kv = o->shape.kv_heads * o->page_cells * 2 * qsa_cache_row(c);
    c->page.scales = qsa_round_up(o->shape.kv_heads * o->page_cells * 2 * qsa_cache_scale_row(c), PLANE_ALIGN);
    c->page.keys = c->page_blocks * o->shape.index_dim * (o->key_type == QSA_F32 ? 4 : 2);
    c->page.screen = o->screen ? c->page_blocks / QSA_TILE * qsa_screen_tile_bytes(o->shape.index_dim) : 0;
    c->layer_bytes = qsa_mul(c->page.kv + c->page.scales + c->page.keys + c->page.screen, c->pages);
    int64_t all = qsa_mul(c->layer_bytes, c->layers);
    c->bytes = all < 0 ? 0 : (size_t)all;
    c->norm_bytes = (size_t)(c->layers * o->shape.index_dim) * sizeof(float);
    c->free_bytes = (size_t)c->pages * sizeof(int32_t);
    c->info_bytes = (size_t)c->pages * sizeof(qsa_page_info);
}

static void release_parts(qsa_cache *c) {
    const qsa_allocator *allocator = qsa_context_allocator(c->context);
    qsa_release(allocator, c->planes, c->bytes, PLANE_ALIGN);
    qsa_release(allocator, c->norms, c->norm_bytes, PLANE_ALIGN);
    qsa_release(allocator, c->free_pages, c->free_bytes, PLANE_ALIGN);
    qsa_release(allocator, c->page_info, c->info_bytes, PLANE_ALIGN);
    qsa_release(allocator, c, sizeof *c, PLANE_ALIGN);
}

qsa_status qsa_cache_create(qsa_context *context, const qsa_cache_options *options, qsa_cache **cache, qsa_error *error) {
    qsa_cache_options o;
    if (!context || !cache) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL", context ? "cache" : "context");
    }
    *cache = NULL;
    qsa_status status = check_options(options, &o, error);
    if (status) {
        return status;
    }
    const qsa_allocator *allocator = qsa_context_allocator(context);
    qsa_cache *c = qsa_allocate(allocator, sizeof *c, PLANE_ALIGN);
    if (!c) {
        return qsa_fail(error, QSA_E_MEMORY, "%zu bytes for a cache were refused", sizeof *c);
    }
    *c = (qsa_cache){.context = context};
    size_cache(c, &o);
    c->planes = c->bytes ? qsa_allocate(allocator, c->bytes, PLANE_ALIGN) : NULL;
    c->norms = qsa_allocate(allocator, c->norm_bytes, PLANE_ALIGN);
    c->free_pages = qsa_allocate(allocator, c->free_bytes, PLANE_ALIGN);
    c->page_info = qsa_allocate(allocator, c->info_bytes, PLANE_ALIGN);
    if (!c->planes || !c->norms || !c->free_pages || !c->page_info) {
        qsa_fail(error, QSA_E_MEMORY, "%zu bytes for %lld pages of %lld cells in %lld layers were refused", c->bytes,
                 (long long)c->pages, (long long)c->page_cells, (long long)c->layers);
        release_parts(c);
        return QSA_E_MEMORY;
    }
    memcpy(c->norms, o.index_norm, c->norm_bytes);
    c->recipe = (qsa_block_key_recipe){.block = o.shape.block,
                                       .dim = o.shape.index_dim,
                                       .norm_weight = c->norms,
                                       .eps = o.eps,
                                       .rope = o.rope,
                                       .type = o.key_type};
    uint64_t saved = qsa_fpenv_enter();
    qsa_rope_frequencies(&c->recipe.rope, c->frequency);
    qsa_fpenv_leave(saved);
    for (int64_t i = 0; i < c->pages; i++) {
        c->free_pages[i] = (int32_t)(c->pages - 1 - i); /* page 0 on top */
        c->page_info[i] = (qsa_page_info){.holders = 0, .copy_of = -1};
    }
    c->free_count = c->pages;
    pthread_mutex_init(&c->lock, NULL);
    *cache = c;
    return qsa_ok(error);
}

void qsa_cache_destroy(qsa_cache *cache) {
    if (cache) {
        pthread_mutex_destroy(&cache->lock);
        release_parts(cache);
    }
}

qsa_status qsa_cache_get_stats(const qsa_cache *cache, qsa_cache_stats *stats, qsa_error *error) {
    if (!cache || !stats || stats->size != sizeof *stats) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is %s", cache ? "stats" : "cache",
                        !cache || !stats ? "NULL" : "of another size: expected a qsa_cache_stats with its size set");
    }
    qsa_cache *c = (qsa_cache *)(uintptr_t)cache; /* only its lock is touched */
    pthread_mutex_lock(&c->lock);
    *stats = (qsa_cache_stats){
        .size = sizeof *stats,
        .pages = c->pages,
        .pages_free = c->free_count,
        .pages_shared = c->shared_count,
        .pages_copied = c->pages_copied,
        .page_cells = c->page_cells,
        .bytes_per_cell = qsa_bytes_per_cell(&c->shape, c->kv_type, c->key_type) + c->page.screen / c->page_cells,
        .bytes_held = (int64_t)(c->bytes + c->norm_bytes + c->free_bytes + c->info_bytes + sizeof *c) + c->sequence_bytes,
        .bytes_used = (c->pages - c->free_count) * (c->layer_bytes / c->pages) * c->layers,
        .sequences = c->sequences,
        .block_keys_built = c->block_keys_built,
    };
    pthread_mutex_unlock(&c->lock);
    return qsa_ok(error);
}
