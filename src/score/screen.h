/* SPDX-License-Identifier: MIT */
/*
 * Screening: an interval for every block score from an int8 copy of the block keys, half the bytes of bf16. The blocks
 * whose interval ends below the k-th best of all lower ends cannot be selected; only the others are scored from the
 * keys themselves, so that the ids are those of full scoring. docs/numerics.md, "Screening", derives the interval.
 *
 * The copy of key b is key ~ step * integers, with error >= ||key - step * integers||. 16 blocks lie together as a
 * tile:
 *
 *     bytes [dim / 4][16 blocks][4 channels], integer + 128 | step f32 [16] | error f32 [16]
 *
 * For a query (row), the interval of block b is
 *
 *     score +- (key_error * error[b] + key_step * step[b] + QSA_SCREEN_LEAST)
 *     score  = (sum over h of head_step[h] * max(0, H_h . integers)) * (step[b] * scale)
 *
 * in f32, in just this order and without fused operations, but for the two fma that make the half width. The products
 * of integers are exact. So the ends have the same bits in every kernel. They are never NaN; a key that has no copy has
 * the interval -infinity..infinity.
 */
#ifndef QSA_SCORE_SCREEN_H
#define QSA_SCORE_SCREEN_H

#include "score/score.h"

enum { QSA_SCREEN_TAIL = 2 * QSA_TILE * 4 }; /* bytes of steps and errors */

/* An absolute part of the half width, for what is rounded below 2^-126. */
#define QSA_SCREEN_LEAST 7.88860905e-31f /* 2^-100 */

static inline int64_t qsa_screen_tile_bytes(int64_t dim) {
    return dim * QSA_TILE + QSA_SCREEN_TAIL;
}

/* Writes the copy of a key [dim] into its lane of a tile. */
void qsa_screen_store(const float *key, int64_t dim, char *tile, int64_t lane);

/* A row's index query, prepared. */
typedef struct qsa_screen_query {
    int64_t heads, dim;
    float scale; /* index_scale */
    float key_error, key_step;
    const float *head_step;   /* [heads] */
    const int32_t *head_bias; /* [heads] -128 * sum of H: what the 128 of the bytes adds */
    const int8_t *digits;     /* [heads][2][dim]: H = 256 * digits[0] + digits[1] */
    const int16_t *pairs;     /* [heads][dim]: H of channels 0, 2, 1, 3, then 4, 6, 5, 7, ... */
} qsa_screen_query;

/* Bytes behind `memory` that a prepared query takes. */
int64_t qsa_screen_query_bytes(int64_t heads, int64_t dim);

/* iq: [heads][dim]. 0 where no interval can be given: a value that is no number, or sizes far from 1. memory: 64-byte
 * aligned. */
int qsa_screen_prepare(const float *iq, int64_t heads, int64_t dim, float scale, void *memory, qsa_screen_query *query);

/* The intervals of blocks 0..count-1 of contiguous tiles. Whole tiles may be read and written. */
typedef struct qsa_screen_job {
    const char *tiles;
    const char *next; /* what will be screened after this, to be fetched meanwhile; or NULL */
    int64_t count;
    const qsa_screen_query *query;
    float *low, *high;
} qsa_screen_job;

typedef void qsa_screen_fn(const qsa_screen_job *job);

typedef struct qsa_screen_kernels {
    qsa_screen_fn *run;
    const char *name;
} qsa_screen_kernels;

/* The C kernel first, then upwards what the level has. */
void qsa_screen_init(qsa_screen_kernels *kernels, qsa_cpu cpu);
void qsa_screen_init_avx2(qsa_screen_kernels *kernels);
void qsa_screen_init_avx512(qsa_screen_kernels *kernels);
void qsa_screen_init_amx(qsa_screen_kernels *kernels);
void qsa_screen_init_neon(qsa_screen_kernels *kernels);

/* The kernels of a level; AMX leaves shapes that do not suit it to AVX-512. */
void qsa_screen_i8_avx2(const qsa_screen_job *job);
void qsa_screen_i8_avx512(const qsa_screen_job *job);
void qsa_screen_i8_neon(const qsa_screen_job *job);

/* Blocks [first, last) of a paged copy, first a multiple of QSA_TILE; low, high: the row's block 0. */
typedef struct qsa_screen_range {
    const char *tiles; /* page p at p * page_stride */
    const int32_t *pages;
    int64_t page_stride, page_blocks;
    int64_t first, last;
    const qsa_screen_query *query;
    float *low, *high;
} qsa_screen_range;
void qsa_screen_run(const qsa_screen_kernels *kernels, const qsa_screen_range *range);

#endif
