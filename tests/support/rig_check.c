/* SPDX-License-Identifier: MIT */
/* Rigs compared with float64: SEL, ATT, and what a cache holds. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oracle/oracle.h"
#include "support/rig.h"
#include "support/views.h"

double score_bound(const qsa_shape *shape) {
    return (double)(shape->index_dim + shape->index_heads) * 6e-8;
}

float *row_scores(const rig *r, const qsa_sequence *sequence, const queries *q, int64_t *stride) {
    const qsa_shape *s = &r->shape;
    int64_t length = qsa_sequence_length(sequence, 0), blocks = length / s->block;
    QSA_INIT(qsa_keys, keys);
    MUST(qsa_sequence_keys, sequence, 0, &keys);
    assert_int_equal(keys.blocks, blocks);
    *stride = blocks + 1;
    float *scores = malloc((size_t)(q->rows * *stride) * sizeof *scores);
    int64_t *n = malloc((size_t)(q->rows + 1) * sizeof *n);
    for (int64_t t = 0; t < q->rows; t++) {
        n[t] = length - q->rows + t + 1;
    }
    QSA_INIT(qsa_score_args, args);
    args.iq = q->iq;
    args.rows = q->rows;
    args.n = n;
    args.keys = &keys;
    args.scores = scores;
    args.score_stride = *stride;
    MUST(qsa_score, r->context, s, &args);
    double *key = malloc((size_t)s->index_dim * sizeof *key);
    for (int64_t b = 0; b < blocks; b++) {
        read_key(&keys, s->index_dim, b, key);
        for (int64_t t = 0; t < q->rows && b < n[t] / s->block; t++) {
            double weight, want = oracle_score(s, q->iq + t * s->index_heads * s->index_dim, key, &weight);
            double got = (double)scores[t * *stride + b];
            if (!(fabs(got - want) <= score_bound(s) * weight)) {
                fail_msg("score of block %lld, row %lld: %.9g, in float64 %.9g", (long long)b, (long long)t, got, want);
            }
        }
    }
    for (int64_t t = 0; t < q->rows; t++) {
        assert_true(isinf(scores[t * *stride + n[t] / s->block]));
    }
    free(key);
    free(n);
    return scores;
}

double att_error(const rig *r, const qsa_sequence *sequence, const queries *q, int64_t row, const int32_t *ids,
                 int64_t n_ids, const float *out) {
    cell_reader reader = {.kv = {.size = sizeof reader.kv}, .shape = r->shape};
    int64_t width = r->shape.q_heads * r->shape.head_dim;
    double *want = malloc((size_t)width * sizeof *want), error = 0, size = 0;
    MUST(qsa_sequence_kv, sequence, 0, &reader.kv);
    oracle_attend(&r->shape, q->q + row * width, q->gate ? q->gate + row * width : NULL, ids, n_ids, read_cell, &reader,
                  want, NULL);
    for (int64_t i = 0; i < width; i++) {
        double difference = fabs((double)out[i] - want[i]);
        error = difference <= error ? error : difference; /* a NaN stays */
        size = fmax(size, fabs(want[i]));
    }
    free(want);
    return size > 0 ? error / size : error;
}

void check_decoded(const rig *r, const qsa_sequence *sequence, const queries *q, qsa_contract contract,
                   const decoded *d) {
    int64_t stride, length = qsa_sequence_length(sequence, 0);
    float *scores = row_scores(r, sequence, q, &stride);
    int32_t *want = malloc((size_t)(d->width + 1) * sizeof *want);
    for (int64_t t = 0; t < d->rows; t++) {
        int64_t n = length - d->rows + t + 1, count = oracle_select(&r->shape, contract, n, scores + t * stride, want);
        const int32_t *ids = d->ids + t * d->width;
        assert_int_equal(count, qsa_width(&r->shape, contract, n));
        for (int64_t i = 0; i < d->width; i++) {
            int32_t expected = i < count ? want[i] : -1;
            if (ids[i] != expected) {
                fail_msg("n %lld, entry %lld: cell %d, a full sort takes %d", (long long)n, (long long)i, (int)ids[i],
                         (int)expected);
            }
        }
        double error = att_error(r, sequence, q, t, want, count, d->out + t * d->out_width);
        if (!(error <= att_bound(r->kv_type))) {
            fail_msg("n %lld, %s: output error %.3g of %.3g allowed", (long long)n, qsa_type_name(r->kv_type), error,
                     att_bound(r->kv_type));
        }
    }
    free(want);
    free(scores);
}

/* x as a K/V format stores it. */
static void stored(qsa_type type, int64_t count, const float *x, double *out) {
    if (type == QSA_I8_G64) {
        int8_t values[512];
        uint16_t scales[8];
        oracle_i8_encode(count / 64, x, values, scales);
        oracle_i8_decode(count / 64, values, scales, out);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        out[i] = oracle_round(type, (double)x[i]);
    }
}

void check_cells(const rig *r, const qsa_sequence *sequence, int64_t first, int64_t cells) {
    const qsa_shape *s = &r->shape;
    int64_t width = s->kv_heads * s->head_dim;
    float *k = malloc((size_t)width * sizeof *k), *v = malloc((size_t)width * sizeof *v);
    double got[2][512], want[2][512];
    cell_reader reader = {.kv = {.size = sizeof reader.kv}, .shape = *s};
    MUST(qsa_sequence_kv, sequence, 0, &reader.kv);
    for (int64_t c = first; c < first + cells; c++) {
        source_cells(r, c, 1, k, v, NULL);
        for (int64_t g = 0; g < s->kv_heads; g++) {
            read_cell(&reader, c, g, got[0], got[1]);
            stored(r->kv_type, s->head_dim, k + g * s->head_dim, want[0]);
            stored(r->kv_type, s->head_dim, v + g * s->head_dim, want[1]);
            assert_memory_equal(got[0], want[0], (size_t)s->head_dim * sizeof(double));
            assert_memory_equal(got[1], want[1], (size_t)s->head_dim * sizeof(double));
        }
    }
    free(k), free(v);
}

void check_keys(const rig *r, const qsa_sequence *sequence, int64_t first, int64_t blocks) {
    const qsa_shape *s = &r->shape;
    QSA_INIT(qsa_keys, keys);
    MUST(qsa_sequence_keys, sequence, 0, &keys);
    int64_t rope_dims = s->index_dim < 64 ? s->index_dim : 64;
    oracle_key_rule rule = {s->block, s->index_dim, r->norm, 1e-6, rope_dims, 1e7, keys.type};
    /* A mean or a key that float64 rounds the other way is one step of its type off; a rotation spreads it over two. */
    double step = keys.type == QSA_BF16 ? 1.0 / 64 : 1e-6;
    float *raw = malloc((size_t)(s->block * s->index_dim) * sizeof *raw);
    double got[512], want[512];
    int64_t equal = 0, channels = blocks * s->index_dim;
    for (int64_t b = first; b < first + blocks; b++) {
        double largest = 0;
        source_cells(r, b * s->block, s->block, NULL, NULL, raw);
        oracle_block_key(&rule, raw, b * s->block, want);
        read_key(&keys, s->index_dim, b, got);
        for (int64_t i = 0; i < s->index_dim; i++) {
            largest = fmax(largest, fabs(want[i]));
        }
        for (int64_t i = 0; i < s->index_dim; i++) {
            equal += got[i] == want[i];
            if (!(fabs(got[i] - want[i]) <= step * largest)) {
                fail_msg("key %lld, channel %lld: %.9g, in float64 %.9g", (long long)b, (long long)i, got[i], want[i]);
            }
        }
    }
    /* Few are: nearly all channels are equal in bf16, or a rounding is missing or in another place. */
    if (keys.type == QSA_BF16 && channels >= 1000 && equal < channels * 98 / 100) {
        fail_msg("%lld of %lld channels of keys equal float64's", (long long)equal, (long long)channels);
    }
    free(raw);
}
