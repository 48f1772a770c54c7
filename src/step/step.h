/* SPDX-License-Identifier: MIT */
/*
 * One decode step. Rows run in waves of up to QSA_WAVE rows, each with a slice of the workspace:
 *
 *     scores [blocks] f32 | ids [width] int32 | prepared q | partials [parts][q_heads][head_dim + 2] f32
 *
 * and behind these, where the cache screens: upper ends [blocks] f32 | candidates [blocks / 2] int32 | largest lower ends |
 * prepared index query. The lower ends lie in `scores`.
 *
 * How many rows fit in a wave, how many threads there are, and what else is in the batch never changes a row's bits: its
 * chunks, parts and folds follow from its own number of ids.
 */
#ifndef QSA_STEP_STEP_H
#define QSA_STEP_STEP_H

#include "cache/cache.h"
#include "score/screen.h"
#include "step/context.h"

enum { QSA_WAVE = 16, QSA_PARTS = 17 };

/* Blocks of a group of which the largest lower end is kept. */
enum { QSA_SCREEN_GROUP = 8 };

/* Chunks that a part folds: the caller's wish, or as many as keep a row within QSA_PARTS parts. */
int64_t qsa_fold(int64_t n_ids, int64_t chunk, int64_t fold);

/* Offsets in bytes of one row's slice; each a multiple of 64. */
typedef struct qsa_slice {
    size_t ids, prepared, partials, high, list, lows, query, end;
} qsa_slice;

/* Cells that a plan allows to be read behind a given list besides those that a row selects. */
enum { QSA_SEEN_MORE = 64 };

/* n: visible cells; n_ids: the most ids that the row may read; put_together: ids that the row's list has with the cells behind it,
 * or 0. */
qsa_slice qsa_slice_of(const qsa_cache *cache, qsa_contract contract, int64_t n, int64_t n_ids, int64_t put_together, int64_t chunk,
                       int64_t fold);

typedef struct qsa_row {
    const qsa_item *item;
    int64_t t;              /* row of the item */
    int64_t n;              /* visible cells */
    int64_t n_ids, parts, in_part;
    int scored;             /* its scores decide */
    int screened;           /* `scores` are those of `list` only */
    int64_t listed;         /* -1: given up */
    const int32_t *ids;     /* NULL: 0..n_ids-1 */
    const int32_t *given;   /* the item's list for it, or NULL: `ids` itself, or the beginning of them */
    int64_t given_ids;
    float *scores;
    int32_t *selected;      /* where its own ids go */
    char *prepared;
    float *partials;
    float *high;            /* these four where the cache screens */
    int32_t *list;
    float *lows;
    void *query_memory;
    int64_t low_count;
    qsa_screen_query query;
    qsa_kv kv;
    qsa_keys keys;
} qsa_row;

typedef struct qsa_wave {
    const qsa_cache *cache;
    const qsa_decode_args *args;
    int64_t chunk;
    qsa_type out_type;
    int64_t rows;
    qsa_row row[QSA_WAVE];
} qsa_wave;

/* The four stages of a wave. */
void qsa_wave_score(qsa_wave *wave);
void qsa_wave_select(qsa_wave *wave);
void qsa_wave_attend(qsa_wave *wave);
void qsa_wave_merge(qsa_wave *wave);

#endif
