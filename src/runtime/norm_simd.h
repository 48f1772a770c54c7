/* SPDX-License-Identifier: MIT */
/* Norm and rotation of one head, for any vocabulary of runtime/simd.h, which comes before: the bits of qsa_rms_norm() and
 * qsa_rope_apply(). */
#ifndef QSA_RUNTIME_NORM_SIMD_H
#define QSA_RUNTIME_NORM_SIMD_H

/* The 16 partial sums of qsa_dot16(x, x, n) in vectors; n is a multiple of 16. */
QSA_SIMD float v_squares(const float *x, int64_t n) {
    vf sum[16 / V_LANES];
    QSA_UNROLL for (int v = 0; v < 16 / V_LANES; v++) {
        sum[v] = v_set(0.0f);
    }
    for (int64_t i = 0; i < n; i += 16) {
        QSA_UNROLL for (int v = 0; v < 16 / V_LANES; v++) {
            vf part = v_load(x + i + v * V_LANES);
            sum[v] = v_fma(part, part, sum[v]);
        }
    }
    return v_fold(sum);
}

/* In place; n is a multiple of 16. */
QSA_SIMD void v_rms_norm(float *x, const float *weight, float eps, int64_t n) {
    double mean = (double)v_squares(x, n) / (double)n + (double)eps;
    vf inverse = v_set((float)(1.0 / qsa_sqrt(mean)));
    for (int64_t i = 0; i < n; i += V_LANES) {
        vf factor = v_add(v_set(1.0f), v_load(weight + i));
        v_store(x + i, v_mul(v_mul(v_load(x + i), inverse), factor));
    }
}

QSA_SIMD void v_rope_apply(float *x, const float *cos_sin, int64_t dims) {
    int64_t half = dims / 2, i = 0;
    for (; i + V_LANES <= half; i += V_LANES) {
        vf c, s, a = v_load(x + i), b = v_load(x + i + half);
        v_unzip(cos_sin + 2 * i, &c, &s);
        v_store(x + i, v_sub(v_mul(a, c), v_mul(b, s)));
        v_store(x + i + half, v_add(v_mul(b, c), v_mul(a, s)));
    }
    for (; i < half; i++) {
        float c = cos_sin[2 * i], s = cos_sin[2 * i + 1], a = x[i], b = x[i + half];
        x[i] = a * c - b * s;
        x[i + half] = b * c + a * s;
    }
}

#endif
