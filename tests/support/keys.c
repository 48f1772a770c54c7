/* SPDX-License-Identifier: MIT */
#include "support/keys.h"

#include <math.h>
#include <string.h>

key_source key_source_of(rng *random, key_kind kind, int64_t dim) {
    key_source s = {.random = random, .kind = kind, .dim = dim};
    for (int i = 0; i < 3; i++) {
        rng_fill(random, dim, 1.0f, s.base[i]);
    }
    return s;
}

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static int one_in(rng *r, int64_t n) {
    return rng_range(r, 1, n) == 1;
}

static float channel(key_source *s, int64_t c, float size) {
    rng *r = s->random;
    float x = rng_float(r);
    switch (s->kind) {
    case KEYS_CORRELATED: return s->base[0][c] + 0.1f * x;
    case KEYS_DRIFTING: return s->base[0][c] = 0.95f * s->base[0][c] + 0.2f * x;
    case KEYS_OUTLIERS: return x * size * (c % 16 == 5 ? 20.0f : 1.0f);
    case KEYS_EQUAL: return s->base[0][c];
    case KEYS_ZERO: return 0.0f;
    case KEYS_SIGNED_ZEROS: return x < 0 ? -0.0f : 0.0f;
    case KEYS_INTEGERS: return (float)rng_range(r, -2, 2);
    case KEYS_SPARSE: return one_in(r, 20) ? x : 0.0f;
    case KEYS_WIDE: return x * size;
    case KEYS_HUGE: return x * 3e38f;
    case KEYS_DENORMAL: return from_bits((uint32_t)rng_next(r) & 0x807fffffu);
    case KEYS_TINY: return x * 1e-20f;
    default: return x;
    }
}

void key_next(key_source *s, int64_t i, float *key) {
    rng *r = s->random;
    float size = s->kind == KEYS_WIDE ? ldexpf(1.0f, (int)rng_range(r, -40, 40)) : one_in(r, 100) ? 5.0f : 1.0f;
    for (int64_t c = 0; c < s->dim; c++) {
        key[c] = channel(s, c, size);
    }
    int64_t c = rng_range(r, 0, s->dim - 1);
    switch (s->kind) {
    case KEYS_FEW: memcpy(key, s->base[rng_range(r, 0, 2)], (size_t)s->dim * sizeof *key); break;
    case KEYS_LAST_BITS:
        memcpy(key, s->base[0], (size_t)s->dim * sizeof *key);
        key[c] = i % 3 ? nextafterf(key[c], 2.0f) : key[c];
        break;
    case KEYS_INFINITIES: key[c] = one_in(r, 100) ? (one_in(r, 2) ? INFINITY : -INFINITY) : key[c]; break;
    case KEYS_NANS: key[c] = one_in(r, 100) ? NAN : key[c]; break;
    case KEYS_MOSTLY_NANS: key[c] = one_in(r, 50) ? key[c] : NAN; break;
    default: break;
    }
}
