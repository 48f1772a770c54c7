/* SPDX-License-Identifier: MIT */
/* The last step of all screening kernels, in a vocabulary of runtime/simd.h: from the sums over heads of a tile to
 * intervals. */
#ifndef QSA_SCORE_SCREEN_SIMD_H
#define QSA_SCORE_SCREEN_SIMD_H

#include "score/screen.h"

enum { TILE_VECTORS = QSA_TILE / V_LANES };

QSA_SIMD void write_intervals(const char *tile, const qsa_screen_query *query, const vf *sum, float *low, float *high) {
    QSA_UNROLL for (int i = 0; i < TILE_VECTORS; i++) {
        const float *tail = (const float *)(const void *)(tile + query->dim * QSA_TILE) + i * V_LANES;
        vf step = v_load(tail), error = v_load(tail + QSA_TILE);
        vf score = v_mul(sum[i], v_mul(step, v_set(query->scale)));
        vf half = v_fma(v_set(query->key_step), step, v_set(QSA_SCREEN_LEAST));
        half = v_fma(v_set(query->key_error), error, half);
        v_store(low + i * V_LANES, v_sub(score, half));
        v_store(high + i * V_LANES, v_add(score, half));
    }
}

#endif
