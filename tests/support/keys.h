/* SPDX-License-Identifier: MIT */
/* Index keys and queries of every kind: what a norm makes, and what it never would. */
#ifndef QSA_TEST_KEYS_H
#define QSA_TEST_KEYS_H

#include "support/rng.h"

typedef enum key_kind {
    KEYS_AS_BUILT,   /* none: leave what the cache has built */
    KEYS_PLAIN,      /* -1..1 */
    KEYS_CORRELATED, /* one vector and a little noise */
    KEYS_DRIFTING,   /* each near the one before */
    KEYS_OUTLIERS,   /* channels 20 times as large as others; few keys 5 times */
    KEYS_EQUAL,
    KEYS_ZERO,
    KEYS_SIGNED_ZEROS,
    KEYS_FEW,       /* one of three vectors: ties */
    KEYS_INTEGERS,  /* -2..2: exact sums, many of them 0 */
    KEYS_LAST_BITS, /* one vector but for a last bit: scores an ulp apart, or equal */
    KEYS_SPARSE,    /* mostly zeros */
    KEYS_WIDE,      /* each key of a size of its own, 2^-40 .. 2^40 */
    KEYS_HUGE,      /* up to 3e38 */
    KEYS_DENORMAL,
    KEYS_TINY,       /* 1e-20 */
    KEYS_INFINITIES, /* plain, 1 in 100 keys with an infinity */
    KEYS_NANS,       /* plain, 1 in 100 keys with a NaN */
    KEYS_MOSTLY_NANS,
    KEY_KINDS
} key_kind;

typedef struct key_source {
    rng *random;
    key_kind kind;
    int64_t dim;
    float base[3][512];
} key_source;

key_source key_source_of(rng *random, key_kind kind, int64_t dim);

/* Key i, the kind's next: [dim]. Not of KEYS_AS_BUILT. */
void key_next(key_source *source, int64_t i, float *key);

#endif
