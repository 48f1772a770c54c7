/* SPDX-License-Identifier: MIT */
/* runtime/simd.h for AVX2, FMA and F16C: 8 lanes. */
#ifndef QSA_RUNTIME_SIMD_AVX2_H
#define QSA_RUNTIME_SIMD_AVX2_H

#include <immintrin.h>

#define QSA_TARGET "avx2,fma,f16c"
#define QSA_KERNEL __attribute__((target(QSA_TARGET)))
#define QSA_SIMD static inline __attribute__((always_inline, target(QSA_TARGET), unused))
#define QSA_LEVEL(name) name##_avx2

enum { V_LANES = 8 };
typedef __m256 vf;
typedef __m256i vi;

QSA_SIMD vf v_load(const float *p) { return _mm256_loadu_ps(p); }
QSA_SIMD void v_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
QSA_SIMD vi v_load_bits(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
QSA_SIMD vf v_set(float x) { return _mm256_set1_ps(x); }
QSA_SIMD vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
QSA_SIMD vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
QSA_SIMD vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
QSA_SIMD vf v_div(vf a, vf b) { return _mm256_div_ps(a, b); }
QSA_SIMD vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
QSA_SIMD float v_fma_one(float a, float b, float c) { return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c))); }
QSA_SIMD vf v_relu(vf x) { return _mm256_max_ps(_mm256_setzero_ps(), x); }
QSA_SIMD vf v_raise(vf top, vf x) { return _mm256_max_ps(x, top); }

QSA_SIMD vi v_first(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
QSA_SIMD vf v_load_n(const float *p, int64_t n) { return _mm256_maskload_ps(p, v_first(n)); }
QSA_SIMD void v_store_n(float *p, vf x, int64_t n) { _mm256_maskstore_ps(p, v_first(n), x); }

QSA_SIMD vf v_where_less(vf a, vf b, vf then, vf otherwise) {
    return _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
QSA_SIMD vf v_exponent(vf shifted) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(127)), 23));
}
QSA_SIMD vi v_magnitude(vf x) { return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff)); }
QSA_SIMD vi v_max_magnitude(vi a, vi b) { return _mm256_max_epi32(a, b); }
QSA_SIMD vi v_zero_bits(void) { return _mm256_setzero_si256(); }

QSA_SIMD vf v_low16(vi x) { return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)); }
QSA_SIMD vf v_high16(vi x) { return _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32((int)0xffff0000u))); }
QSA_SIMD vf v_from_bf16(const void *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
QSA_SIMD vf v_from_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }

QSA_SIMD float v_fold4(__m128 x) {
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
QSA_SIMD float v_fold(const vf *x) {
    vf eight = _mm256_add_ps(x[0], x[1]);
    return v_fold4(_mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1)));
}
QSA_SIMD float v_top(vf x) {
    __m128 t = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    t = _mm_max_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_max_ss(t, _mm_shuffle_ps(t, t, 1)));
}
QSA_SIMD uint32_t v_top_magnitude(vi x) {
    __m128i t = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(t);
}

#endif
