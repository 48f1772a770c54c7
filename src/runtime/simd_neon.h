/* SPDX-License-Identifier: MIT */
/* runtime/simd.h for aarch64 Advanced SIMD: 4 lanes. */
#ifndef QSA_RUNTIME_SIMD_NEON_H
#define QSA_RUNTIME_SIMD_NEON_H

#include <arm_neon.h>

#define QSA_KERNEL
#define QSA_SIMD static inline __attribute__((always_inline, unused))
#define QSA_LEVEL(name) name##_neon

enum { V_LANES = 4 };
typedef float32x4_t vf;
typedef uint32x4_t vi;

QSA_SIMD vf v_load(const float *p) { return vld1q_f32(p); }
QSA_SIMD void v_store(float *p, vf x) { vst1q_f32(p, x); }
QSA_SIMD vi v_load_bits(const void *p) { return vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)p)); }
QSA_SIMD vf v_set(float x) { return vdupq_n_f32(x); }
QSA_SIMD vf v_add(vf a, vf b) { return vaddq_f32(a, b); }
QSA_SIMD vf v_sub(vf a, vf b) { return vsubq_f32(a, b); }
QSA_SIMD vf v_mul(vf a, vf b) { return vmulq_f32(a, b); }
QSA_SIMD vf v_div(vf a, vf b) { return vdivq_f32(a, b); }
QSA_SIMD vf v_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
QSA_SIMD float v_fma_one(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
QSA_SIMD vf v_where_less(vf a, vf b, vf then, vf otherwise) { return vbslq_f32(vcltq_f32(a, b), then, otherwise); }
QSA_SIMD vf v_relu(vf x) { return v_where_less(x, v_set(0.0f), v_set(0.0f), x); }
QSA_SIMD vf v_raise(vf top, vf x) { return v_where_less(top, x, x, top); }

QSA_SIMD vf v_load_n(const float *p, int64_t n) {
    float x[4] = {0};
    for (int64_t i = 0; i < n && i < 4; i++) {
        x[i] = p[i];
    }
    return vld1q_f32(x);
}
QSA_SIMD void v_store_n(float *p, vf v, int64_t n) {
    float x[4];
    vst1q_f32(x, v);
    for (int64_t i = 0; i < n && i < 4; i++) {
        p[i] = x[i];
    }
}

QSA_SIMD vf v_exponent(vf shifted) {
    return vreinterpretq_f32_u32(vshlq_n_u32(vaddq_u32(vreinterpretq_u32_f32(shifted), vdupq_n_u32(127)), 23));
}
QSA_SIMD vi v_magnitude(vf x) { return vandq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(0x7fffffffu)); }
QSA_SIMD vi v_max_magnitude(vi a, vi b) { return vmaxq_u32(a, b); }
QSA_SIMD vi v_zero_bits(void) { return vdupq_n_u32(0); }

QSA_SIMD vf v_low16(vi x) { return vreinterpretq_f32_u32(vshlq_n_u32(x, 16)); }
QSA_SIMD vf v_high16(vi x) { return vreinterpretq_f32_u32(vandq_u32(x, vdupq_n_u32(0xffff0000u))); }
QSA_SIMD vf v_from_bf16(const void *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16((const uint16_t *)p), 16)); }
QSA_SIMD vf v_from_f16(const void *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)p))); }

QSA_SIMD float v_fold(const vf *x) {
    vf four = vaddq_f32(vaddq_f32(x[0], x[2]), vaddq_f32(x[1], x[3]));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
QSA_SIMD float v_top(vf x) {
    float32x2_t t = vget_low_f32(x), u = vget_high_f32(x);
    t = vbsl_f32(vclt_f32(t, u), u, t);
    float a = vget_lane_f32(t, 0), b = vget_lane_f32(t, 1);
    return b > a ? b : a;
}
QSA_SIMD uint32_t v_top_magnitude(vi x) { return vmaxvq_u32(x); }

#endif
