/* SPDX-License-Identifier: MIT */
/*
 * A small vocabulary of vectors of f32, so that one kernel text serves every instruction set. A kernel file defines one of
 * QSA_SIMD_AVX2, QSA_SIMD_AVX512, QSA_SIMD_NEON and includes this; then includes its kernel's text, once. Functions that use
 * the vocabulary are declared QSA_SIMD (inlined) or QSA_KERNEL (called), which gives them the instructions.
 *
 *   V_LANES                    lanes of a vf, 4, 8 or 16
 *   QSA_LEVEL(name), QSA_NAME  name_avx2, name_avx512, name_neon; of a string literal
 *   v_load, v_store            unaligned
 *   v_load_n, v_store_n        the first n lanes only, 0 <= n <= V_LANES; the others are 0, or left alone
 *   v_set, v_add, v_sub, v_mul, v_div
 *   v_fma(a, b, c)             a * b + c, rounded once
 *   v_fma_one(a, b, c)         the same of single floats
 *   v_relu(x)                  0 where 0 > x, else x (a NaN stays)
 *   v_raise(top, x)            x where x > top, else top (a NaN in x is passed over)
 *   v_abs, v_magnitude, v_max_magnitude   |x|; |x| as bits; the larger of two such
 *   v_exp                      qsa_exp in every lane
 *   v_low16, v_high16          the two bf16 of each 32-bit lane as f32 (vi from v_load_bits)
 *   v_columns(row, at, out)    dwords at byte `at` and the 3 after it of V_LANES rows: lane r of out[i] is row r's dword i
 *   v_above(x, t), v_equal     bit i of the result is x[i] > t, x[i] == t, for 64 floats x
 *   v_from_bf16, v_from_f16, v_from_i8     V_LANES consecutive values as f32
 *   v_store_bf16, v_store_f16, v_store_low8     qsa_f32_to_bf16, qsa_f32_to_f16, the low 8 bits of each lane, one after the other
 *   v_round_bf16               to bf16 and back
 *   v_unzip(p, a, b)           a: p[0], p[2], ...; b: p[1], p[3], ...
 *   v_fold(const vf *x)        16 lanes in 16 / V_LANES vectors, in the written order: upper half to lower, 8, 4, 2, 1
 *   v_fold_four(a, b, c, d, out)   four of these at once
 *   v_top(x), v_top_magnitude  the largest lane
 *   vd, V_DOUBLES, vd_load, vd_store   vectors of f64, for the operators of C
 */
#ifndef QSA_RUNTIME_SIMD_H
#define QSA_RUNTIME_SIMD_H

#include "runtime/numerics.h"

/* Before a loop whose bounds are constants once its function is inlined: its arrays of vectors become registers. */
#if defined(__clang__)
#define QSA_UNROLL _Pragma("clang loop unroll(full)")
#else
#define QSA_UNROLL _Pragma("GCC unroll 8")
#endif

#if defined(QSA_SIMD_AVX2)
#include "runtime/simd_avx2.h"
#elif defined(QSA_SIMD_AVX512)
#include "runtime/simd_avx512.h"
#elif defined(QSA_SIMD_NEON)
#include "runtime/simd_neon.h"
#endif

/* e^x = p * 2^n with n the integer nearest x log2 e: returns p; *shifted is QSA_EXP_MAGIC + n. */
QSA_SIMD vf v_exp_fraction(vf x, vf *shifted) {
    vf magic = v_set(QSA_EXP_MAGIC);
    *shifted = v_fma(x, v_set(QSA_EXP_LOG2E), magic);
    vf n = v_sub(*shifted, magic);
    vf r = v_fma(n, v_set(-QSA_EXP_LN2_HIGH), x);
    r = v_fma(n, v_set(-QSA_EXP_LN2_LOW), r);
    vf p = v_set(QSA_EXP_C7);
    p = v_fma(p, r, v_set(QSA_EXP_C6));
    p = v_fma(p, r, v_set(QSA_EXP_C5));
    p = v_fma(p, r, v_set(QSA_EXP_C4));
    p = v_fma(p, r, v_set(QSA_EXP_C3));
    p = v_fma(p, r, v_set(QSA_EXP_C2));
    p = v_fma(p, r, v_set(1.0f));
    return v_fma(p, r, v_set(1.0f));
}

QSA_SIMD vf v_exp(vf x) {
    vf shifted, p = v_exp_fraction(x, &shifted);
    vf result = v_mul(p, v_exponent(shifted));
    result = v_where_less(x, v_set(QSA_EXP_LOW), v_set(0.0f), result);
    return v_where_less(v_set(QSA_EXP_HIGH), x, v_set(QSA_INFINITY), result);
}

#endif
