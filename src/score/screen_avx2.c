/* SPDX-License-Identifier: MIT */
/* The screening kernel for AVX2: bytes of keys, even and odd apart, times pairs of 16-bit integers. */
#include "runtime/cpu.h"

#if defined(QSA_X86)
#define QSA_SIMD_AVX2
#include "runtime/simd.h"

#include "score/screen.h"

enum { SCREEN_TILES = 1 };

QSA_SIMD vi pair(const int16_t *two) {
    int32_t bits;
    memcpy(&bits, two, sizeof bits);
    return _mm256_set1_epi32(bits);
}

/* Sums may pass 2^31 on the way: they are exact modulo 2^32, and the result fits. */
QSA_SIMD void multiply(const char *const *tile, const char *const *ahead, const qsa_screen_query *query, int64_t h,
                       const int heads, const int tiles, vf product[][2]) {
    vi sum[4][2];
    const int16_t *pairs = query->pairs + h * query->dim;
    (void)tiles;
    QSA_UNROLL for (int i = 0; i < heads; i++) {
        sum[i][0] = sum[i][1] = _mm256_set1_epi32(query->head_bias[h + i]);
    }
    for (int64_t c = 0; c < query->dim; c += 4) {
        vi even[2], odd[2];
        __builtin_prefetch(ahead[0] + c * QSA_TILE, 0, 3);
        QSA_UNROLL for (int v = 0; v < 2; v++) {
            vi key = v_load_bits(tile[0] + c * QSA_TILE + v * 32);
            even[v] = _mm256_and_si256(key, _mm256_set1_epi16(0xff));
            odd[v] = _mm256_srli_epi16(key, 8);
        }
        QSA_UNROLL for (int i = 0; i < heads; i++) {
            vi first = pair(pairs + i * query->dim + c), second = pair(pairs + i * query->dim + c + 2);
            QSA_UNROLL for (int v = 0; v < 2; v++) {
                sum[i][v] = _mm256_add_epi32(sum[i][v], _mm256_madd_epi16(even[v], first));
                sum[i][v] = _mm256_add_epi32(sum[i][v], _mm256_madd_epi16(odd[v], second));
            }
        }
    }
    QSA_UNROLL for (int i = 0; i < heads; i++) {
        QSA_UNROLL for (int v = 0; v < 2; v++) {
            product[i][v] = _mm256_cvtepi32_ps(_mm256_max_epi32(sum[i][v], _mm256_setzero_si256()));
        }
    }
}

#include "score/screen_kernel.h"
#else
typedef int qsa_no_screening_here; /* a translation unit must not be empty */
#endif
