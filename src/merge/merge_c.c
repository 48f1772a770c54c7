/* SPDX-License-Identifier: MIT */
/* The portable merge kernel, and the original's first version of it. */
#include "merge/merge.h"

#include "runtime/cpu.h"

static float largest_m(const qsa_merge_job *job) {
    float top = -QSA_INFINITY;
    for (int64_t j = 0; j < job->parts; j++) {
        const float *tail = job->partials + j * job->part_stride + job->head_dim;
        if (tail[1] != 0.0f) {
            top = tail[0] > top ? tail[0] : top;
        }
    }
    return top;
}

static float sigmoid(float x) {
    return 1.0f / (1.0f + qsa_exp(-x));
}

/* merge2 */
static void qsa_merge_f32_c(const qsa_merge_job *job) {
    int64_t dim = job->head_dim;
    float top = largest_m(job), sum = 0.0f;
    int live = 0;
    memset(job->out, 0, (size_t)dim * sizeof *job->out);
    for (int64_t j = 0; j < job->parts; j++) {
        const float *part = job->partials + j * job->part_stride;
        if (part[dim + 1] == 0.0f) {
            continue;
        }
        float e = qsa_exp(part[dim] - top);
        sum = qsa_fma(part[dim + 1], e, sum);
        for (int64_t d = 0; d < dim; d++) {
            job->out[d] = qsa_fma(part[d], e, job->out[d]);
        }
        live = 1;
    }
    float inverse = live ? 1.0f / sum : 0.0f;
    for (int64_t d = 0; d < dim; d++) {
        float o = job->out[d] * inverse;
        job->out[d] = job->gate ? o * sigmoid(job->gate[d]) : o;
    }
}

void qsa_merge_first(const qsa_merge_job *job) {
    int64_t dim = job->head_dim;
    float top = largest_m(job);
    for (int64_t d = 0; d < dim; d++) {
        float o = 0.0f, sum = 0.0f;
        int live = 0;
        for (int64_t j = 0; j < job->parts; j++) {
            const float *part = job->partials + j * job->part_stride;
            if (part[dim + 1] != 0.0f) {
                float e = qsa_exp(part[dim] - top);
                o = qsa_fma(part[d], e, o);
                sum = qsa_fma(part[dim + 1], e, sum);
                live = 1;
            }
        }
        o *= live ? 1.0f / sum : 0.0f;
        job->out[d] = job->gate ? o * sigmoid(job->gate[d]) : o;
    }
}

void qsa_merge_init(qsa_merge_kernels *kernels, qsa_cpu cpu) {
    *kernels = (qsa_merge_kernels){.run = qsa_merge_f32_c, .name = "qsa_merge_f32_c"};
#if defined(QSA_X86)
    if (cpu == QSA_CPU_AVX2) {
        qsa_merge_init_avx2(kernels);
    } else if (cpu == QSA_CPU_AVX512 || cpu == QSA_CPU_AMX) {
        qsa_merge_init_avx512(kernels);
    }
#elif defined(QSA_ARM)
    if (cpu == QSA_CPU_NEON) {
        qsa_merge_init_neon(kernels);
    }
#else
    (void)cpu;
#endif
}
