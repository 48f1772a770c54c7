/* SPDX-License-Identifier: MIT */
/* Random numbers that are the same everywhere: a seeded xoshiro256**, used through exact arithmetic only. */
#ifndef QSA_TEST_RNG_H
#define QSA_TEST_RNG_H

#include <stdint.h>

typedef struct rng {
    uint64_t state[4];
} rng;

/* `seed`, or QSA_SEED from the environment; printed, so that a failure can be run again. */
uint64_t test_seed(uint64_t seed);

rng rng_of(uint64_t seed);
uint64_t rng_next(rng *r);
int64_t rng_range(rng *r, int64_t low, int64_t high); /* low..high, both included */
float rng_float(rng *r);                              /* -1..1, a multiple of 2^-23 */
void rng_fill(rng *r, int64_t count, float scale, float *x);
float *rng_floats(rng *r, int64_t count, float scale); /* from malloc */

#endif
