/* SPDX-License-Identifier: MIT */
/*
 * The merge stage: partials, gate -> gated output, in the form that the next matrix product reads ("prepared").
 *
 * One query head: M = max m_j over parts with l_j != 0; e_j = exp(m_j - M); L = chain of fma(l_j, e_j, L) and
 * o_d = chain of fma(acc_jd, e_j, o_d) over parts in order, from zero; o_d * (1 / L); with a gate times 1 / (1 + exp(-gate_d)).
 */
#ifndef QSA_MERGE_MERGE_H
#define QSA_MERGE_MERGE_H

#include "runtime/context.h"
#include "runtime/numerics.h"

typedef struct qsa_merge_job {
    const float *partials; /* part 0 of this head: {acc[head_dim], m, l} */
    int64_t part_stride;   /* floats to the head's next part */
    int64_t parts;
    int64_t head_dim;
    const float *gate;     /* [head_dim] or NULL */
    float *out;            /* [head_dim] */
} qsa_merge_job;

typedef void qsa_merge_fn(const qsa_merge_job *job);

typedef struct qsa_merge_kernels {
    qsa_merge_fn *run;
    const char *name;
} qsa_merge_kernels;

/* The C kernel first, then upwards what the level has. */
void qsa_merge_init(qsa_merge_kernels *kernels, qsa_cpu cpu);
void qsa_merge_init_avx2(qsa_merge_kernels *kernels);
void qsa_merge_init_avx512(qsa_merge_kernels *kernels);
void qsa_merge_init_neon(qsa_merge_kernels *kernels);

/* The original's first version: a channel at a time, the factors made again for each. Same bits as the portable kernel,
 * which is its successor, merge2: the factors once, then all channels a part at a time. */
void qsa_merge_first(const qsa_merge_job *job);

/* Bytes of `values` (a multiple of 32) in an output format; 0 for a type that is none. */
int64_t qsa_prepared_size(qsa_type type, int64_t values);

/* Writes values in an output format. */
void qsa_prepare_output(qsa_type type, const float *x, int64_t values, void *out);

/* Merges one head and writes it at its place in a row of `out`. job->out is set here. */
void qsa_merge_head(const qsa_merge_kernels *kernels, qsa_merge_job *job, qsa_type type, int64_t head, void *row);

#endif
