/* SPDX-License-Identifier: MIT */
/* The portable kernels of the layer: they define the bits. */
#include "layer/matrix.h"
#include "runtime/memory.h"
#include "runtime/numerics.h"

/* x: the token's place in its group, whose tokens lie `stride` apart from column to column. */
static void one_token(const float *w, const float *x, int64_t stride, int64_t columns, float sum[QSA_PANEL]) {
    float held[5][QSA_PANEL];
    for (int i = 0; i < 16; i++) {
        float part[QSA_PANEL] = {0};
        for (int64_t k = qsa_lane_columns(qsa_lane_of(i), columns); k > 0; k--, w += QSA_PANEL, x += stride) {
            for (int r = 0; r < QSA_PANEL; r++) {
                part[r] = qsa_fma(*x, w[r], part[r]);
            }
        }
        int level = 0;
        for (; i >> level & 1; level++) {
            for (int r = 0; r < QSA_PANEL; r++) {
                part[r] = held[level][r] + part[r];
            }
        }
        memcpy(held[level], part, sizeof part);
    }
    memcpy(sum, held[4], sizeof held[4]);
}

void qsa_project_f32_c(const qsa_project_job *job) {
    for (int64_t t = 0; t < job->tokens; t++) {
        int64_t first = t / QSA_GROUP * QSA_GROUP, group = qsa_min(QSA_GROUP, job->tokens - first);
        float sum[QSA_PANEL];
        one_token(job->panel, job->x + first * job->columns + (t - first), group, job->columns, sum);
        memcpy(job->out + t * job->out_stride, sum, (size_t)job->live * sizeof *sum);
    }
}

void qsa_turn_f32_c(const qsa_turn_job *job) {
    for (int64_t h = 0; h < job->heads; h++) {
        float *x = job->x + h * job->dim;
        qsa_rms_norm(x, job->weight, job->eps, job->dim, x);
        qsa_rope_apply(x, job->cos_sin, job->dims);
    }
}
