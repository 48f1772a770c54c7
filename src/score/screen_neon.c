/* SPDX-License-Identifier: MIT */
/* The screening kernel for aarch64: bytes of keys, even and odd apart, times pairs of 16-bit integers. */
#include "runtime/cpu.h"

#if defined(QSA_ARM)
#define QSA_SIMD_NEON
#include "runtime/simd.h"

#include "score/screen.h"

enum { SCREEN_TILES = 1 };

/* The two of them, twice. */
QSA_SIMD int16x4_t pair(const int16_t *two) {
    int32_t bits;
    memcpy(&bits, two, sizeof bits);
    return vreinterpret_s16_s32(vdup_n_s32(bits));
}

/* Lane 2 b + j of sum[.][0..1] is block b's sum over channels 0 and 1 (j = 0), 2 and 3 (j = 1) of every four; two
 * blocks a vector. Sums may pass 2^31 on the way: they are exact modulo 2^32, and the result fits. */
QSA_SIMD void multiply_vector(const char *keys, const char *ahead, const qsa_screen_query *query, int64_t h,
                              const int heads, int32x4_t *out) {
    int32x4_t sum[4][2];
    const int16_t *pairs = query->pairs + h * query->dim;
    QSA_UNROLL for (int i = 0; i < heads; i++) {
        sum[i][0] = sum[i][1] = vdupq_n_s32(0);
    }
    for (int64_t c = 0; c < query->dim; c += 4) {
        __builtin_prefetch(ahead + c * QSA_TILE, 0, 3);
        uint16x8_t key = vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)(const void *)(keys + c * QSA_TILE)));
        int16x8_t even = vreinterpretq_s16_u16(vandq_u16(key, vdupq_n_u16(0xff)));
        int16x8_t odd = vreinterpretq_s16_u16(vshrq_n_u16(key, 8));
        QSA_UNROLL for (int i = 0; i < heads; i++) {
            int16x4_t first = pair(pairs + i * query->dim + c), second = pair(pairs + i * query->dim + c + 2);
            sum[i][0] = vmlal_s16(sum[i][0], vget_low_s16(even), first);
            sum[i][1] = vmlal_s16(sum[i][1], vget_high_s16(even), first);
            sum[i][0] = vmlal_s16(sum[i][0], vget_low_s16(odd), second);
            sum[i][1] = vmlal_s16(sum[i][1], vget_high_s16(odd), second);
        }
    }
    QSA_UNROLL for (int i = 0; i < heads; i++) {
        out[i] = vaddq_s32(vpaddq_s32(sum[i][0], sum[i][1]), vdupq_n_s32(query->head_bias[h + i]));
    }
}

QSA_SIMD void multiply(const char *const *tile, const char *const *ahead, const qsa_screen_query *query, int64_t h,
                       const int heads, const int tiles, vf product[][4]) {
    (void)tiles;
    for (int v = 0; v < 4; v++) {
        int32x4_t sum[4];
        multiply_vector(tile[0] + 16 * v, (v == 0 ? ahead : tile)[0], query, h, heads, sum);
        QSA_UNROLL for (int i = 0; i < heads; i++) {
            product[i][v] = vcvtq_f32_s32(vmaxq_s32(sum[i], vdupq_n_s32(0)));
        }
    }
}

#include "score/screen_kernel.h"
#else
typedef int qsa_no_screening_here; /* a translation unit must not be empty */
#endif
