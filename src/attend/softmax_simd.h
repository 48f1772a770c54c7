/* SPDX-License-Identifier: MIT */
/* The softmax of one head's chunk, how a chunk joins a part, and the weights of p.v for int8: text for any vocabulary of runtime/simd.h. */
#ifndef QSA_ATTEND_SOFTMAX_SIMD_H
#define QSA_ATTEND_SOFTMAX_SIMD_H

#include "attend/attend.h"
#include "runtime/memory.h"

/* s: [64]; its first `count` become p = exp(s - m), the rest up to the next multiple of 16 become 0. */
QSA_SIMD void qsa_softmax(float *s, int64_t count, float *m, float *l) {
    vf top = v_set(-QSA_INFINITY), lane[16 / V_LANES];
    int64_t whole = count / V_LANES * V_LANES, rest = count - whole;
    for (int64_t j = 0; j < whole; j += V_LANES) {
        top = v_raise(top, v_load(s + j));
    }
    float largest = v_top(top);
    for (int64_t j = whole; j < count; j++) {
        largest = s[j] > largest ? s[j] : largest;
    }
    largest += 0.0f;
    vf shift = v_set(largest);
    for (int i = 0; i < 16 / V_LANES; i++) {
        lane[i] = v_set(0.0f);
    }
    for (int64_t j = 0; j < whole; j += V_LANES) {
        vf p = v_exp(v_sub(v_load(s + j), shift));
        v_store(s + j, p);
        lane[j % 16 / V_LANES] = v_add(lane[j % 16 / V_LANES], p);
    }
    if (rest) {
        float last[V_LANES];
        v_store(last, v_exp(v_sub(v_load_n(s + whole, rest), shift)));
        for (int64_t i = rest; i < V_LANES; i++) {
            last[i] = 0.0f;
        }
        v_store(s + whole, v_load(last));
        lane[whole % 16 / V_LANES] = v_add(lane[whole % 16 / V_LANES], v_load(last));
    }
    for (int64_t j = whole + (rest ? V_LANES : 0); j % 16; j += V_LANES) {
        v_store(s + j, v_set(0.0f));
    }
    *m = largest;
    *l = v_fold(lane);
}

/* A chunk (m, l) joins a part: the factors of what is there (old) and of what comes (new). */
QSA_SIMD void qsa_join_chunk(float *part_m, float *part_l, float m, float l, float *old, float *new) {
    float top = m > *part_m ? m : *part_m, shifted[V_LANES] = {0};
    shifted[0] = *part_m - top;
    shifted[1] = m - top;
    v_store(shifted, v_exp(v_load(shifted)));
    *old = shifted[0];
    *new = shifted[1];
    *part_l = v_fma_one(l, *new, *part_l * *old);
    *part_m = top;
}

/* qsa_softmax, and the chunk joins the head's part or, first, starts it. part: {acc[dim], m, l}. */
QSA_SIMD void qsa_softmax_head(float *s, int64_t count, int64_t dim, int first, float *part, float *old, float *new) {
    float m, l;
    qsa_softmax(s, count, &m, &l);
    *old = 0.0f;
    *new = 1.0f;
    if (first) {
        part[dim] = m;
        part[dim + 1] = l;
    } else {
        qsa_join_chunk(part + dim, part + dim + 1, m, l, old, new);
    }
}

/* p as weights, [64]: 0 where it is NaN, or behind the last cell. */
QSA_SIMD void qsa_softmax_weights(float *p, int64_t count) {
    vf zero = v_set(0.0f);
    for (int64_t j = 0; j < QSA_CHUNK_MAX; j += V_LANES) {
        vf x = v_load_n(p + j, qsa_max(0, qsa_min(V_LANES, count - j)));
        v_store(p + j, v_where_less(zero, x, x, zero));
    }
}

/* qsa_attend_ratios() of each group, from scales [group][cell], in place. Behind `count` cells r is 0. */
QSA_SIMD void qsa_turn_ratios(int64_t count, int64_t groups, float scale[][QSA_CHUNK_MAX], float step[QSA_GROUPS_MAX]) {
    for (int64_t g = 0; g < groups; g++) {
        vf x[QSA_CHUNK_MAX / V_LANES];
        vi largest = v_zero_bits();
        for (int64_t i = 0; i < QSA_CHUNK_MAX / V_LANES; i++) {
            x[i] = v_load_n(scale[g] + i * V_LANES, qsa_max(0, qsa_min(V_LANES, count - i * V_LANES)));
            largest = v_max_magnitude(largest, v_magnitude(x[i]));
        }
        qsa_grid grid = qsa_grid_of(v_top_magnitude(largest));
        step[g] = grid.step;
        for (int64_t i = 0; i < QSA_CHUNK_MAX / V_LANES; i++) {
            v_store(scale[g] + i * V_LANES, grid.inverse > 0.0f ? v_mul(x[i], v_set(grid.inverse)) : v_set(0.0f));
        }
    }
}

#endif
