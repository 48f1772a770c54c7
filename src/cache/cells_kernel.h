/* SPDX-License-Identifier: MIT */
/* The text of the appending kernels, for any vocabulary of runtime/simd.h, which comes before; each instruction set includes it
 * once. A lane is a channel, or a pair of them. */
#include "cache/cells.h"
#include "runtime/norm_simd.h"

enum { GROUP = QSA_GROUP_CHANNELS };

/* ------------------------------------------------------------------------------------------------ codecs */

QSA_KERNEL static void QSA_LEVEL(qsa_encode_f16)(const float *x, int64_t groups, void *encoded, uint16_t *scales) {
    (void)scales;
    for (int64_t c = 0; c < groups * GROUP; c += V_LANES) {
        v_store_f16((uint16_t *)encoded + c, v_load(x + c));
    }
}

QSA_KERNEL static void QSA_LEVEL(qsa_encode_bf16)(const float *x, int64_t groups, void *encoded, uint16_t *scales) {
    (void)scales;
    for (int64_t c = 0; c < groups * GROUP; c += V_LANES) {
        v_store_bf16((uint16_t *)encoded + c, v_load(x + c));
    }
}

QSA_SIMD void encode_group(const float *x, int8_t *encoded, uint16_t *scale) {
    vf top = v_set(0.0f), most = v_set(127.0f), least = v_set(-127.0f), outside = v_set(-128.0f), magic = v_set(12582912.0f);
    for (int c = 0; c < GROUP; c += V_LANES) {
        top = v_raise(top, v_abs(v_load(x + c)));
    }
    *scale = qsa_group_scale(v_top(top));
    vf step = v_set(qsa_f16_to_f32(*scale));
    for (int c = 0; c < GROUP; c += V_LANES) {
        vf value = v_div(v_load(x + c), step);
        value = v_where_less(most, value, most, value);
        value = v_where_less(value, least, least, value);
        value = v_where_less(outside, value, value, v_set(0.0f)); /* NaN */
        v_store_low8(encoded + c, v_add(value, magic));           /* qsa_rint, as an integer */
    }
}

QSA_KERNEL static void QSA_LEVEL(qsa_encode_i8)(const float *x, int64_t groups, void *encoded, uint16_t *scales) {
    for (int64_t g = 0; g < groups; g++) {
        encode_group(x + g * GROUP, (int8_t *)encoded + g * GROUP, scales + g);
    }
}

QSA_KERNEL static void QSA_LEVEL(qsa_decode_f16)(const void *encoded, const uint16_t *scales, int64_t groups, float *x) {
    (void)scales;
    for (int64_t c = 0; c < groups * GROUP; c += V_LANES) {
        v_store(x + c, v_from_f16((const uint16_t *)encoded + c));
    }
}

QSA_KERNEL static void QSA_LEVEL(qsa_decode_bf16)(const void *encoded, const uint16_t *scales, int64_t groups, float *x) {
    (void)scales;
    for (int64_t c = 0; c < groups * GROUP; c += V_LANES) {
        v_store(x + c, v_from_bf16((const uint16_t *)encoded + c));
    }
}

QSA_KERNEL static void QSA_LEVEL(qsa_decode_i8)(const void *encoded, const uint16_t *scales, int64_t groups, float *x) {
    for (int64_t g = 0; g < groups; g++) {
        vf step = v_set(qsa_f16_to_f32(scales[g]));
        for (int64_t c = g * GROUP; c < (g + 1) * GROUP; c += V_LANES) {
            v_store(x + c, v_mul(v_from_i8((const int8_t *)encoded + c), step));
        }
    }
}

/* ------------------------------------------------------------------------------------------------ block keys */

QSA_KERNEL static void QSA_LEVEL(qsa_block_key_f32)(const qsa_block_key_recipe *recipe, const float *const *raw, const float *turn,
                                                    float *key) {
    vf share = v_set(1.0f / (float)recipe->block);
    int narrow = recipe->type == QSA_BF16;
    for (int64_t c = 0; c < recipe->dim; c += V_LANES) {
        vf sum = v_load(raw[0] + c);
        for (int64_t i = 1; i < recipe->block; i++) {
            sum = v_add(sum, v_load(raw[i] + c));
        }
        sum = v_mul(sum, share);
        v_store(key + c, narrow ? v_round_bf16(sum) : sum);
    }
    v_rms_norm(key, recipe->norm_weight, recipe->eps, recipe->dim);
    v_rope_apply(key, turn, recipe->rope.dims);
    for (int64_t c = 0; narrow && c < recipe->dim; c += V_LANES) {
        v_store(key + c, v_round_bf16(v_load(key + c)));
    }
}

/* ------------------------------------------------------------------------------------------------ angles */

QSA_SIMD vd upper_half(vd x) {
    vd scaled = x * 134217729.0;
    return scaled - (scaled - x);
}

/* qsa_sincos() of V_DOUBLES angles, operation for operation; bit 0 and 1 of turns[i] are the quadrant. */
QSA_SIMD void sincos_of(vd x, double sine_out[V_DOUBLES], double cosine_out[V_DOUBLES], double turns[V_DOUBLES]) {
    const double half_pi_high = 1.5707963267948966, half_pi_low = 6.123233995736766e-17;
    vd shifted = x * 0.6366197723675814 + 6755399441055744.0, k = shifted - 6755399441055744.0;
    vd product = k * half_pi_high;
    vd k1 = upper_half(k), k2 = k - k1;
    double scaled = half_pi_high * 134217729.0, p1 = scaled - (scaled - half_pi_high), p2 = half_pi_high - p1;
    vd rest = ((k1 * p1 - product) + k1 * p2 + k2 * p1) + k2 * p2;
    vd r = ((x - product) - rest) - k * half_pi_low, r2 = r * r;
    vd sine = r2 / (17.0 * 16.0), cosine = r2 / (18.0 * 17.0);
    for (int i = 15; i >= 3; i -= 2) {
        sine = r2 / (double)(i * (i - 1)) * (1.0 - sine);
    }
    for (int i = 16; i >= 2; i -= 2) {
        cosine = r2 / (double)(i * (i - 1)) * (1.0 - cosine);
    }
    vd_store(sine_out, r * (1.0 - sine));
    vd_store(cosine_out, 1.0 - cosine);
    vd_store(turns, shifted);
}

QSA_KERNEL static void QSA_LEVEL(qsa_angles_f64)(const double *frequency, int64_t pairs, int64_t position, float *cos_sin) {
    int64_t first = 0;
    for (; first + V_DOUBLES <= pairs; first += V_DOUBLES) {
        double sine[V_DOUBLES], cosine[V_DOUBLES], turns[V_DOUBLES];
        sincos_of((double)position * vd_load(frequency + first), sine, cosine, turns);
        for (int i = 0; i < V_DOUBLES; i++) {
            float s = (float)sine[i], c = (float)cosine[i], *at = cos_sin + 2 * (first + i);
            uint64_t quadrant;
            memcpy(&quadrant, turns + i, sizeof quadrant);
            at[0] = quadrant & 1 ? s : c;
            at[1] = quadrant & 1 ? c : s;
            at[0] = (quadrant + 1) & 2 ? -at[0] : at[0];
            at[1] = quadrant & 2 ? -at[1] : at[1];
        }
    }
    qsa_angles_f64_c(frequency + first, pairs - first, position, cos_sin + 2 * first);
}

void QSA_LEVEL(qsa_cell_init)(qsa_cell_kernels *kernels) {
    kernels->encode[QSA_F16] = QSA_LEVEL(qsa_encode_f16);
    kernels->encode[QSA_BF16] = QSA_LEVEL(qsa_encode_bf16);
    kernels->encode[QSA_I8_G64] = QSA_LEVEL(qsa_encode_i8);
    kernels->decode[QSA_F16] = QSA_LEVEL(qsa_decode_f16);
    kernels->decode[QSA_BF16] = QSA_LEVEL(qsa_decode_bf16);
    kernels->decode[QSA_I8_G64] = QSA_LEVEL(qsa_decode_i8);
    kernels->block_key = QSA_LEVEL(qsa_block_key_f32);
    kernels->angles = QSA_LEVEL(qsa_angles_f64);
    kernels->encode_name[QSA_F16] = QSA_NAME("qsa_encode_f16");
    kernels->encode_name[QSA_BF16] = QSA_NAME("qsa_encode_bf16");
    kernels->encode_name[QSA_I8_G64] = QSA_NAME("qsa_encode_i8");
    kernels->decode_name[QSA_F16] = QSA_NAME("qsa_decode_f16");
    kernels->decode_name[QSA_BF16] = QSA_NAME("qsa_decode_bf16");
    kernels->decode_name[QSA_I8_G64] = QSA_NAME("qsa_decode_i8");
    kernels->block_key_name = QSA_NAME("qsa_block_key_f32");
    kernels->angles_name = QSA_NAME("qsa_angles_f64");
}
