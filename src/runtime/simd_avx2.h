/* SPDX-License-Identifier: MIT */
/* runtime/simd.h for AVX2, FMA and F16C: 8 lanes. */
#ifndef QSA_RUNTIME_SIMD_AVX2_H
#define QSA_RUNTIME_SIMD_AVX2_H

#include <immintrin.h>

#define QSA_TARGET "avx2,fma,f16c"
#define QSA_KERNEL __attribute__((target(QSA_TARGET)))
#define QSA_SIMD static inline __attribute__((always_inline, target(QSA_TARGET), unused))
#define QSA_LEVEL(name) name##_avx2
#define QSA_NAME(name) name "_avx2"

enum { V_LANES = 8 };
typedef __m256 vf;
typedef __m256i vi;

enum { V_DOUBLES = 4 };
typedef __m256d vd;
QSA_SIMD vd vd_load(const double *p) { return _mm256_loadu_pd(p); }
QSA_SIMD void vd_store(double *p, vd x) { _mm256_storeu_pd(p, x); }

QSA_SIMD vf v_load(const float *p) { return _mm256_loadu_ps(p); }
QSA_SIMD void v_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
QSA_SIMD vi v_load_bits(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
QSA_SIMD void v_store_bits(void *p, vi x) { _mm256_storeu_si256((__m256i *)p, x); }
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
QSA_SIMD vf v_abs(vf x) { return _mm256_castsi256_ps(v_magnitude(x)); }
QSA_SIMD vi v_max_magnitude(vi a, vi b) { return _mm256_max_epi32(a, b); }
QSA_SIMD vi v_zero_bits(void) { return _mm256_setzero_si256(); }

QSA_SIMD vf v_low16(vi x) { return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)); }
QSA_SIMD vf v_high16(vi x) { return _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32((int)0xffff0000u))); }
QSA_SIMD vf v_from_bf16(const void *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
QSA_SIMD vf v_from_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
QSA_SIMD vf v_from_i8(const void *p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p))); }

/* In the low half of each lane. */
QSA_SIMD vi v_to_bf16(vf x) {
    vi bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
    vi odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    vi rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
    vi nan = _mm256_cmpgt_epi32(v_magnitude(x), _mm256_set1_epi32(0x7f800000));
    return _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
}
QSA_SIMD vf v_round_bf16(vf x) { return _mm256_castsi256_ps(_mm256_slli_epi32(v_to_bf16(x), 16)); }
QSA_SIMD void v_store_bf16(void *p, vf x) {
    vi half = v_to_bf16(x);
    half = _mm256_permute4x64_epi64(_mm256_packus_epi32(half, half), 0x08);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(half));
}
QSA_SIMD void v_store_f16(void *p, vf x) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
QSA_SIMD void v_store_low8(void *p, vf x) {
    __m128i pick = _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    __m128i low = _mm_shuffle_epi8(_mm256_castsi256_si128(_mm256_castps_si256(x)), pick);
    __m128i high = _mm_shuffle_epi8(_mm256_extracti128_si256(_mm256_castps_si256(x), 1), pick);
    _mm_storel_epi64((__m128i *)p, _mm_unpacklo_epi32(low, high));
}
QSA_SIMD vf v_order_unzipped(vf x) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xd8)); }
QSA_SIMD void v_unzip(const float *p, vf *a, vf *b) {
    vf low = v_load(p), high = v_load(p + 8);
    *a = v_order_unzipped(_mm256_shuffle_ps(low, high, 0x88));
    *b = v_order_unzipped(_mm256_shuffle_ps(low, high, 0xdd));
}

QSA_SIMD __m256i v_row_pair(const char *const *row, int64_t at) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(row[0] + at))),
                                   _mm_loadu_si128((const __m128i *)(row[4] + at)), 1);
}
QSA_SIMD void v_columns(const char *const *row, int64_t at, vi out[4]) {
    vi a = v_row_pair(row, at), b = v_row_pair(row + 1, at), c = v_row_pair(row + 2, at), d = v_row_pair(row + 3, at);
    vi ab = _mm256_unpacklo_epi32(a, b), ab2 = _mm256_unpackhi_epi32(a, b);
    vi cd = _mm256_unpacklo_epi32(c, d), cd2 = _mm256_unpackhi_epi32(c, d);
    out[0] = _mm256_unpacklo_epi64(ab, cd);
    out[1] = _mm256_unpackhi_epi64(ab, cd);
    out[2] = _mm256_unpacklo_epi64(ab2, cd2);
    out[3] = _mm256_unpackhi_epi64(ab2, cd2);
}

#define V_COMPARE(i, how) ((uint64_t)(unsigned)_mm256_movemask_ps(_mm256_cmp_ps(v_load(x + 8 * (i)), t, how)) << 8 * (i))
QSA_SIMD uint64_t v_above(const float *x, vf t) {
    return ((V_COMPARE(0, _CMP_GT_OQ) | V_COMPARE(1, _CMP_GT_OQ)) | (V_COMPARE(2, _CMP_GT_OQ) | V_COMPARE(3, _CMP_GT_OQ))) |
           ((V_COMPARE(4, _CMP_GT_OQ) | V_COMPARE(5, _CMP_GT_OQ)) | (V_COMPARE(6, _CMP_GT_OQ) | V_COMPARE(7, _CMP_GT_OQ)));
}
QSA_SIMD uint64_t v_equal(const float *x, vf t) {
    return ((V_COMPARE(0, _CMP_EQ_OQ) | V_COMPARE(1, _CMP_EQ_OQ)) | (V_COMPARE(2, _CMP_EQ_OQ) | V_COMPARE(3, _CMP_EQ_OQ))) |
           ((V_COMPARE(4, _CMP_EQ_OQ) | V_COMPARE(5, _CMP_EQ_OQ)) | (V_COMPARE(6, _CMP_EQ_OQ) | V_COMPARE(7, _CMP_EQ_OQ)));
}
#undef V_COMPARE

QSA_SIMD float v_fold4(__m128 x) {
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
QSA_SIMD float v_fold(const vf *x) {
    vf eight = _mm256_add_ps(x[0], x[1]);
    return v_fold4(_mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1)));
}
QSA_SIMD void v_fold_four(const vf *a, const vf *b, const vf *c, const vf *d, float *out) {
    vf a8 = v_add(a[0], a[1]), b8 = v_add(b[0], b[1]), c8 = v_add(c[0], c[1]), d8 = v_add(d[0], d[1]);
    vf ab = v_add(_mm256_permute2f128_ps(a8, b8, 0x20), _mm256_permute2f128_ps(a8, b8, 0x31));
    vf cd = v_add(_mm256_permute2f128_ps(c8, d8, 0x20), _mm256_permute2f128_ps(c8, d8, 0x31));
    vf two = v_add(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    vf one = v_add(_mm256_shuffle_ps(two, two, 0x88), _mm256_shuffle_ps(two, two, 0xdd)); /* a c a c b d b d */
    _mm_storeu_ps(out, _mm_unpacklo_ps(_mm256_castps256_ps128(one), _mm256_extractf128_ps(one, 1)));
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
