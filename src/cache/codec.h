/* SPDX-License-Identifier: MIT */
/* The codecs of K/V: heads of cells, one group of 64 channels after the other. docs/spec.md, "int8_g64". */
#ifndef QSA_CACHE_CODEC_H
#define QSA_CACHE_CODEC_H

#include "runtime/numerics.h"

enum { QSA_GROUP_CHANNELS = 64 };

/* x, encoded: [groups][64]; scales: [groups], I8_G64 only. */
typedef void qsa_encode_fn(const float *x, int64_t groups, void *encoded, uint16_t *scales);
typedef void qsa_decode_fn(const void *encoded, const uint16_t *scales, int64_t groups, float *x);

qsa_encode_fn qsa_encode_f32_c, qsa_encode_f16_c, qsa_encode_bf16_c, qsa_encode_i8_c;
qsa_decode_fn qsa_decode_f32_c, qsa_decode_f16_c, qsa_decode_bf16_c, qsa_decode_i8_c;

/* The scale of a group whose largest magnitude is absmax, as a half. */
static inline uint16_t qsa_group_scale(float absmax) {
    if (absmax == 0.0f) {
        return 0x3c00; /* 1.0 */
    }
    uint16_t scale = qsa_f32_to_f16(absmax / 127.0f);
    return scale == 0 ? 1 : scale >= 0x7c00 ? 0x7bff : scale;
}

#endif
