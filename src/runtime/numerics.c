/* SPDX-License-Identifier: MIT */
/* Square root, exp, log, sine and cosine in plain double arithmetic, and the two model operations made of them. */
#include "runtime/numerics.h"

int64_t qsa_kv_element(qsa_type type) {
    switch (type) {
    case QSA_F32: return 4;
    case QSA_F16:
    case QSA_BF16: return 2;
    case QSA_I8_G64: return 1;
    default: return 0;
    }
}

double qsa_sqrt(double x) {
    if (!(x > 0)) {
        return 0;
    }
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = UINT64_C(0x5fe6eb50c7b537a9) - (bits >> 1); /* 1/sqrt within 4 %: halve and negate the exponent */
    double y;
    memcpy(&y, &bits, sizeof y);
    for (int i = 0; i < 5; i++) {
        y = y * (1.5 - 0.5 * x * y * y);
    }
    double root = x * y;
    return 0.5 * (root + x / root);
}

static const double ln2_high = 6.93147180369123816490e-01; /* 33 bits: n * ln2_high is exact */
static const double ln2_low = 1.90821492927058770002e-10;

double qsa_exp64(double x) {
    if (x < -700) {
        return 0;
    }
    if (x > 700) {
        x = 700;
    }
    double n = (x * 1.4426950408889634 + 6755399441055744.0) - 6755399441055744.0;
    double r = (x - n * ln2_high) - n * ln2_low;
    double sum = 1;
    for (int i = 16; i >= 1; i--) {
        sum = 1 + sum * r / i;
    }
    uint64_t bits = (uint64_t)((int64_t)n + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return sum * power;
}

double qsa_log64(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int64_t n = (int64_t)(bits >> 52) - 1023;
    bits = (bits & UINT64_C(0x000fffffffffffff)) | UINT64_C(0x3ff0000000000000);
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        n += 1;
    }
    double s = (m - 1) / (m + 1); /* log m = 2 atanh s, |s| < 0.172 */
    double sum = 0;
    for (int i = 23; i >= 1; i -= 2) {
        sum = sum * s * s + 1.0 / i;
    }
    return (double)n * ln2_high + (2 * s * sum + (double)n * ln2_low);
}

/* Veltkamp: the upper 26 bits of x. */
static double upper(double x) {
    double scaled = x * 134217729.0;
    return scaled - (scaled - x);
}

void qsa_sincos(double x, double *s, double *c) {
    static const double half_pi_high = 1.5707963267948966;
    static const double half_pi_low = 6.123233995736766e-17;
    double k = (x * 0.6366197723675814 + 6755399441055744.0) - 6755399441055744.0;
    /* k * half_pi_high exactly, as product + rest (Dekker) */
    double product = k * half_pi_high;
    double k1 = upper(k), k2 = k - k1;
    double p1 = upper(half_pi_high), p2 = half_pi_high - p1;
    double rest = ((k1 * p1 - product) + k1 * p2 + k2 * p1) + k2 * p2;
    double r = ((x - product) - rest) - k * half_pi_low;
    double r2 = r * r;
    double sine = 0, cosine = 0;
    for (int i = 17; i >= 3; i -= 2) {
        sine = r2 / (i * (i - 1)) * (1 - sine);
    }
    sine = r * (1 - sine);
    for (int i = 18; i >= 2; i -= 2) {
        cosine = r2 / (i * (i - 1)) * (1 - cosine);
    }
    cosine = 1 - cosine;
    switch ((int64_t)k & 3) {
    case 0: *s = sine, *c = cosine; break;
    case 1: *s = cosine, *c = -sine; break;
    case 2: *s = -sine, *c = -cosine; break;
    default: *s = -cosine, *c = sine; break;
    }
}

void qsa_rms_norm(const float *x, const float *weight, float eps, int64_t n, float *out) {
    double mean = (double)qsa_dot16(x, x, n) / (double)n + (double)eps;
    float inverse = (float)(1.0 / qsa_sqrt(mean));
    for (int64_t i = 0; i < n; i++) {
        out[i] = x[i] * inverse * (1.0f + weight[i]);
    }
}

void qsa_rope_frequencies(const qsa_rope *rope, double *frequency) {
    if (rope->table) {
        return;
    }
    double log_theta = qsa_log64(rope->theta);
    for (int64_t i = 0; i < rope->dims / 2; i++) {
        frequency[i] = qsa_exp64(-(double)(2 * i) / (double)rope->dims * log_theta);
    }
}

void qsa_angles_f64_c(const double *frequency, int64_t pairs, int64_t position, float *cos_sin) {
    for (int64_t i = 0; i < pairs; i++) {
        double s, c;
        qsa_sincos((double)position * frequency[i], &s, &c);
        cos_sin[2 * i] = (float)c;
        cos_sin[2 * i + 1] = (float)s;
    }
}

void qsa_rope_apply(float *x, const float *cos_sin, int64_t dims) {
    int64_t half = dims / 2;
    for (int64_t i = 0; i < half; i++) {
        float c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
        float a = x[i], b = x[i + half];
        x[i] = a * c - b * s;
        x[i + half] = b * c + a * s;
    }
}
