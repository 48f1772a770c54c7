/* SPDX-License-Identifier: MIT */
/*
 * The arithmetic that every room shares, with the same bits on every machine: fused multiply-add, exp, half and bf16, the
 * written order of a sum. docs/numerics.md gives the bounds. Nothing here needs libm.
 */
#ifndef QSA_RUNTIME_NUMERICS_H
#define QSA_RUNTIME_NUMERICS_H

#include <qsa/qsa.h>

#include <string.h>

static inline uint32_t qsa_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float qsa_from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Bytes of an element of K or V; 0 for a type that these cannot have. */
int64_t qsa_kv_element(qsa_type type);

#define QSA_INFINITY (qsa_from_bits(0x7f800000u))

/*
 * a * b + c rounded once. Without the instruction: the product is exact in double; the sum is rounded to odd there, which
 * leaves enough of what was lost for the second rounding, to float, to be the right one (Boldo and Melquiond, 2008).
 */
static inline float qsa_fma(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_fmaf(a, b, c);
#else
    double product = (double)a * (double)b;
    double sum = product + (double)c;
    double back = sum - product;
    double lost = (product - (sum - back)) + ((double)c - back);
    if (lost > 0 || lost < 0) { /* false for NaN, which infinities give */
        uint64_t bits;
        memcpy(&bits, &sum, sizeof bits);
        if (!(bits & 1)) {
            bits += (lost > 0) == (sum > 0) ? 1 : UINT64_MAX;
        }
        memcpy(&sum, &bits, sizeof sum);
    }
    return (float)sum;
#endif
}

/* Nearest integer, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no room for a fraction. */
static inline float qsa_rint(float x) {
    return (x + 12582912.0f) - 12582912.0f;
}

/*
 * e^x: 0 below -87, infinity above 88. x = n ln 2 + r with ln 2 in two terms, a polynomial of degree 7 in r, times 2^n.
 * Every vector kernel repeats exactly these operations.
 */
#define QSA_EXP_LOW (-87.0f)
#define QSA_EXP_HIGH 88.0f
#define QSA_EXP_LOG2E 1.44269504f
#define QSA_EXP_MAGIC 12582912.0f /* its last bits hold n */
#define QSA_EXP_LN2_HIGH 0.693359375f
#define QSA_EXP_LN2_LOW (-2.12194440e-4f)
#define QSA_EXP_C7 1.98412698e-4f
#define QSA_EXP_C6 1.38888889e-3f
#define QSA_EXP_C5 8.33333333e-3f
#define QSA_EXP_C4 4.16666667e-2f
#define QSA_EXP_C3 1.66666667e-1f
#define QSA_EXP_C2 0.5f

static inline float qsa_exp(float x) {
    float shifted = qsa_fma(x, QSA_EXP_LOG2E, QSA_EXP_MAGIC);
    float n = shifted - QSA_EXP_MAGIC;
    float r = qsa_fma(n, -QSA_EXP_LN2_HIGH, x);
    r = qsa_fma(n, -QSA_EXP_LN2_LOW, r);
    float p = QSA_EXP_C7;
    p = qsa_fma(p, r, QSA_EXP_C6);
    p = qsa_fma(p, r, QSA_EXP_C5);
    p = qsa_fma(p, r, QSA_EXP_C4);
    p = qsa_fma(p, r, QSA_EXP_C3);
    p = qsa_fma(p, r, QSA_EXP_C2);
    p = qsa_fma(p, r, 1.0f);
    p = qsa_fma(p, r, 1.0f);
    float power = qsa_from_bits((qsa_bits(shifted) + 127u) << 23);
    float result = p * power;
    result = x < QSA_EXP_LOW ? 0.0f : result;
    return x > QSA_EXP_HIGH ? QSA_INFINITY : result;
}

static inline float qsa_bf16_to_f32(uint16_t x) {
    return qsa_from_bits((uint32_t)x << 16);
}

/* To nearest even; a NaN stays one. */
static inline uint16_t qsa_f32_to_bf16(float x) {
    uint32_t bits = qsa_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((bits >> 16) | 0x40u);
    }
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float qsa_f16_to_f32(uint16_t x) {
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16;
    uint32_t rest = x & 0x7fffu;
    if (rest >= 0x7c00u) { /* infinity, NaN (made quiet, as the instructions do) */
        uint32_t quiet = rest > 0x7c00u ? 0x400000u : 0u;
        return qsa_from_bits(sign | 0x7f800000u | ((rest & 0x3ffu) << 13) | quiet);
    }
    if (rest >= 0x400u) {
        return qsa_from_bits(sign | ((rest << 13) + (112u << 23)));
    }
    float small = (float)rest * 5.9604644775390625e-8f; /* 2^-24 */
    return qsa_from_bits(sign | qsa_bits(small));
}

/* To nearest even, below 2^-24 as subnormals, above 65504 as infinity; a NaN stays one. */
static inline uint16_t qsa_f32_to_f16(float x) {
    uint32_t bits = qsa_bits(x);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t rest = bits & 0x7fffffffu;
    if (rest >= 0x7f800000u) {
        uint32_t payload = rest > 0x7f800000u ? 0x200u | ((rest >> 13) & 0x3ffu) : 0u;
        return (uint16_t)(sign | 0x7c00u | payload);
    }
    if (rest >= 0x477ff000u) { /* 65520 and more */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (rest < 0x38800000u) { /* below 2^-14: adding 0.5 rounds at 2^-24 */
        float magic = qsa_from_bits(rest) + 0.5f;
        return (uint16_t)(sign | (qsa_bits(magic) - 0x3f000000u));
    }
    rest -= 112u << 23;
    return (uint16_t)(sign | ((rest + 0xfffu + ((rest >> 13) & 1u)) >> 13));
}

/* Adds 16 lanes in the written order: the upper half to the lower, 8, 4, 2, 1. */
static inline float qsa_fold16(float lane[16]) {
    for (int half = 8; half >= 1; half /= 2) {
        for (int l = 0; l < half; l++) {
            lane[l] = lane[l] + lane[l + half];
        }
    }
    return lane[0];
}

/* sum a[i] b[i]: lane l takes l, l + 16, ... with one fused multiply-add each, then qsa_fold16. */
static inline float qsa_dot16(const float *a, const float *b, int64_t n) {
    float lane[16] = {0};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (int l = 0; l < 16; l++) {
            lane[l] = qsa_fma(a[i + l], b[i + l], lane[l]);
        }
    }
    for (int l = 0; i + l < n; l++) {
        lane[l] = qsa_fma(a[i + l], b[i + l], lane[l]);
    }
    return qsa_fold16(lane);
}

/*
 * A group of values as integers of at most QSA_GRID: value ~ integer * step. QSA_GRID = 127 * 256 + 127 is the largest
 * integer whose two signed digits in base 256 fit int8, so that a kernel may work with 16-bit integers or with digits. The
 * largest magnitude decides, compared as bits, where NaN > infinity > numbers. Below 2^-100 the group counts as zeros; an
 * infinity or NaN makes step NaN, so that what is multiplied by it says so.
 */
#define QSA_GRID 32639.0f
#define QSA_GRID_LEAST 0x0d800000u /* 2^-100 */
#define QSA_GRID_NONE 0x7f800000u  /* infinity */

typedef struct qsa_grid {
    float inverse; /* integers per unit: rint(value * inverse); 0 where all integers are 0 */
    float step;    /* value of one integer */
} qsa_grid;

static inline uint32_t qsa_magnitude(float x) {
    return qsa_bits(x) & 0x7fffffffu;
}

static inline qsa_grid qsa_grid_of(uint32_t largest) {
    qsa_grid grid = {0.0f, 0.0f};
    if (largest >= QSA_GRID_NONE) {
        grid.step = qsa_from_bits(0x7fc00000u);
    } else if (largest >= QSA_GRID_LEAST) {
        float value = qsa_from_bits(largest);
        grid.inverse = QSA_GRID / value;
        grid.step = value * (1.0f / QSA_GRID);
    }
    return grid;
}

/* rint(x * inverse); 0 where inverse is 0, whatever x is. */
static inline int16_t qsa_grid_round(float x, float inverse) {
    return (int16_t)(inverse > 0.0f ? qsa_rint(x * inverse) : 0.0f);
}

/* Square root in double, within 1 ulp, by Newton's iteration. 0 for x <= 0. */
double qsa_sqrt(double x);
double qsa_exp64(double x);
double qsa_log64(double x);
/* For |x| up to 2^31 or so, absolute error below 1e-15. */
void qsa_sincos(double x, double *s, double *c);

/* x / sqrt(mean(x^2) + eps) * (1 + weight); out may be x. */
void qsa_rms_norm(const float *x, const float *weight, float eps, int64_t n, float *out);

/* rope: defaults filled. frequency: [dims / 2], radians a position; left alone where the rope has a table. */
void qsa_rope_frequencies(const qsa_rope *rope, double *frequency);

/* {cos, sin} of position * frequency, rounded to f32: cos_sin is [pairs][2]. 0 <= position < 2^31. */
void qsa_angles_f64_c(const double *frequency, int64_t pairs, int64_t position, float *cos_sin);

/* Turns the pairs (i, i + dims / 2) of x in place. */
void qsa_rope_apply(float *x, const float *cos_sin, int64_t dims);

#endif
