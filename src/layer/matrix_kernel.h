/* SPDX-License-Identifier: MIT */
/* The text of the layer's kernels: projection in register tiles of up to 6 tokens by 2 or 4 vectors of outputs; norm
 * and rotation. runtime/simd.h comes before. No include guard: each instruction set includes it once. */
#include "layer/matrix.h"
#include "runtime/memory.h"
#include "runtime/norm_simd.h"

enum { TILE_VECTORS = V_LANES == 4 ? 4 : 2, TILE_ROWS = TILE_VECTORS * V_LANES };

/* `tokens` is a constant wherever this is inlined, so that the sums stay in registers. w: the tile's first row in its
 * panel; out: [tokens][stride]. */
QSA_SIMD void tile(const float *w, const float *x, int64_t columns, const int tokens, float *out, int64_t stride,
                   int64_t live) {
    vf held[5][QSA_GROUP][TILE_VECTORS];
    for (int i = 0; i < 16; i++) {
        vf sum[QSA_GROUP][TILE_VECTORS];
        QSA_UNROLL for (int t = 0; t < tokens; t++) {
            QSA_UNROLL for (int v = 0; v < TILE_VECTORS; v++) {
                sum[t][v] = v_set(0.0f);
            }
        }
        for (int64_t k = qsa_lane_columns(qsa_lane_of(i), columns); k > 0; k--, w += QSA_PANEL, x += tokens) {
            vf weight[TILE_VECTORS];
            QSA_UNROLL for (int v = 0; v < TILE_VECTORS; v++) {
                weight[v] = v_load(w + v * V_LANES);
            }
            QSA_UNROLL for (int t = 0; t < tokens; t++) {
                vf value = v_set(x[t]);
                QSA_UNROLL for (int v = 0; v < TILE_VECTORS; v++) {
                    sum[t][v] = v_fma(value, weight[v], sum[t][v]);
                }
            }
        }
        int level = 0;
        for (; i >> level & 1; level++) {
            QSA_UNROLL for (int t = 0; t < tokens; t++) {
                QSA_UNROLL for (int v = 0; v < TILE_VECTORS; v++) {
                    sum[t][v] = v_add(held[level][t][v], sum[t][v]);
                }
            }
        }
        QSA_UNROLL for (int t = 0; t < tokens; t++) {
            QSA_UNROLL for (int v = 0; v < TILE_VECTORS; v++) {
                held[level][t][v] = sum[t][v];
            }
        }
    }
    for (int t = 0; t < tokens; t++) {
        for (int v = 0; v < TILE_VECTORS; v++) {
            int64_t left = qsa_max(live - v * V_LANES, 0);
            if (left >= V_LANES) {
                v_store(out + t * stride + v * V_LANES, held[4][t][v]);
            } else if (left > 0) {
                v_store_n(out + t * stride + v * V_LANES, held[4][t][v], left);
            }
        }
    }
}

QSA_KERNEL void QSA_LEVEL(qsa_project_f32)(const qsa_project_job *job) {
    for (int64_t first = 0; first < job->tokens; first += QSA_GROUP) {
        const float *x = job->x + first * job->columns;
        float *out = job->out + first * job->out_stride;
        for (int64_t row = 0; row < job->live; row += TILE_ROWS) {
            const float *w = job->panel + row;
            int64_t live = job->live - row, n = job->columns, stride = job->out_stride;
            switch (qsa_min(QSA_GROUP, job->tokens - first)) {
            case 1: tile(w, x, n, 1, out + row, stride, live); break;
            case 2: tile(w, x, n, 2, out + row, stride, live); break;
            case 3: tile(w, x, n, 3, out + row, stride, live); break;
            case 4: tile(w, x, n, 4, out + row, stride, live); break;
            case 5: tile(w, x, n, 5, out + row, stride, live); break;
            default: tile(w, x, n, 6, out + row, stride, live); break;
            }
        }
    }
}

QSA_KERNEL void QSA_LEVEL(qsa_turn_f32)(const qsa_turn_job *job) {
    for (int64_t h = 0; h < job->heads; h++) {
        float *x = job->x + h * job->dim;
        v_rms_norm(x, job->weight, job->eps, job->dim);
        v_rope_apply(x, job->cos_sin, job->dims);
    }
}
