/* SPDX-License-Identifier: MIT */
/* The K/V codecs against the words of docs/spec.md: scales, rounding, and every value that is not an ordinary number.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "support/sample.h"

enum { GROUP = 64 };

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* A finite binary16 as a number. */
static double half_value(unsigned h) {
    int exponent = (int)(h >> 10 & 31), fraction = (int)(h & 1023);
    double x = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return h & 0x8000 ? -x : x;
}

/* The finite half nearest to x >= 0, ties to even, by trying all. 65520 and more: 0x7c00. */
static unsigned nearest_half(double x) {
    unsigned best = 0;
    if (x >= 65520) {
        return 0x7c00;
    }
    for (unsigned h = 1; h < 0x7c00; h++) {
        double now = fabs(half_value(h) - x), least = fabs(half_value(best) - x);
        if (now < least || (now <= least && h % 2 == 0)) {
            best = h;
        }
    }
    return best;
}

static void encode(const float *x, int8_t *encoded, uint16_t *scale) {
    qsa_error error;
    sample_ok(qsa_kv_encode(QSA_I8_G64, 1, 1, x, encoded, scale, &error), &error);
}

/* ------------------------------------------------------------------------------------------------ int8 */

/* What the words say of one group of numbers, in double; the division and the half are the only roundings. */
static void check_group(const float *x) {
    int8_t encoded[GROUP];
    uint16_t scale;
    double absmax = 0;
    encode(x, encoded, &scale);
    for (int i = 0; i < GROUP; i++) {
        absmax = fabs((double)x[i]) > absmax ? fabs((double)x[i]) : absmax;
    }
    unsigned expected = absmax > 0 ? nearest_half((double)((float)absmax / 127.0f)) : 0x3c00;
    expected = expected == 0 ? 1 : expected >= 0x7c00 ? 0x7bff : expected;
    assert_int_equal(scale, expected);
    float step = (float)half_value(scale), back[GROUP];
    for (int i = 0; i < GROUP; i++) {
        float ratio = x[i] / step;
        long value = ratio > 127.0f ? 127 : ratio < -127.0f ? -127 : lrintf(ratio);
        assert_int_equal(encoded[i], value);
    }
    qsa_error error;
    sample_ok(qsa_kv_decode(QSA_I8_G64, 1, 1, encoded, &scale, back, &error), &error);
    for (int i = 0; i < GROUP; i++) {
        assert_true(bits_of(back[i]) == bits_of((float)encoded[i] * step));
    }
}

static void groups_follow_the_rule(void **state) {
    (void)state;
    /* from scales below the smallest half to above the largest, in factors of about 3 */
    uint64_t seed = 31;
    for (float size = 1e-9f; size < 1e9f; size *= 3.1f) {
        float *x = sample_floats(&seed, GROUP, size);
        check_group(x);
        x[7] = 5.0f * size; /* one that is larger than the others */
        check_group(x);
        x[9] = -5.5f * size;
        check_group(x);
        free(x);
    }
}

static void ties_go_to_even(void **state) {
    (void)state;
    float x[GROUP];
    for (int i = 0; i < GROUP; i++) {
        x[i] = (float)(i - 32) + 0.5f;
    }
    x[63] = 127.0f; /* scale 1 */
    int8_t encoded[GROUP];
    uint16_t scale;
    encode(x, encoded, &scale);
    assert_int_equal(scale, 0x3c00);
    for (int i = 0; i < 63; i++) {
        int below = i - 32, even = below % 2 == 0 ? below : below + 1;
        assert_int_equal(encoded[i], even);
    }
    assert_int_equal(encoded[63], 127);
    check_group(x);
}

static void a_group_of_zeros_has_scale_one(void **state) {
    (void)state;
    float x[GROUP] = {0.0f};
    int8_t encoded[GROUP];
    uint16_t scale;
    for (int negative = 0; negative < 2; negative++) {
        memset(encoded, 0x55, sizeof encoded);
        encode(x, encoded, &scale);
        assert_int_equal(scale, 0x3c00);
        for (int i = 0; i < GROUP; i++) {
            assert_int_equal(encoded[i], 0);
            x[i] = -0.0f;
        }
    }
}

static void scales_stay_finite_and_above_zero(void **state) {
    (void)state;
    float x[GROUP] = {0.0f};
    int8_t encoded[GROUP];
    uint16_t scale;
    const struct {
        float x;
        uint16_t scale;
        int8_t encoded;
    } cases[] = {
        {from_bits(1), 1, 0}, /* the smallest subnormal */
        {1e-20f, 1, 0},
        {-1e-20f, 1, 0}, /* far below */
        {2.9e-8f, 1, 0},
        {3.1e-8f, 1, 1},                  /* on both sides of half of 2^-24 */
        {-7.5e-6f, 1, -126},              /* 125.8 steps of 2^-24 */
        {65504.0f * 127.0f, 0x7bff, 127}, /* the largest scale that is exact */
        {65504.0f * 128.0f, 0x7bff, 127}, /* would round to infinity */
        {-1e30f, 0x7bff, -127},
        {3e38f, 0x7bff, 127},
        {INFINITY, 0x7bff, 127},
        {-INFINITY, 0x7bff, -127},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        x[17] = cases[i].x;
        encode(x, encoded, &scale);
        assert_int_equal(scale, cases[i].scale);
        for (int c = 0; c < GROUP; c++) {
            assert_int_equal(encoded[c], c == 17 ? cases[i].encoded : 0);
        }
    }
}

/* A NaN is element 0, whichever NaN it is, and the others are as if it were a zero. */
static void a_nan_becomes_zero(void **state) {
    (void)state;
    static const uint32_t nans[] = {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffffffffu};
    uint64_t seed = 32;
    float *x = sample_floats(&seed, GROUP, 3.0f), without[GROUP];
    int8_t a[GROUP], b[GROUP];
    uint16_t scale_a, scale_b;
    for (int i = 0; i < 4; i++) {
        memcpy(without, x, sizeof without);
        without[i * 20] = 0.0f;
        encode(without, a, &scale_a);
        memcpy(x + i * 20, &nans[i], sizeof *x);
        encode(x, b, &scale_b);
        assert_int_equal(scale_a, scale_b);
        assert_memory_equal(a, b, sizeof a);
        x[i * 20] = 0.25f;
    }
    for (int i = 0; i < GROUP; i++) {
        x[i] = NAN;
    }
    encode(x, b, &scale_b);
    assert_int_equal(scale_b, 0x3c00);
    for (int i = 0; i < GROUP; i++) {
        assert_int_equal(b[i], 0);
    }
    free(x);
}

/* Groups do not know of each other, however they are counted. */
static void groups_are_apart(void **state) {
    (void)state;
    uint64_t seed = 33;
    enum { COUNT = 5, GROUPS = 3 };
    float *x = sample_floats(&seed, COUNT * GROUPS * GROUP, 1.0f);
    int8_t all[COUNT * GROUPS * GROUP], one[GROUP];
    uint16_t scales[COUNT * GROUPS], scale;
    for (int g = 0; g < COUNT * GROUPS; g++) {
        for (int i = 0; i < GROUP; i++) {
            x[g * GROUP + i] *= (float)(g + 1);
        }
    }
    x[2 * GROUP] = NAN, x[4 * GROUP + 3] = INFINITY;
    assert_int_equal(qsa_kv_encode(QSA_I8_G64, COUNT, GROUPS, x, all, scales, NULL), QSA_OK);
    for (int g = 0; g < COUNT * GROUPS; g++) {
        encode(x + g * GROUP, one, &scale);
        assert_int_equal(scale, scales[g]);
        assert_memory_equal(one, all + g * GROUP, GROUP);
    }
    free(x);
}

/* ------------------------------------------------------------------------------------------------ 16 and 32 bits */

/* Every half, decoded and encoded again. */
static void halves_survive_the_round_trip(void **state) {
    (void)state;
    static uint16_t halves[65536], back[65536];
    static float x[65536];
    for (int type = QSA_F16; type <= QSA_BF16; type++) {
        for (unsigned h = 0; h < 65536; h++) {
            halves[h] = (uint16_t)h;
        }
        assert_int_equal(qsa_kv_decode((qsa_type)type, 1024, 1, halves, NULL, x, NULL), QSA_OK);
        assert_int_equal(qsa_kv_encode((qsa_type)type, 1024, 1, x, back, NULL, NULL), QSA_OK);
        for (unsigned h = 0; h < 65536; h++) {
            unsigned exponent = type == QSA_F16 ? 0x7c00u : 0x7f80u, rest = h & 0x7fffu;
            if (rest > exponent) { /* a NaN stays a NaN of its sign, quiet */
                assert_true(isnan(x[h]) && (back[h] & 0x7fffu) > exponent && (back[h] & 0x8000u) == (h & 0x8000u));
            } else {
                assert_int_equal(back[h], h);
                if (type == QSA_F16 && rest < exponent) {
                    assert_true((double)x[h] <= half_value(h) && (double)x[h] >= half_value(h));
                } else if (type == QSA_BF16) {
                    assert_true(bits_of(x[h]) == h << 16);
                } else {
                    assert_true(isinf(x[h]));
                }
            }
        }
    }
}

/* Between each two neighbours: just below the middle, the middle, just above. */
static void halves_are_nearest_with_ties_to_even(void **state) {
    (void)state;
    for (unsigned low = 0; low<0x7bff; low += low % 1024> 3 && low % 1024 < 1019 ? 5 : 1) {
        float middle = (float)((half_value(low) + half_value(low + 1)) / 2), x[GROUP] = {0.0f}; /* exact */
        uint16_t h[GROUP];
        x[0] = from_bits(bits_of(middle) - 1), x[1] = middle, x[2] = from_bits(bits_of(middle) + 1);
        x[3] = -x[0], x[4] = -x[1], x[5] = -x[2];
        assert_int_equal(qsa_kv_encode(QSA_F16, 1, 1, x, h, NULL, NULL), QSA_OK);
        unsigned even = low % 2 ? low + 1 : low;
        assert_true(h[0] == low && h[1] == even && h[2] == low + 1);
        assert_true(h[3] == (low | 0x8000) && h[4] == (even | 0x8000) && h[5] == ((low + 1) | 0x8000));
    }
    for (uint32_t low = 0; low < 0x7f7f; low += 3) {
        float x[GROUP] = {0.0f};
        uint16_t h[GROUP];
        x[0] = from_bits(low << 16 | 0x7fff), x[1] = from_bits(low << 16 | 0x8000),
        x[2] = from_bits(low << 16 | 0x8001);
        assert_int_equal(qsa_kv_encode(QSA_BF16, 1, 1, x, h, NULL, NULL), QSA_OK);
        assert_true(h[0] == low && h[1] == (low % 2 ? low + 1 : low) && h[2] == low + 1);
    }
    const float edges[GROUP] = {65504.0f, 65519.0f, 65520.0f, 1e38f, -65520.0f, INFINITY, -INFINITY};
    const uint16_t expected[] = {0x7bff, 0x7bff, 0x7c00, 0x7c00, 0xfc00, 0x7c00, 0xfc00};
    uint16_t h[GROUP];
    assert_int_equal(qsa_kv_encode(QSA_F16, 1, 1, edges, h, NULL, NULL), QSA_OK);
    assert_memory_equal(h, expected, sizeof expected);
    const float large[GROUP] = {3.4028235e38f, -3.4028235e38f, 3.389e38f};
    assert_int_equal(qsa_kv_encode(QSA_BF16, 1, 1, large, h, NULL, NULL), QSA_OK);
    assert_true(h[0] == 0x7f80 && h[1] == 0xff80 && h[2] == 0x7f7f);
}

static void f32_is_kept_bit_by_bit(void **state) {
    (void)state;
    uint32_t bits[2 * GROUP], encoded[2 * GROUP], back[2 * GROUP];
    for (uint32_t i = 0; i < 2 * GROUP; i++) {
        bits[i] = i * 0x02030507u ^ 0x7f800000u;
    }
    float x[2 * GROUP], y[2 * GROUP];
    memcpy(x, bits, sizeof x);
    assert_int_equal(qsa_kv_encode(QSA_F32, 2, 1, x, encoded, NULL, NULL), QSA_OK);
    assert_int_equal(qsa_kv_decode(QSA_F32, 1, 2, encoded, NULL, y, NULL), QSA_OK);
    memcpy(back, y, sizeof y);
    assert_memory_equal(encoded, bits, sizeof bits);
    assert_memory_equal(back, bits, sizeof bits);
}

/* ------------------------------------------------------------------------------------------------ many at once */

/* A large call may use other kernels than a small one: the same bytes, of ordinary numbers and of every other kind. */
static void many_groups_are_as_few(void **state) {
    (void)state;
    enum { GROUPS = 600, VALUES = GROUPS * GROUP };
    static const float odd[] = {0.0f, -0.0f, 1e-40f, -1e-30f, 6e-8f, 65519.9f, 65520.0f, -3e38f};
    static const qsa_type types[] = {QSA_F32, QSA_F16, QSA_BF16, QSA_I8_G64};
    uint64_t seed = 23;
    float *x = sample_floats(&seed, VALUES, 3.0f), *back = malloc(2 * VALUES * sizeof *back);
    unsigned char *encoded = malloc(2 * VALUES * sizeof *x);
    uint16_t scales[2 * GROUPS];
    assert_true(back && encoded);
    for (int i = 0; i < VALUES; i += 7) {
        x[i] = i % 3 ? odd[i % 8] : from_bits((uint32_t)i * 2654435761u); /* NaN among them */
    }
    for (int t = 0; t < 4; t++) {
        int64_t bytes = types[t] == QSA_F32 ? 4 : types[t] == QSA_I8_G64 ? 1 : 2;
        uint16_t *many = types[t] == QSA_I8_G64 ? scales : NULL, *few = many ? scales + GROUPS : NULL;
        unsigned char *one = encoded + VALUES * bytes;
        assert_int_equal(qsa_kv_encode(types[t], 10, GROUPS / 10, x, encoded, many, NULL), QSA_OK);
        assert_int_equal(qsa_kv_decode(types[t], 1, GROUPS, encoded, many, back, NULL), QSA_OK);
        for (int g = 0; g < GROUPS; g++) {
            uint16_t *scale = few ? few + g : NULL;
            unsigned char *at = one + g * GROUP * bytes;
            assert_int_equal(qsa_kv_encode(types[t], 1, 1, x + g * GROUP, at, scale, NULL), QSA_OK);
            assert_int_equal(qsa_kv_decode(types[t], 1, 1, at, scale, back + VALUES + g * GROUP, NULL), QSA_OK);
        }
        assert_memory_equal(encoded, one, (size_t)(VALUES * bytes));
        assert_memory_equal(back, back + VALUES, VALUES * sizeof *back);
        if (many) {
            assert_memory_equal(many, few, GROUPS * sizeof *many);
        }
    }
    free(x);
    free(back);
    free(encoded);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_follow_the_rule),
        cmocka_unit_test(ties_go_to_even),
        cmocka_unit_test(a_group_of_zeros_has_scale_one),
        cmocka_unit_test(scales_stay_finite_and_above_zero),
        cmocka_unit_test(a_nan_becomes_zero),
        cmocka_unit_test(groups_are_apart),
        cmocka_unit_test(halves_survive_the_round_trip),
        cmocka_unit_test(halves_are_nearest_with_ties_to_even),
        cmocka_unit_test(f32_is_kept_bit_by_bit),
        cmocka_unit_test(many_groups_are_as_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
