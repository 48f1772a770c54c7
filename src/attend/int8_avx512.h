/* SPDX-License-Identifier: MIT */
/* What the AVX-512 and AMX kernels for int8 K/V share: scales, weights on their grid, digits. After runtime/simd.h. */
#ifndef QSA_ATTEND_INT8_AVX512_H
#define QSA_ATTEND_INT8_AVX512_H

#include "attend/attend.h"
#include "attend/softmax_simd.h"
#include "runtime/memory.h"

/* The two digits of 64 grid values, value = 256 * high + low. */
typedef struct digit_pair {
    uint32_t low[16], high[16];
} digit_pair;

/* Of 64 values, given as 4 x 16 int32, in an order of quads that the caller undoes or shares: dword 4 L + i of the result
 * holds values 16 i + 4 L .. + 3. */
QSA_SIMD void digits(const __m512i x[4], __m512i *low, __m512i *high) {
    __m512i a = _mm512_packs_epi32(x[0], x[1]), b = _mm512_packs_epi32(x[2], x[3]);
    __m512i half = _mm512_set1_epi16(128);
    *low = _mm512_packs_epi16(_mm512_srai_epi16(_mm512_slli_epi16(a, 8), 8), _mm512_srai_epi16(_mm512_slli_epi16(b, 8), 8));
    *high = _mm512_packs_epi16(_mm512_srai_epi16(_mm512_add_epi16(a, half), 8),
                               _mm512_srai_epi16(_mm512_add_epi16(b, half), 8));
}

/* Where dword t of digits() has its quad of values, and back: the order is its own inverse. */
QSA_SIMD int64_t digits_order(int64_t t) {
    return 4 * (t % 4) + t / 4;
}

/* 64 values as integers on a grid. */
QSA_SIMD qsa_grid to_grid(const vf x[4], __m512i out[4]) {
    vi largest = v_max_magnitude(v_max_magnitude(v_magnitude(x[0]), v_magnitude(x[1])),
                                 v_max_magnitude(v_magnitude(x[2]), v_magnitude(x[3])));
    qsa_grid grid = qsa_grid_of(v_top_magnitude(largest));
    for (int i = 0; i < 4; i++) {
        out[i] = grid.inverse > 0.0f ? _mm512_cvtps_epi32(v_mul(x[i], v_set(grid.inverse))) : _mm512_setzero_si512();
    }
    return grid;
}

/* Rows of `groups` halves to rows of `groups` f32, and turned: [group][cell]. count is a multiple of 16. */
QSA_SIMD void widen_scales(const uint16_t *const *scale, int64_t count, int64_t groups, float out[QSA_CHUNK_MAX * QSA_GROUPS_MAX]) {
    uint16_t half[QSA_CHUNK_MAX * QSA_GROUPS_MAX];
    if (groups == 4) {
        for (int64_t j = 0; j < count; j++) {
            memcpy(half + 4 * j, scale[j], 8);
        }
    } else {
        for (int64_t j = 0; j < count; j++) {
            memcpy(half + groups * j, scale[j], (size_t)groups * 2);
        }
    }
    for (int64_t i = 0; i < count * groups; i += 16) {
        v_store(out + i, v_from_f16(half + i));
    }
}

QSA_SIMD void turn_scales(const uint16_t *const *scale, int64_t count, int64_t groups, float out[][QSA_CHUNK_MAX]) {
    const __m512i every_fourth = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 0, 0, 0, 0, 0, 0, 0);
    float wide[QSA_CHUNK_MAX * QSA_GROUPS_MAX];
    widen_scales(scale, count, groups, wide);
    if (groups != 4) {
        for (int64_t j = 0; j < count; j++) {
            for (int64_t g = 0; g < groups; g++) {
                out[g][j] = wide[groups * j + g]; /* NOLINT(clang-analyzer-core.uninitialized.Assign): widened above */
            }
        }
        return;
    }
    for (int64_t j = 0; j < count; j += 8) {
        vf a = v_load(wide + 4 * j), b = v_load(wide + 4 * j + 16);
        for (int64_t g = 0; g < 4; g++) {
            vf turned = _mm512_permutex2var_ps(a, _mm512_add_epi32(every_fourth, _mm512_set1_epi32((int)g)), b);
            _mm256_storeu_ps(out[g] + j, _mm512_castps512_ps256(turned));
        }
    }
}

/* Weights of one head and group, as integers. p is 0 where it was NaN. */
QSA_SIMD void weights(const float p[QSA_CHUNK_MAX], const float ratio[QSA_CHUNK_MAX], __m512i w[4]) {
    for (int i = 0; i < 4; i++) {
        w[i] = _mm512_cvtps_epi32(v_mul(v_load(p + 16 * i), v_load(ratio + 16 * i)));
    }
}

#endif
