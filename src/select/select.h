/* SPDX-License-Identifier: MIT */
/*
 * The select stage: block scores -> ascending cell ids.
 *
 * Entries are the complete blocks, weight `block` cells each, and the tail, weight n % block, which ranks above all. Whole
 * entries are taken in order of score (down) and cell (up) until `target` cells are reached; the last one may be cut to its
 * first cells. The two contracts differ in the target alone.
 */
#ifndef QSA_SELECT_SELECT_H
#define QSA_SELECT_SELECT_H

#include "runtime/context.h"
#include "runtime/numerics.h"

typedef struct qsa_select_job {
    const float *scores; /* [n / block]; the first n / block only are read */
    int64_t n;           /* visible cells */
    int64_t block;
    int64_t target;      /* cells to take: 1 .. n - 1 */
    int32_t *ids;        /* [target] */
} qsa_select_job;

typedef void qsa_select_fn(const qsa_select_job *job);

/*
 * Candidates: of blocks known by an interval of their score, those that can be among the k best. `low` holds lower ends of
 * distinct blocks, so that at least k scores reach the k-th largest of them; whatever ends below that is out.
 */
typedef struct qsa_candidates_job {
    float *low;         /* [lows]: any k or more of the lower ends, such as the largest of each of some groups; overwritten */
    int64_t lows;       /* a multiple of QSA_SELECT_WORD */
    const float *high;  /* [blocks] upper ends; no NaN here or in low */
    int64_t blocks;
    int64_t k;          /* 1.. */
    int32_t *list;      /* [most + 2 * QSA_SELECT_WORD] out: blocks, ascending */
    int64_t most;
} qsa_candidates_job;

enum { QSA_SELECT_WORD = 64 };

/* How many are listed; -1 where they are more than `most`. */
typedef int64_t qsa_candidates_fn(const qsa_candidates_job *job);

/* Largest of the scores g, g + groups, ... for each g < groups; -infinity where there is none. groups: a multiple of 128. */
typedef void qsa_maxima_fn(const float *scores, int64_t count, int64_t groups, float *maxima);

typedef struct qsa_select_kernels {
    qsa_select_fn *run;
    qsa_candidates_fn *candidates;
    qsa_maxima_fn *maxima;
    const char *name, *candidates_name, *maxima_name;
} qsa_select_kernels;

/* The C kernel first, then upwards what the level has. */
void qsa_select_init(qsa_select_kernels *kernels, qsa_cpu cpu);
void qsa_select_init_avx2(qsa_select_kernels *kernels);
void qsa_select_init_avx512(qsa_select_kernels *kernels);
void qsa_select_init_neon(qsa_select_kernels *kernels);

/* The portable kernel, which others call for rows that do not suit them. */
void qsa_select_f32_c(const qsa_select_job *job);

/* One row, all cases: writes qsa_width() ids and returns their count. Needs no scores where all cells are taken. */
int64_t qsa_select_row(const qsa_select_kernels *kernels, const qsa_shape *shape, qsa_contract contract, const float *scores,
                       int64_t n, int32_t *ids);

/* The same from the scores of some blocks, ascending, among which the best are. */
int64_t qsa_select_listed(const qsa_select_kernels *kernels, const qsa_shape *shape, qsa_contract contract, const float *scores,
                          const int32_t *list, int64_t count, int64_t n, int32_t *ids);

/* Whether the width is below n, that is, whether scores decide. */
static inline int qsa_select_needed(const qsa_shape *shape, qsa_contract contract, int64_t n) {
    return contract != QSA_DENSE && qsa_width(shape, contract, n) < n;
}

/* An unsigned key in the order of the score: NaN 0, below all numbers; -0 as +0. */
static inline uint32_t qsa_select_key(float score) {
    uint32_t bits = qsa_bits(score);
    if (score != score) {
        return 0;
    }
    if (!(bits << 1)) {
        return 0x80000000u;
    }
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

#endif
