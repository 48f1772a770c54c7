/* SPDX-License-Identifier: MIT */
/* runtime/simd.h for aarch64 Advanced SIMD: 4 lanes. */
#ifndef QSA_RUNTIME_SIMD_NEON_H
#define QSA_RUNTIME_SIMD_NEON_H

#include <arm_neon.h>

#define QSA_KERNEL
#define QSA_SIMD static inline __attribute__((always_inline, unused))
#define QSA_LEVEL(name) name##_neon
#define QSA_NAME(name) name "_neon"

enum { V_LANES = 4 };
typedef float32x4_t vf;
typedef uint32x4_t vi;

enum { V_DOUBLES = 2 };
typedef float64x2_t vd;
QSA_SIMD vd vd_load(const double *p) { return vld1q_f64(p); }
QSA_SIMD void vd_store(double *p, vd x) { vst1q_f64(p, x); }

QSA_SIMD vf v_load(const float *p) { return vld1q_f32(p); }
QSA_SIMD void v_store(float *p, vf x) { vst1q_f32(p, x); }
QSA_SIMD vi v_load_bits(const void *p) { return vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)p)); }
QSA_SIMD void v_store_bits(void *p, vi x) { vst1q_u8((uint8_t *)p, vreinterpretq_u8_u32(x)); }
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
QSA_SIMD vf v_abs(vf x) { return vreinterpretq_f32_u32(v_magnitude(x)); }
QSA_SIMD vi v_max_magnitude(vi a, vi b) { return vmaxq_u32(a, b); }
QSA_SIMD vi v_zero_bits(void) { return vdupq_n_u32(0); }

QSA_SIMD vf v_low16(vi x) { return vreinterpretq_f32_u32(vshlq_n_u32(x, 16)); }
QSA_SIMD vf v_high16(vi x) { return vreinterpretq_f32_u32(vandq_u32(x, vdupq_n_u32(0xffff0000u))); }
QSA_SIMD vf v_from_bf16(const void *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16((const uint16_t *)p), 16)); }
QSA_SIMD vf v_from_f16(const void *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)p))); }
QSA_SIMD vf v_from_i8(const void *p) {
    uint32_t four;
    memcpy(&four, p, sizeof four);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four))))));
}

/* In the low half of each lane. */
QSA_SIMD vi v_to_bf16(vf x) {
    vi bits = vreinterpretq_u32_f32(x), high = vshrq_n_u32(bits, 16), odd = vandq_u32(high, vdupq_n_u32(1));
    vi rounded = vshrq_n_u32(vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd), 16);
    vi nan = vcgtq_u32(v_magnitude(x), vdupq_n_u32(0x7f800000u));
    return vbslq_u32(nan, vorrq_u32(high, vdupq_n_u32(0x40)), rounded);
}
QSA_SIMD vf v_round_bf16(vf x) { return vreinterpretq_f32_u32(vshlq_n_u32(v_to_bf16(x), 16)); }
QSA_SIMD void v_store_bf16(void *p, vf x) { vst1_u16((uint16_t *)p, vmovn_u32(v_to_bf16(x))); }
QSA_SIMD void v_store_f16(void *p, vf x) { vst1_u16((uint16_t *)p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }
QSA_SIMD void v_store_low8(void *p, vf x) {
    uint16x4_t half = vmovn_u32(vreinterpretq_u32_f32(x));
    uint32_t four = vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(half, half))), 0);
    memcpy(p, &four, sizeof four);
}
QSA_SIMD void v_unzip(const float *p, vf *a, vf *b) {
    float32x4x2_t both = vld2q_f32(p);
    *a = both.val[0];
    *b = both.val[1];
}

QSA_SIMD void v_columns(const char *const *row, int64_t at, vi out[4]) {
    vi a = v_load_bits(row[0] + at), b = v_load_bits(row[1] + at), c = v_load_bits(row[2] + at), d = v_load_bits(row[3] + at);
    uint64x2_t ab = vreinterpretq_u64_u32(vzip1q_u32(a, b)), ab2 = vreinterpretq_u64_u32(vzip2q_u32(a, b));
    uint64x2_t cd = vreinterpretq_u64_u32(vzip1q_u32(c, d)), cd2 = vreinterpretq_u64_u32(vzip2q_u32(c, d));
    out[0] = vreinterpretq_u32_u64(vzip1q_u64(ab, cd));
    out[1] = vreinterpretq_u32_u64(vzip2q_u64(ab, cd));
    out[2] = vreinterpretq_u32_u64(vzip1q_u64(ab2, cd2));
    out[3] = vreinterpretq_u32_u64(vzip2q_u64(ab2, cd2));
}

/* One bit of each of 16 lanes of all ones or zeros. */
QSA_SIMD uint64_t v_mask16(uint32x4_t a, uint32x4_t b, uint32x4_t c, uint32x4_t d) {
    static const uint8_t weight[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint16x8_t low = vcombine_u16(vmovn_u32(a), vmovn_u32(b)), high = vcombine_u16(vmovn_u32(c), vmovn_u32(d));
    uint8x16_t bits = vandq_u8(vcombine_u8(vmovn_u16(low), vmovn_u16(high)), vld1q_u8(weight));
    return (uint64_t)vaddv_u8(vget_low_u8(bits)) | (uint64_t)vaddv_u8(vget_high_u8(bits)) << 8;
}
QSA_SIMD uint64_t v_above(const float *x, vf t) {
    uint64_t mask = 0;
    for (int i = 0; i < 64; i += 16) {
        mask |= v_mask16(vcgtq_f32(v_load(x + i), t), vcgtq_f32(v_load(x + i + 4), t), vcgtq_f32(v_load(x + i + 8), t),
                         vcgtq_f32(v_load(x + i + 12), t))
                << i;
    }
    return mask;
}
QSA_SIMD uint64_t v_equal(const float *x, vf t) {
    uint64_t mask = 0;
    for (int i = 0; i < 64; i += 16) {
        mask |= v_mask16(vceqq_f32(v_load(x + i), t), vceqq_f32(v_load(x + i + 4), t), vceqq_f32(v_load(x + i + 8), t),
                         vceqq_f32(v_load(x + i + 12), t))
                << i;
    }
    return mask;
}

QSA_SIMD float v_fold(const vf *x) {
    vf four = vaddq_f32(vaddq_f32(x[0], x[2]), vaddq_f32(x[1], x[3]));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
QSA_SIMD vf v_fold_to_four(const vf *x) { return vaddq_f32(vaddq_f32(x[0], x[2]), vaddq_f32(x[1], x[3])); }
QSA_SIMD vf v_fold_to_two(vf a, vf b) {
    float64x2_t x = vreinterpretq_f64_f32(a), y = vreinterpretq_f64_f32(b);
    return vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(x, y)), vreinterpretq_f32_f64(vzip2q_f64(x, y)));
}
QSA_SIMD void v_fold_four(const vf *a, const vf *b, const vf *c, const vf *d, float *out) {
    vf ab = v_fold_to_two(v_fold_to_four(a), v_fold_to_four(b)), cd = v_fold_to_two(v_fold_to_four(c), v_fold_to_four(d));
    vst1q_f32(out, vaddq_f32(vuzp1q_f32(ab, cd), vuzp2q_f32(ab, cd)));
}
QSA_SIMD float v_top(vf x) {
    float32x2_t t = vget_low_f32(x), u = vget_high_f32(x);
    t = vbsl_f32(vclt_f32(t, u), u, t);
    float a = vget_lane_f32(t, 0), b = vget_lane_f32(t, 1);
    return b > a ? b : a;
}
QSA_SIMD uint32_t v_top_magnitude(vi x) { return vmaxvq_u32(x); }

#endif
