/* SPDX-License-Identifier: MIT */
/*
 * The text of the merge kernels, for any vocabulary of runtime/simd.h; each instruction set includes it once. A lane is a
 * channel. Parts go in batches: the factors of a batch first, a vector at a time, then its channels, whose sums stay in
 * registers.
 */
#include "merge/merge.h"
#include "runtime/memory.h"

enum { BATCH = 64, HELD = 4 };

typedef struct batch {
    const float *part[BATCH]; /* live ones */
    float factor[BATCH];
    int64_t count;
} batch;

QSA_SIMD float largest_m(const qsa_merge_job *job) {
    float top = -QSA_INFINITY;
    for (int64_t j = 0; j < job->parts; j++) {
        const float *end = job->partials + j * job->part_stride + job->head_dim;
        top = end[1] != 0.0f && end[0] > top ? end[0] : top;
    }
    return top;
}

/* Parts [first, last) that are live, their factors exp(m - top), and l times these added to sum. */
QSA_SIMD void take_parts(const qsa_merge_job *job, int64_t first, int64_t last, float top, batch *b, float *sum) {
    int64_t dim = job->head_dim;
    b->count = 0;
    for (int64_t j = first; j < last; j++) {
        const float *part = job->partials + j * job->part_stride;
        if (part[dim + 1] != 0.0f) {
            b->part[b->count] = part;
            b->factor[b->count++] = part[dim];
        }
    }
    for (int64_t i = b->count; i % V_LANES; i++) {
        b->factor[i] = top;
    }
    for (int64_t i = 0; i < b->count; i += V_LANES) {
        v_store(b->factor + i, v_exp(v_sub(v_load(b->factor + i), v_set(top))));
    }
    for (int64_t i = 0; i < b->count; i++) {
        *sum = v_fma_one(b->part[i][dim + 1], b->factor[i], *sum);
    }
}

QSA_SIMD void add_parts(const batch *b, int64_t dim, float *out) {
    for (int64_t d = 0; d < dim; d += HELD * V_LANES) {
        vf o[HELD];
        QSA_UNROLL for (int i = 0; i < HELD; i++) {
            o[i] = v_load(out + d + i * V_LANES);
        }
        for (int64_t j = 0; j < b->count; j++) {
            vf factor = v_set(b->factor[j]);
            QSA_UNROLL for (int i = 0; i < HELD; i++) {
                o[i] = v_fma(v_load(b->part[j] + d + i * V_LANES), factor, o[i]);
            }
        }
        QSA_UNROLL for (int i = 0; i < HELD; i++) {
            v_store(out + d + i * V_LANES, o[i]);
        }
    }
}

QSA_KERNEL static void QSA_LEVEL(qsa_merge_f32)(const qsa_merge_job *job) {
    int64_t dim = job->head_dim;
    float top = largest_m(job), sum = 0.0f;
    int live = 0;
    memset(job->out, 0, (size_t)dim * sizeof *job->out);
    for (int64_t j = 0; j < job->parts; j += BATCH) {
        batch b;
        take_parts(job, j, qsa_min(j + BATCH, job->parts), top, &b, &sum);
        add_parts(&b, dim, job->out);
        live |= b.count > 0;
    }
    vf inverse = v_set(live ? 1.0f / sum : 0.0f), one = v_set(1.0f), minus = v_set(-1.0f);
    for (int64_t d = 0; d < dim; d += V_LANES) {
        vf o = v_mul(v_load(job->out + d), inverse);
        if (job->gate) {
            o = v_mul(o, v_div(one, v_add(one, v_exp(v_mul(v_load(job->gate + d), minus)))));
        }
        v_store(job->out + d, o);
    }
}

void QSA_LEVEL(qsa_merge_init)(qsa_merge_kernels *kernels) {
    *kernels = (qsa_merge_kernels){.run = QSA_LEVEL(qsa_merge_f32), .name = QSA_NAME("qsa_merge_f32")};
}
