/* SPDX-License-Identifier: MIT */
/* The codecs of K/V: one head of one cell at a time. docs/spec.md, "int8_g64". */
#ifndef QSA_CACHE_CODEC_H
#define QSA_CACHE_CODEC_H

#include "runtime/numerics.h"

/* x, encoded: [groups * 64]; scales: [groups], I8_G64 only. */
void qsa_encode_head(qsa_type type, const float *x, int64_t groups, void *encoded, uint16_t *scales);
void qsa_decode_head(qsa_type type, const void *encoded, const uint16_t *scales, int64_t groups, float *x);

#endif
