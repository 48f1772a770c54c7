/* SPDX-License-Identifier: MIT */
/* The four stages in float64: as plain as the formulas of docs/spec.md. */
#include "oracle/oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INFINITE     ((double)INFINITY)
#define NOT_A_NUMBER ((double)NAN)

static void *room(int64_t count, size_t size) {
    void *memory = calloc((size_t)(count > 0 ? count : 1), size);
    if (!memory) {
        abort(); /* a test without memory has no result */
    }
    return memory;
}

/* ---- number formats ---- */

/* A float format of 16 bits: sign, exponent, `fraction` bits; `least` is the exponent of its smallest normal number. */
static double from_bits(uint16_t bits, int fraction, int least) {
    int exponent = (bits & 0x7fff) >> fraction, all_ones = (0x7fff >> fraction);
    double mantissa = bits & ((1 << fraction) - 1);
    double x;
    if (exponent == all_ones) {
        x = mantissa > 0 ? NOT_A_NUMBER : INFINITE;
    } else if (exponent == 0) {
        x = ldexp(mantissa, least - fraction);
    } else {
        x = ldexp(mantissa + (double)(1 << fraction), exponent - 1 + least - fraction);
    }
    return bits & 0x8000 ? -x : x;
}

static uint16_t to_bits(double x, int fraction, int least) {
    uint16_t sign = signbit(x) ? 0x8000 : 0, infinity = (uint16_t)(0x7fff >> fraction << fraction);
    if (isnan(x)) {
        return (uint16_t)(sign | infinity | (1 << (fraction - 1)));
    }
    double size = fabs(x);
    if (size >= ldexp(1.0, 2 - least)) { /* the exponents are symmetric: the first power of two above the largest */
        return sign | infinity;
    }
    int exponent = size > 0 ? ilogb(size) : least;
    exponent = exponent < least ? least : exponent;
    /* The hidden bit and a carry out of the fraction both add one to the exponent field by themselves. */
    int steps = (int)nearbyint(ldexp(size, fraction - exponent));
    return (uint16_t)(sign | (((exponent - least) << fraction) + steps));
}

double oracle_from_f16(uint16_t bits) {
    return from_bits(bits, 10, -14);
}

double oracle_from_bf16(uint16_t bits) {
    return from_bits(bits, 7, -126);
}

uint16_t oracle_to_f16(double x) {
    return to_bits(x, 10, -14);
}

uint16_t oracle_to_bf16(double x) {
    return to_bits(x, 7, -126);
}

double oracle_round(qsa_type type, double x) {
    if (type == QSA_F16) {
        return oracle_from_f16(oracle_to_f16(x));
    }
    return type == QSA_BF16 ? oracle_from_bf16(oracle_to_bf16(x)) : (double)(float)x;
}

void oracle_i8_encode(int64_t groups, const float *x, int8_t *values, uint16_t *scales) {
    for (int64_t g = 0; g < groups; g++, x += 64, values += 64) {
        float largest = 0;
        for (int i = 0; i < 64; i++) {
            largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest; /* a NaN is passed over */
        }
        float quotient = largest / 127.0f;
        uint16_t bits = oracle_to_f16((double)quotient);
        if (largest == 0) {
            bits = oracle_to_f16(1.0);
        } else if (bits == 0) {
            bits = 1;
        } else if (bits >= 0x7c00) {
            bits = 0x7bff;
        }
        scales[g] = bits;
        float scale = (float)oracle_from_f16(bits);
        for (int i = 0; i < 64; i++) {
            float steps = rintf(x[i] / scale);
            values[i] = isnan(steps) ? (int8_t)0 : (int8_t)fminf(fmaxf(steps, -127.0f), 127.0f);
        }
    }
}

void oracle_i8_decode(int64_t groups, const int8_t *values, const uint16_t *scales, double *x) {
    for (int64_t i = 0; i < groups * 64; i++) {
        x[i] = (double)(float)((double)values[i] * oracle_from_f16(scales[i / 64])); /* in f32, says the format */
    }
}

/* ---- block keys ---- */

void oracle_rotate(double *x, int64_t dims, double theta, int64_t position) {
    for (int64_t i = 0; i < dims / 2; i++) {
        double angle = (double)position * pow(theta, -2.0 * (double)i / (double)dims);
        double a = x[i], b = x[i + dims / 2];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + dims / 2] = b * cos(angle) + a * sin(angle);
    }
}

void oracle_block_key(const oracle_key_rule *rule, const float *raw, int64_t position, double *key) {
    double squares = 0;
    for (int64_t i = 0; i < rule->dim; i++) {
        float sum = raw[i];
        for (int64_t c = 1; c < rule->block; c++) {
            sum += raw[c * rule->dim + i];
        }
        key[i] = oracle_round(rule->type, (double)(sum / (float)rule->block));
        squares += key[i] * key[i];
    }
    double length = sqrt(squares / (double)rule->dim + rule->eps);
    for (int64_t i = 0; i < rule->dim; i++) {
        key[i] = key[i] / length * (1.0 + (double)rule->weight[i]);
    }
    oracle_rotate(key, rule->rope_dims, rule->theta, position);
    for (int64_t i = 0; i < rule->dim; i++) {
        key[i] = oracle_round(rule->type, key[i]);
    }
}

/* ---- score ---- */

double oracle_score(const qsa_shape *shape, const float *iq, const double *key, double *weight) {
    double score = 0, size = 0;
    for (int64_t h = 0; h < shape->index_heads; h++) {
        double dot = 0;
        for (int64_t i = 0; i < shape->index_dim; i++) {
            double product = (double)iq[h * shape->index_dim + i] * key[i];
            dot += product;
            size += fabs(product);
        }
        score += isnan(dot) ? dot : fmax(dot, 0);
    }
    if (weight) {
        *weight = size * (double)shape->index_scale;
    }
    return score * (double)shape->index_scale;
}

/* ---- select ---- */

/* Whether b must stand before a, which comes first by number. */
static int overtakes(float a, float b) {
    if (isnan(a) || isnan(b)) {
        return isnan(a) && !isnan(b);
    }
    return b > a;
}

/* Merge sort from below: stable, so that equal scores keep the order of their blocks. */
void oracle_order(int64_t blocks, const float *scores, int32_t *order) {
    int32_t *other = room(blocks, sizeof *other), *from = order, *to = other;
    for (int64_t b = 0; b < blocks; b++) {
        order[b] = (int32_t)b;
    }
    for (int64_t run = 1; run < blocks; run *= 2) {
        for (int64_t start = 0; start < blocks; start += 2 * run) {
            int64_t middle = start + run < blocks ? start + run : blocks;
            int64_t end = start + 2 * run < blocks ? start + 2 * run : blocks;
            int64_t a = start, b = middle;
            for (int64_t i = start; i < end; i++) {
                int second = a == middle || (b < end && overtakes(scores[from[a]], scores[from[b]]));
                to[i] = second ? from[b++] : from[a++];
            }
        }
        int32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != order) {
        memcpy(order, from, (size_t)blocks * sizeof *order);
    }
    free(other);
}

int64_t oracle_select(const qsa_shape *shape, qsa_contract contract, int64_t n, const float *scores, int32_t *ids) {
    int64_t blocks = n / shape->block, tail = n % shape->block;
    int64_t left = contract == QSA_CELLS ? shape->budget + shape->block - 1 - tail : shape->budget;
    int32_t *order = room(blocks, sizeof *order);
    int64_t *taken = room(blocks, sizeof *taken); /* cells of each block */
    oracle_order(blocks, scores, order);
    for (int64_t i = 0; i < blocks && left > 0; i++) {
        taken[order[i]] = left < shape->block ? left : shape->block;
        left -= taken[order[i]];
    }
    int64_t count = 0;
    for (int64_t b = 0; b < blocks; b++) {
        for (int64_t c = 0; c < taken[b]; c++) {
            ids[count++] = (int32_t)(b * shape->block + c);
        }
    }
    for (int64_t c = n - tail; c < n; c++) {
        ids[count++] = (int32_t)c;
    }
    free(order);
    free(taken);
    return count;
}

/* ---- attend ---- */

/* One query head over cells already read: k, v [cells][head_dim]. Returns log sum exp. */
static double attend_head(int64_t dim, double scale, const float *q, int64_t cells, const double *k, const double *v,
                          double *logits, double *out) {
    double largest = -INFINITE, sum = 0;
    memset(out, 0, (size_t)dim * sizeof *out);
    for (int64_t c = 0; c < cells; c++) {
        double dot = 0;
        for (int64_t i = 0; i < dim; i++) {
            dot += (double)q[i] * k[c * dim + i];
        }
        logits[c] = dot * scale;
        largest = fmax(largest, logits[c]);
    }
    for (int64_t c = 0; c < cells; c++) {
        double p = exp(logits[c] - largest);
        sum += p;
        for (int64_t i = 0; i < dim; i++) {
            out[i] += p * v[c * dim + i];
        }
    }
    for (int64_t i = 0; i < dim && cells > 0; i++) {
        out[i] /= sum;
    }
    return cells > 0 ? largest + log(sum) : -INFINITE;
}

static double sigmoid(float x) {
    return 1.0 / (1.0 + exp(-(double)x));
}

void oracle_attend(const qsa_shape *shape, const float *q, const float *gate, const int32_t *ids, int64_t n_ids,
                   oracle_read *read, const void *user, double *out, double *lse) {
    int64_t dim = shape->head_dim, group = shape->q_heads / shape->kv_heads;
    double *k = room(n_ids * dim, sizeof *k), *v = room(n_ids * dim, sizeof *v), *logits = room(n_ids, sizeof *logits);
    for (int64_t g = 0; g < shape->kv_heads; g++) {
        int64_t cells = 0;
        for (int64_t i = 0; i < n_ids; i++) {
            int64_t cell = ids ? ids[i] : i;
            if (cell >= 0) {
                read(user, cell, g, k + cells * dim, v + cells * dim);
                cells++;
            }
        }
        for (int64_t h = g * group; h < (g + 1) * group; h++) {
            double sum = attend_head(dim, (double)shape->scale, q + h * dim, cells, k, v, logits, out + h * dim);
            if (lse) {
                lse[h] = sum;
            }
        }
    }
    for (int64_t i = 0; i < shape->q_heads * dim && gate; i++) {
        out[i] *= sigmoid(gate[i]);
    }
    free(k);
    free(v);
    free(logits);
}

/* ---- merge ---- */

void oracle_merge(const qsa_shape *shape, const float *partials, int64_t parts, const float *gate, double *out) {
    int64_t dim = shape->head_dim;
    for (int64_t h = 0; h < shape->q_heads; h++) {
        double largest = -INFINITE, sum = 0;
        double *row = out + h * dim;
        memset(row, 0, (size_t)dim * sizeof *row);
        for (int64_t j = 0; j < parts; j++) {
            const float *part = partials + (j * shape->q_heads + h) * (dim + 2);
            largest = part[dim + 1] > 0 ? fmax(largest, (double)part[dim]) : largest;
        }
        for (int64_t j = 0; j < parts; j++) {
            const float *part = partials + (j * shape->q_heads + h) * (dim + 2);
            if (!(part[dim + 1] > 0)) {
                continue;
            }
            double e = exp((double)part[dim] - largest);
            sum += (double)part[dim + 1] * e;
            for (int64_t i = 0; i < dim; i++) {
                row[i] += (double)part[i] * e;
            }
        }
        for (int64_t i = 0; i < dim && sum > 0; i++) {
            row[i] = row[i] / sum * (gate ? sigmoid(gate[h * dim + i]) : 1.0);
        }
    }
}
