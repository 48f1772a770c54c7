/* SPDX-License-Identifier: MIT */
/* The cells of a layer on their way into a snapshot, or out of one. */
#include "cache/snapshot.h"

#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "runtime/status.h"
#include "score/screen.h"

enum { PART = 1 << 30 };

/* ------------------------------------------------------------------------------------------------ bytes */

static qsa_status read_all(qsa_snapshot *s, char *to, int64_t bytes, qsa_error *error) {
    while (bytes > 0) {
        int64_t most = qsa_min(bytes, PART), got = s->read(s->user, to, most);
        if (got < 0 || got > most) {
            return qsa_fail(error, QSA_E_IO, "read gave up at byte %lld", (long long)s->at);
        }
        if (got == 0) {
            return qsa_fail(error, QSA_E_FORMAT, "the snapshot is truncated at byte %lld", (long long)s->at);
        }
        s->sum = qsa_crc_add(&s->crc, s->sum, to, got);
        s->at += got;
        to += got;
        bytes -= got;
    }
    return QSA_OK;
}

static qsa_status write_all(qsa_snapshot *s, const char *from, int64_t bytes, qsa_error *error) {
    while (bytes > 0) {
        int64_t part = qsa_min(bytes, PART);
        s->sum = qsa_crc_add(&s->crc, s->sum, from, part);
        if (s->write(s->user, from, part)) {
            return qsa_fail(error, QSA_E_IO, "write gave up at byte %lld", (long long)s->at);
        }
        s->at += part;
        from += part;
        bytes -= part;
    }
    return QSA_OK;
}

qsa_status qsa_snapshot_move(qsa_snapshot *snapshot, void *memory, int64_t bytes, qsa_error *error) {
    return snapshot->write ? write_all(snapshot, memory, bytes, error) : read_all(snapshot, memory, bytes, error);
}

/* ------------------------------------------------------------------------------------------------ K and V */

/* One row of each cell and head of a plane, K's or V's, as [kv_heads][length][row]: as many cells at a time as the buffer holds. */
static qsa_status move_rows(qsa_snapshot *snapshot, const qsa_sequence *s, int64_t layer, int plane, int v, int64_t page_bytes,
                            int64_t row, qsa_error *error) {
    const qsa_cache *cache = s->cache;
    int64_t length = snapshot->header.layer[layer].length, heads = cache->shape.kv_heads, cell_bytes = 2 * heads * row;
    int64_t most = (int64_t)sizeof snapshot->rows / row;
    char *memory = qsa_cache_plane(cache, layer, plane), *buffer = (char *)snapshot->rows;
    qsa_status status = QSA_OK;
    for (int64_t h = 0; h < heads; h++) {
        for (int64_t first = 0, count; !status && first < length; first += count) {
            int64_t in_page = first % cache->page_cells;
            count = qsa_min(most, qsa_min(cache->page_cells - in_page, length - first));
            char *at = memory + s->pages[first / cache->page_cells] * page_bytes + in_page * cell_bytes + (2 * h + v) * row;
            for (int64_t i = 0; snapshot->write && i < count; i++) {
                memcpy(buffer + i * row, at + i * cell_bytes, (size_t)row);
            }
            status = qsa_snapshot_move(snapshot, buffer, count * row, error);
            for (int64_t i = 0; snapshot->read && !status && i < count; i++) {
                memcpy(at + i * cell_bytes, buffer + i * row, (size_t)row);
            }
        }
    }
    return status;
}

/* K, V, the scales of K, those of V. */
static qsa_status move_kv(qsa_snapshot *snapshot, const qsa_sequence *s, int64_t layer, qsa_error *error) {
    const qsa_cache *cache = s->cache;
    int64_t row = qsa_cache_row(cache), scales = qsa_cache_scale_row(cache);
    qsa_status status = QSA_OK;
    for (int v = 0; !status && v < 2; v++) {
        status = move_rows(snapshot, s, layer, QSA_PLANE_KV, v, cache->page.kv, row, error);
    }
    for (int v = 0; !status && scales && v < 2; v++) {
        status = move_rows(snapshot, s, layer, QSA_PLANE_SCALES, v, cache->page.scales, scales, error);
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------ block keys */

/* `count` keys from block b on, all of one tile, between their page and rows. */
static void transpose_keys(const qsa_cache *cache, char *page, int64_t b, int64_t count, char *rows, int to_page) {
    int64_t dim = cache->shape.index_dim;
    size_t bytes = cache->key_type == QSA_F32 ? 4 : 2;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t c = 0; c < dim; c++, rows += bytes) {
            char *at = page + qsa_tile_offset(cache->key_type, dim, b + i, c);
            memcpy(to_page ? at : rows, to_page ? rows : at, bytes);
        }
    }
}

/* The int8 copies of keys that lie in rows. */
static void screen_keys(const qsa_cache *cache, const char *rows, int64_t count, char *tile) {
    int64_t dim = cache->shape.index_dim;
    float key[QSA_INDEX_DIM_MAX];
    for (int64_t i = 0; i < count; i++) {
        for (int64_t c = 0; c < dim; c++) {
            uint16_t half;
            if (cache->key_type == QSA_F32) {
                memcpy(key + c, rows + (i * dim + c) * 4, sizeof *key);
            } else {
                memcpy(&half, rows + (i * dim + c) * 2, sizeof half);
                key[c] = qsa_from_bits((uint32_t)half << 16);
            }
        }
        qsa_screen_store(key, dim, tile, i);
    }
}

/* [keyed / block][index_dim], a tile's blocks at a time. */
static qsa_status move_keys(qsa_snapshot *snapshot, const qsa_sequence *s, int64_t layer, qsa_error *error) {
    const qsa_cache *cache = s->cache;
    int64_t blocks = snapshot->header.layer[layer].keyed / cache->shape.block, dim = cache->shape.index_dim;
    int64_t bytes = cache->page.keys / cache->page_blocks;
    char *keys = qsa_cache_plane(cache, layer, QSA_PLANE_KEYS), *copies = qsa_cache_plane(cache, layer, QSA_PLANE_SCREEN);
    qsa_status status = QSA_OK;
    for (int64_t b = 0; !status && b < blocks; b += QSA_TILE) {
        int64_t count = qsa_min(QSA_TILE, blocks - b), page = s->pages[b / cache->page_blocks], in_page = b % cache->page_blocks;
        char *at = keys + page * cache->page.keys, *buffer = (char *)snapshot->rows;
        if (cache->page.screen) {
            char *rows = at + in_page * bytes;
            status = qsa_snapshot_move(snapshot, rows, count * bytes, error);
            if (!status && snapshot->read) {
                screen_keys(cache, rows, count, copies + page * cache->page.screen + in_page / QSA_TILE * qsa_screen_tile_bytes(dim));
            }
            continue;
        }
        if (snapshot->write) {
            transpose_keys(cache, at, in_page, count, buffer, 0);
        }
        status = qsa_snapshot_move(snapshot, buffer, count * bytes, error);
        if (!status && snapshot->read) {
            transpose_keys(cache, at, in_page, count, buffer, 1);
        }
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------ what rollback needs */

/* The raw keys of cells raw_low .. keyed - 1, then the rotations of the blocks that begin there. A sequence that keeps fewer, as
 * its own raw_low says, passes over the first of them. */
static qsa_status move_kept(qsa_snapshot *snapshot, const qsa_sequence *s, int64_t layer, qsa_error *error) {
    const qsa_cache *cache = s->cache;
    const qsa_snapshot_layer *extent = &snapshot->header.layer[layer];
    const qsa_sequence_layer *kept = &s->layer[layer];
    int64_t block = cache->shape.block, dim = cache->shape.index_dim, dims = cache->recipe.rope.dims;
    int64_t low = snapshot->read ? kept->raw_low : extent->raw_low;
    qsa_status status = QSA_OK;
    for (int64_t cell = extent->raw_low; !status && cell < extent->keyed; cell++) {
        float *at = cell < low ? snapshot->rows : kept->ring + cell % cache->rollback * dim;
        status = qsa_snapshot_move(snapshot, at, dim * 4, error);
    }
    for (int64_t b = qsa_div_up(extent->raw_low, block); !status && b * block < extent->keyed; b++) {
        float *at = b * block < low ? snapshot->rows : kept->turns + b % cache->turn_rows * dims;
        status = qsa_snapshot_move(snapshot, at, dims * 4, error);
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------ sections */

/* A section's checksum is that of the header's and the layer's number, too: sections cannot change places. */
static void begin(qsa_snapshot *snapshot, int64_t layer) {
    uint32_t sum = qsa_crc_add(&snapshot->crc, 0, &snapshot->header_sum, 4);
    snapshot->sum = qsa_crc_add(&snapshot->crc, sum, &layer, 8);
}

static qsa_status end(qsa_snapshot *snapshot, int64_t layer, qsa_error *error) {
    uint32_t sum = snapshot->sum, written = sum;
    qsa_status status = qsa_snapshot_move(snapshot, &written, QSA_SNAPSHOT_SUM, error);
    if (!status && written != sum) {
        return qsa_fail(error, QSA_E_FORMAT, "the checksum of layer %lld, before byte %lld, is %08lx: its bytes give %08lx",
                        (long long)layer, (long long)snapshot->at, (unsigned long)written, (unsigned long)sum);
    }
    return status;
}

qsa_status qsa_snapshot_move_section(qsa_snapshot *snapshot, const qsa_sequence *s, int64_t layer, qsa_error *error) {
    begin(snapshot, layer);
    qsa_status status = move_kv(snapshot, s, layer, error);
    status = status ? status : move_keys(snapshot, s, layer, error);
    status = status ? status : move_kept(snapshot, s, layer, error);
    return status ? status : end(snapshot, layer, error);
}

qsa_status qsa_snapshot_skip_section(qsa_snapshot *snapshot, int64_t layer, qsa_error *error) {
    int64_t left = qsa_snapshot_section_bytes(&snapshot->header, layer) - QSA_SNAPSHOT_SUM;
    qsa_status status = QSA_OK;
    begin(snapshot, layer);
    while (!status && left > 0) {
        int64_t part = qsa_min(left, (int64_t)sizeof snapshot->rows);
        status = qsa_snapshot_move(snapshot, snapshot->rows, part, error);
        left -= part;
    }
    return status ? status : end(snapshot, layer, error);
}
