/* SPDX-License-Identifier: MIT */
/* xoshiro256** (Blackman and Vigna), seeded by splitmix64. */
#include "support/rng.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

uint64_t test_seed(uint64_t seed) {
    const char *set = getenv("QSA_SEED");
    if (set && *set) {
        seed = strtoull(set, NULL, 0);
    }
    printf("seed %" PRIu64 " (QSA_SEED sets another)\n", seed);
    return seed;
}

rng rng_of(uint64_t seed) {
    rng r;
    for (int i = 0; i < 4; i++) {
        uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        r.state[i] = z ^ (z >> 31);
    }
    return r;
}

static uint64_t turn(uint64_t x, int by) {
    return (x << by) | (x >> (64 - by));
}

uint64_t rng_next(rng *r) {
    uint64_t *s = r->state;
    uint64_t result = turn(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = turn(s[3], 45);
    return result;
}

int64_t rng_range(rng *r, int64_t low, int64_t high) {
    return low + (int64_t)(rng_next(r) % (uint64_t)(high - low + 1));
}

float rng_float(rng *r) {
    return (float)((int64_t)(rng_next(r) >> 40) - (1 << 23)) * (1.0f / (1 << 23));
}

void rng_fill(rng *r, int64_t count, float scale, float *x) {
    for (int64_t i = 0; i < count; i++) {
        x[i] = rng_float(r) * scale;
    }
}

float *rng_floats(rng *r, int64_t count, float scale) {
    float *x = malloc((size_t)(count > 0 ? count : 1) * sizeof *x);
    if (!x) {
        abort();
    }
    rng_fill(r, count, scale, x);
    return x;
}
