/* SPDX-License-Identifier: MIT */
/* runtime/simd.h for AVX-512 F, BW, VL, DQ and VNNI: 16 lanes. */
#ifndef QSA_RUNTIME_SIMD_AVX512_H
#define QSA_RUNTIME_SIMD_AVX512_H

#include <immintrin.h>

#define QSA_TARGET "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c"
#define QSA_KERNEL __attribute__((target(QSA_TARGET)))
#define QSA_SIMD static inline __attribute__((always_inline, target(QSA_TARGET), unused))
#define QSA_LEVEL(name) name##_avx512
#define QSA_NAME(name) name "_avx512"

enum { V_LANES = 16 };
typedef __m512 vf;
typedef __m512i vi;

enum { V_DOUBLES = 8 };
typedef __m512d vd;
QSA_SIMD vd vd_load(const double *p) { return _mm512_loadu_pd(p); }
QSA_SIMD void vd_store(double *p, vd x) { _mm512_storeu_pd(p, x); }

QSA_SIMD vf v_load(const float *p) { return _mm512_loadu_ps(p); }
QSA_SIMD void v_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
QSA_SIMD vi v_load_bits(const void *p) { return _mm512_loadu_si512(p); }
QSA_SIMD void v_store_bits(void *p, vi x) { _mm512_storeu_si512(p, x); }
QSA_SIMD vf v_set(float x) { return _mm512_set1_ps(x); }
QSA_SIMD vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
QSA_SIMD vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
QSA_SIMD vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
QSA_SIMD vf v_div(vf a, vf b) { return _mm512_div_ps(a, b); }
QSA_SIMD vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
QSA_SIMD float v_fma_one(float a, float b, float c) { return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c))); }
QSA_SIMD vf v_relu(vf x) { return _mm512_max_ps(_mm512_setzero_ps(), x); }
QSA_SIMD vf v_raise(vf top, vf x) { return _mm512_max_ps(x, top); }

QSA_SIMD __mmask16 v_first(int64_t n) { return (__mmask16)((1u << n) - 1u); }
QSA_SIMD vf v_load_n(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(v_first(n), p); }
QSA_SIMD void v_store_n(float *p, vf x, int64_t n) { _mm512_mask_storeu_ps(p, v_first(n), x); }

QSA_SIMD vf v_where_less(vf a, vf b, vf then, vf otherwise) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), otherwise, then);
}
QSA_SIMD vf v_exponent(vf shifted) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(127)), 23));
}
QSA_SIMD vi v_magnitude(vf x) { return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)); }
QSA_SIMD vf v_abs(vf x) { return _mm512_castsi512_ps(v_magnitude(x)); }
QSA_SIMD vi v_max_magnitude(vi a, vi b) { return _mm512_max_epi32(a, b); }
QSA_SIMD vi v_zero_bits(void) { return _mm512_setzero_si512(); }

QSA_SIMD vf v_low16(vi x) { return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)); }
QSA_SIMD vf v_high16(vi x) { return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000u))); }
QSA_SIMD vf v_from_bf16(const void *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
QSA_SIMD vf v_from_f16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
QSA_SIMD vf v_from_i8(const void *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p))); }

/* In the low half of each lane. */
QSA_SIMD vi v_to_bf16(vf x) {
    vi bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
    vi odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    vi rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
    __mmask16 nan = _mm512_cmpgt_epi32_mask(v_magnitude(x), _mm512_set1_epi32(0x7f800000));
    return _mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40));
}
QSA_SIMD vf v_round_bf16(vf x) { return _mm512_castsi512_ps(_mm512_slli_epi32(v_to_bf16(x), 16)); }
QSA_SIMD void v_store_bf16(void *p, vf x) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(v_to_bf16(x))); }
QSA_SIMD void v_store_f16(void *p, vf x) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
QSA_SIMD void v_store_low8(void *p, vf x) { _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(_mm512_castps_si512(x))); }
QSA_SIMD void v_unzip(const float *p, vf *a, vf *b) {
    __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    vf low = v_load(p), high = v_load(p + 16);
    *a = _mm512_permutex2var_ps(low, even, high);
    *b = _mm512_permutex2var_ps(low, _mm512_add_epi32(even, _mm512_set1_epi32(1)), high);
}

QSA_SIMD __m512i v_row_quad(const char *const *row, int64_t at) {
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(row[0] + at)));
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(row[4] + at)), 1);
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(row[8] + at)), 2);
    return _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(row[12] + at)), 3);
}
QSA_SIMD void v_columns(const char *const *row, int64_t at, vi out[4]) {
    vi a = v_row_quad(row, at), b = v_row_quad(row + 1, at), c = v_row_quad(row + 2, at), d = v_row_quad(row + 3, at);
    vi ab = _mm512_unpacklo_epi32(a, b), ab2 = _mm512_unpackhi_epi32(a, b);
    vi cd = _mm512_unpacklo_epi32(c, d), cd2 = _mm512_unpackhi_epi32(c, d);
    out[0] = _mm512_unpacklo_epi64(ab, cd);
    out[1] = _mm512_unpackhi_epi64(ab, cd);
    out[2] = _mm512_unpacklo_epi64(ab2, cd2);
    out[3] = _mm512_unpackhi_epi64(ab2, cd2);
}

#define V_COMPARE(i, how) ((uint64_t)_mm512_cmp_ps_mask(v_load(x + 16 * (i)), t, how) << 16 * (i))
QSA_SIMD uint64_t v_above(const float *x, vf t) {
    return (V_COMPARE(0, _CMP_GT_OQ) | V_COMPARE(1, _CMP_GT_OQ)) | (V_COMPARE(2, _CMP_GT_OQ) | V_COMPARE(3, _CMP_GT_OQ));
}
QSA_SIMD uint64_t v_equal(const float *x, vf t) {
    return (V_COMPARE(0, _CMP_EQ_OQ) | V_COMPARE(1, _CMP_EQ_OQ)) | (V_COMPARE(2, _CMP_EQ_OQ) | V_COMPARE(3, _CMP_EQ_OQ));
}
#undef V_COMPARE

QSA_SIMD float v_fold(const vf *x) {
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(*x), _mm512_extractf32x8_ps(*x, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
}
QSA_SIMD void v_fold_four(const vf *a, const vf *b, const vf *c, const vf *d, float *out) {
    vf ab = v_add(_mm512_shuffle_f32x4(*a, *b, 0x44), _mm512_shuffle_f32x4(*a, *b, 0xee));
    vf cd = v_add(_mm512_shuffle_f32x4(*c, *d, 0x44), _mm512_shuffle_f32x4(*c, *d, 0xee));
    vf four = v_add(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    four = v_add(four, _mm512_permute_ps(four, 0x4e));
    four = v_add(four, _mm512_permute_ps(four, 0xb1));
    __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(first, four)));
}
QSA_SIMD float v_top(vf x) { return _mm512_reduce_max_ps(x); }
QSA_SIMD uint32_t v_top_magnitude(vi x) { return (uint32_t)_mm512_reduce_max_epi32(x); }

#endif
