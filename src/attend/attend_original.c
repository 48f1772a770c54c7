/* SPDX-License-Identifier: MIT */
/*
 * The original's three ways through a chunk, as scalar C, each in the order of loops that gave it its name:
 *   attn   a lane owns CHANNELS: every dot product ends in a sum over lanes;
 *   attn2  as attn, heads in groups of six, for chunks of 32;
 *   attn3  a lane owns a CELL for q.k, with nothing to add up at the end, and a channel for p.v.
 * Because int8 work is summed in integers, the three orders give the same bits; the tests hold them to it.
 */
#include "attend/attend.h"

#include "runtime/memory.h"

enum { LANES = 32, HEAD_GROUP = 6 };

typedef struct chunk {
    const qsa_attend_unit *unit;
    qsa_attend_cells cells;
    const int16_t *q;  /* [heads][head_dim] */
    const float *step; /* [heads][groups] */
    int64_t groups;
} chunk;

static float scaled(const chunk *c, int64_t h, int64_t j, int64_t g, int32_t dot, float s) {
    float k_scale = qsa_f16_to_f32(c->cells.k_scale[j][g]);
    return qsa_fma((float)dot, k_scale * c->step[h * c->groups + g], s);
}

/* attn: lane i of 32 owns channels 2 i and 2 i + 1 of each group. */
static float dot_by_channel(const chunk *c, int64_t h, int64_t j) {
    const int16_t *q = c->q + h * c->unit->head_dim;
    const int8_t *k = (const int8_t *)c->cells.k[j];
    float s = 0.0f;
    for (int64_t g = 0; g < c->groups; g++) {
        int32_t lane[LANES];
        for (int64_t i = 0; i < LANES; i++) {
            int64_t at = g * QSA_GROUP + 2 * i;
            lane[i] = q[at] * k[at] + q[at + 1] * k[at + 1];
        }
        for (int half = LANES / 2; half >= 1; half /= 2) {
            for (int i = 0; i < half; i++) {
                lane[i] += lane[i + half];
            }
        }
        s = scaled(c, h, j, g, lane[0], s);
    }
    return s;
}

/* attn3: lane j owns cell j and walks its channels. */
static void dots_by_cell(const chunk *c, int64_t h, float s[QSA_CHUNK_MAX]) {
    const int16_t *q = c->q + h * c->unit->head_dim;
    for (int64_t j = 0; j < c->cells.count; j++) {
        s[j] = 0.0f;
    }
    for (int64_t g = 0; g < c->groups; g++) {
        int32_t lane[QSA_CHUNK_MAX] = {0};
        for (int64_t d = 0; d < QSA_GROUP; d++) {
            int64_t at = g * QSA_GROUP + d;
            for (int64_t j = 0; j < c->cells.count; j++) {
                lane[j] += q[at] * ((const int8_t *)c->cells.k[j])[at];
            }
        }
        for (int64_t j = 0; j < c->cells.count; j++) {
            s[j] = scaled(c, h, j, g, lane[j], s[j]);
        }
    }
}

/* From the scores of one head on, the three are one: local max, p, l, and acc with a lane for each channel. */
static void finish_head(const chunk *c, int64_t h, float s[QSA_CHUNK_MAX]) {
    int64_t dim = c->unit->head_dim, count = c->cells.count;
    float *part = c->unit->part + h * (dim + 2), m = -QSA_INFINITY, lane[16] = {0};
    for (int64_t j = 0; j < count; j++) {
        m = s[j] > m ? s[j] : m;
    }
    m += 0.0f;
    for (int64_t j = 0; j < count; j++) {
        s[j] = qsa_exp(s[j] - m);
        lane[j % 16] += s[j];
    }
    for (int64_t g = 0; g < c->groups; g++) {
        float ratio[QSA_CHUNK_MAX], step = qsa_attend_ratios(&c->cells, g, ratio);
        for (int64_t d = g * QSA_GROUP; d < (g + 1) * QSA_GROUP; d++) {
            int32_t sum = 0;
            for (int64_t j = 0; j < count; j++) {
                sum += qsa_attend_weight(s[j], ratio[j]) * ((const int8_t *)c->cells.v[j])[d];
            }
            part[d] = (float)sum * step;
        }
    }
    part[dim] = m;
    part[dim + 1] = qsa_fold16(lane);
}

/* 0 where the part has no live cell; it is cleared then. */
static int open_chunk(const qsa_attend_unit *unit, chunk *c) {
    int64_t heads = unit->heads, dim = unit->head_dim;
    c->unit = unit;
    c->q = unit->prepared;
    c->step = (const float *)(const void *)((const int16_t *)unit->prepared + heads * dim);
    c->groups = dim / QSA_GROUP;
    qsa_attend_gather(unit, 0, qsa_min(unit->n_ids, QSA_CHUNK_MAX), &c->cells);
    if (c->cells.count == 0) {
        qsa_attend_clear(unit);
    }
    return c->cells.count > 0;
}

static void heads_by_channel(const chunk *c, int64_t first, int64_t last) {
    for (int64_t h = first; h < last; h++) {
        float s[QSA_CHUNK_MAX];
        for (int64_t j = 0; j < c->cells.count; j++) {
            s[j] = dot_by_channel(c, h, j);
        }
        finish_head(c, h, s);
    }
}

void qsa_attend_attn(const qsa_attend_unit *unit) {
    chunk c;
    if (open_chunk(unit, &c)) {
        heads_by_channel(&c, 0, unit->heads);
    }
}

void qsa_attend_attn2(const qsa_attend_unit *unit) {
    chunk c;
    if (open_chunk(unit, &c)) {
        for (int64_t h = 0; h < unit->heads; h += HEAD_GROUP) {
            heads_by_channel(&c, h, qsa_min(h + HEAD_GROUP, unit->heads));
        }
    }
}

void qsa_attend_attn3(const qsa_attend_unit *unit) {
    chunk c;
    if (open_chunk(unit, &c)) {
        for (int64_t h = 0; h < unit->heads; h++) {
            float s[QSA_CHUNK_MAX];
            dots_by_cell(&c, h, s);
            finish_head(&c, h, s);
        }
    }
}
