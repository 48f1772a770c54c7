/* SPDX-License-Identifier: MIT */
/*
 * The score stage: index queries x block keys -> block scores.
 *
 *     score[b] = scale * (relu(d_0) + relu(d_1) + ...)      d_h = iq_h . key_b, heads added in order
 *
 * The written order of d_h: one chain of fused multiply-adds over channels 0, 1, 2, ... from zero. A kernel gives each block
 * a lane, so nothing is added across lanes, and any number of lanes gives the same bits. relu(x) is 0 where 0 > x, else x:
 * a NaN stays.
 */
#ifndef QSA_SCORE_SCORE_H
#define QSA_SCORE_SCORE_H

#include "runtime/context.h"

enum { QSA_TILE = 16, QSA_SCORE_ROWS = 8 };

/* Blocks 0..max(count)-1, contiguous from `keys`, for up to QSA_SCORE_ROWS rows. A kernel writes scores[r][0..count[r]-1]
 * and nothing else. TILES: keys is the start of a tile, and whole tiles may be read; ROWS: nothing behind the last block is. */
typedef struct qsa_score_job {
    const void *keys;
    const void *next;                 /* what will be scored after this, to be fetched meanwhile; or NULL. TILES only */
    int64_t block_stride;             /* bytes, ROWS only */
    int64_t heads, dim;
    float scale;
    int64_t rows;                     /* 1..QSA_SCORE_ROWS */
    const float *iq[QSA_SCORE_ROWS];  /* each [heads][dim] */
    float *scores[QSA_SCORE_ROWS];
    int64_t count[QSA_SCORE_ROWS];
} qsa_score_job;

typedef void qsa_score_fn(const qsa_score_job *job);

/* Keys wherever they lie, for one row: scores[i] is that of key[i]. The same bits as in a qsa_score_job. */
typedef struct qsa_score_list {
    const char *const *key; /* [count] pointers to [dim] elements */
    int64_t count, heads, dim;
    float scale;
    const float *iq;        /* [heads][dim] */
    float *scores;          /* [count] */
} qsa_score_list;

typedef void qsa_score_list_fn(const qsa_score_list *list);

/* [layout][0: F32, 1: BF16] */
typedef struct qsa_score_kernels {
    qsa_score_fn *run[2][2];
    qsa_score_list_fn *list[2];
    const char *name[2][2], *list_name[2];
} qsa_score_kernels;

/* The C kernels first, then upwards what the level has. */
void qsa_score_init(qsa_score_kernels *kernels, qsa_cpu cpu);
void qsa_score_init_avx2(qsa_score_kernels *kernels);
void qsa_score_init_avx512(qsa_score_kernels *kernels);
void qsa_score_init_neon(qsa_score_kernels *kernels);

/* What runs a range of blocks of a paged view: rows r with count[r] visible blocks, range [first, last) of blocks, first a
 * multiple of QSA_TILE. scores[r] is the row's block 0. */
typedef struct qsa_score_range {
    const qsa_keys *keys; /* strides filled */
    int64_t heads, dim;
    float scale;
    int64_t rows;
    const float *iq[QSA_SCORE_ROWS];
    float *scores[QSA_SCORE_ROWS];
    int64_t blocks[QSA_SCORE_ROWS];
    int64_t first, last;
} qsa_score_range;
void qsa_score_run(const qsa_score_kernels *kernels, const qsa_score_range *range);

/* Blocks in one work item: 256 KB of bf16 keys of 128 channels; a quarter where a row has few, so that many threads find one.
 * No score depends on it. */
enum { QSA_SCORE_ITEM = 1024 };
static inline int64_t qsa_score_item(int64_t blocks) {
    return blocks < 16 * QSA_SCORE_ITEM ? QSA_SCORE_ITEM / 4 : QSA_SCORE_ITEM;
}

/* Where block b of a view of rows is. */
const char *qsa_keys_block(const qsa_keys *keys, int64_t b);

/* Fills the strides that a caller left zero and checks the view. */
qsa_status qsa_keys_resolve(const qsa_shape *shape, const qsa_keys *keys, qsa_keys *out, qsa_error *error);

/* Byte offset of channel c of block b within its tile's page, and the size of an element: where a tile holds what. */
static inline int64_t qsa_tile_offset(qsa_type type, int64_t dim, int64_t b, int64_t c) {
    int64_t tile = b / QSA_TILE, lane = b % QSA_TILE;
    if (type == QSA_BF16) {
        return ((tile * (dim / 2) + c / 2) * QSA_TILE + lane) * 4 + (c % 2) * 2;
    }
    return ((tile * dim + c) * QSA_TILE + lane) * 4;
}

#endif
