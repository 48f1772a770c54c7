/* SPDX-License-Identifier: MIT */
/* How much workspace a step takes, and how a row's slice of it is cut. */
#include "runtime/memory.h"
#include "runtime/status.h"
#include "step/step.h"

enum { ALIGN = 64 };

int64_t qsa_fold(int64_t n_ids, int64_t chunk, int64_t fold) {
    return fold ? fold : qsa_max(1, qsa_div_up(qsa_div_up(n_ids, chunk), QSA_PARTS));
}

static size_t padded(int64_t bytes) {
    return (size_t)qsa_round_up(bytes, ALIGN);
}

/* The longest list that a row is granted room for: what it selects, or was given and takes up again. */
static int64_t listed_width(const qsa_shape *s, qsa_contract contract, int64_t n) {
    return qsa_width(s, contract == QSA_DENSE ? QSA_BLOCKS : contract, n) + QSA_SEEN_MORE;
}

qsa_slice qsa_slice_of(const qsa_cache *cache, qsa_contract contract, int64_t n, int64_t n_ids, int64_t put_together, int64_t chunk,
                       int64_t fold) {
    const qsa_shape *s = &cache->shape;
    int64_t scored = contract == QSA_DENSE ? 0 : n / s->block, listed = listed_width(s, contract, n);
    int64_t parts = fold ? qsa_div_up(n_ids, chunk * fold) : qsa_min(QSA_PARTS, qsa_div_up(n_ids, chunk));
    qsa_slice slice;
    slice.ids = padded((scored + QSA_TILE) * 4);
    slice.prepared = slice.ids + padded(qsa_max(listed, put_together) * 4);
    slice.partials = slice.prepared + qsa_prepared_bytes(s->q_heads / s->kv_heads, s->head_dim) * (size_t)s->kv_heads;
    slice.partials = padded((int64_t)slice.partials);
    slice.high = slice.partials + padded(parts * s->q_heads * (s->head_dim + 2) * 4);
    slice.list = slice.lows = slice.query = slice.end = slice.high;
    if (cache->page.screen && scored > 0) {
        slice.list = slice.high + padded((scored + QSA_TILE) * 4);
        slice.lows = slice.list + padded((scored / 2 + 2 * QSA_SELECT_WORD) * 4);
        slice.query = slice.lows + padded(qsa_round_up(scored, QSA_SCORE_ITEM) / QSA_SCREEN_GROUP * 4);
        slice.end = slice.query + padded(qsa_screen_query_bytes(s->index_heads, s->index_dim));
    }
    return slice;
}

/* The widest row is not the longest: BLOCKS grants up to block - 1 cells more to lengths that leave a tail. */
static qsa_slice widest_slice(const qsa_cache *cache, qsa_contract contract, int64_t cells, int64_t chunk, int64_t fold) {
    qsa_slice widest = {.end = 0};
    for (int64_t n = cells; n >= 0 && n > cells - cache->shape.block; n--) {
        qsa_slice slice = qsa_slice_of(cache, contract, n, qsa_max(cells, listed_width(&cache->shape, contract, n)), 0, chunk, fold);
        widest = slice.end > widest.end ? slice : widest;
    }
    return widest;
}

qsa_status qsa_plan(const qsa_cache *cache, qsa_contract contract, int64_t rows, int64_t cells, int64_t chunk, int64_t fold,
                    size_t *workspace_bytes, qsa_error *error) {
    if (!cache || !workspace_bytes) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL", cache ? "workspace_bytes" : "cache");
    }
    if (contract < QSA_BLOCKS || contract > QSA_DENSE) {
        return qsa_fail(error, QSA_E_ARGUMENT, "contract is %d: expected 0..2", (int)contract);
    }
    if (rows < 0) {
        return qsa_fail(error, QSA_E_ARGUMENT, "rows is %lld: expected 0 or more", (long long)rows);
    }
    if (cells < 0 || cells > INT32_MAX) {
        return qsa_fail(error, QSA_E_ARGUMENT, "cells is %lld: expected 0..2147483647", (long long)cells);
    }
    if (chunk != 0 && chunk != 32 && chunk != 64) {
        return qsa_fail(error, QSA_E_ARGUMENT, "chunk is %lld: expected 32 or 64", (long long)chunk);
    }
    if (fold < 0 || fold > INT32_MAX) {
        return qsa_fail(error, QSA_E_ARGUMENT, "fold is %lld: expected 1 or more", (long long)fold);
    }
    size_t row = widest_slice(cache, contract, cells, chunk ? chunk : QSA_CHUNK_MAX, fold).end;
    *workspace_bytes = row * (size_t)qsa_min(rows, QSA_WAVE);
    return qsa_ok(error);
}
