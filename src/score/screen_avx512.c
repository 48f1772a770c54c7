/* SPDX-License-Identifier: MIT */
/* The screening kernel for AVX-512 VNNI: bytes of keys times the two digits of the query. */
#include "runtime/cpu.h"

#if defined(QSA_X86)
#define QSA_SIMD_AVX512
#include "runtime/simd.h"

#include "score/screen.h"

enum { SCREEN_TILES = 2 };

QSA_SIMD vi quad(const int8_t *four) {
    int32_t bits;
    memcpy(&bits, four, sizeof bits);
    return _mm512_set1_epi32(bits);
}

QSA_SIMD void multiply(const char *const *tile, const char *const *ahead, const qsa_screen_query *query, int64_t h,
                       const int heads, const int tiles, vf product[][SCREEN_TILES]) {
    vi high[4][SCREEN_TILES], low[4][SCREEN_TILES];
    int64_t dim = query->dim;
    const int8_t *digits = query->digits + h * 2 * dim;
    QSA_UNROLL for (int i = 0; i < heads; i++) {
        QSA_UNROLL for (int t = 0; t < tiles; t++) {
            high[i][t] = _mm512_setzero_si512();
            low[i][t] = _mm512_set1_epi32(query->head_bias[h + i]);
        }
    }
    for (int64_t c = 0; c < dim; c += 4) {
        vi key[SCREEN_TILES];
        QSA_UNROLL for (int t = 0; t < tiles; t++) {
            __builtin_prefetch(ahead[t] + c * QSA_TILE, 0, 3);
            key[t] = v_load_bits(tile[t] + c * QSA_TILE);
        }
        QSA_UNROLL for (int i = 0; i < heads; i++) {
            vi first = quad(digits + i * 2 * dim + c), second = quad(digits + (i * 2 + 1) * dim + c);
            QSA_UNROLL for (int t = 0; t < tiles; t++) {
                high[i][t] = _mm512_dpbusd_epi32(high[i][t], key[t], first);
                low[i][t] = _mm512_dpbusd_epi32(low[i][t], key[t], second);
            }
        }
    }
    QSA_UNROLL for (int i = 0; i < heads; i++) {
        QSA_UNROLL for (int t = 0; t < tiles; t++) {
            vi sum = _mm512_add_epi32(_mm512_slli_epi32(high[i][t], 8), low[i][t]);
            product[i][t] = _mm512_cvtepi32_ps(_mm512_max_epi32(sum, _mm512_setzero_si512()));
        }
    }
}

#include "score/screen_kernel.h"
#else
typedef int qsa_no_screening_here; /* a translation unit must not be empty */
#endif
