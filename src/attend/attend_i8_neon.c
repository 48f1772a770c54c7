/* SPDX-License-Identifier: MIT */
/*
 * int8 K/V on NEON. smlal multiplies 16-bit integers into 32-bit sums, so grid values go in whole.
 *
 *   q.k  a lane is a channel: 4 heads x 2 cells, one group at a time, added up over lanes at the group's end.
 *   p.v  a lane is a channel: 3 heads x 32 channels are sums in registers for the whole chunk.
 */
#include "runtime/cpu.h"
#if defined(QSA_ARM)
#define QSA_SIMD_NEON
#include "runtime/simd.h"

#include "attend/attend.h"
#include "attend/softmax_simd.h"
#include "runtime/memory.h"

enum { DOT_HEADS = 4, DOT_CELLS = 2, SUM_HEADS = 3, SUM_CHANNELS = 32, SUM_VECTORS = SUM_CHANNELS / 8 };

typedef struct chunk {
    qsa_attend_walk walk;
    int64_t padded;                     /* cells of now, rounded up to DOT_CELLS; the pad repeats cell 0, with p = 0 */
    const int16_t *q;                   /* [heads][head_dim] */
    const float *step;                  /* [heads][groups] */
    float p[QSA_HEADS_MAX][QSA_CHUNK_MAX]; /* scores, then exp(score - m) */
    float old[QSA_HEADS_MAX], new[QSA_HEADS_MAX];
    float k_scale[QSA_CHUNK_MAX], ratio[QSA_CHUNK_MAX]; /* of one group */
    int16_t w[QSA_HEADS_MAX][QSA_CHUNK_MAX];            /* of one group */
} chunk;

/* Group g of `heads` heads from h on, with two cells from j on, joins their scores. heads is a constant where inlined. */
QSA_SIMD void dot_heads(chunk *c, int64_t dim, int64_t g, int64_t j, int64_t h, const int heads) {
    int32x4_t sum[DOT_HEADS][DOT_CELLS];
    QSA_UNROLL for (int i = 0; i < heads; i++) {
        QSA_UNROLL for (int n = 0; n < DOT_CELLS; n++) {
            sum[i][n] = vdupq_n_s32(0);
        }
    }
    for (int64_t at = g * QSA_GROUP; at < (g + 1) * QSA_GROUP; at += 8) {
        int16x8_t k[DOT_CELLS];
        QSA_UNROLL for (int n = 0; n < DOT_CELLS; n++) {
            k[n] = vmovl_s8(vld1_s8((const int8_t *)c->walk.now->k[j + n] + at));
        }
        QSA_UNROLL for (int i = 0; i < heads; i++) {
            int16x8_t q = vld1q_s16(c->q + (h + i) * dim + at);
            QSA_UNROLL for (int n = 0; n < DOT_CELLS; n++) {
                sum[i][n] = vmlal_s16(sum[i][n], vget_low_s16(k[n]), vget_low_s16(q));
                sum[i][n] = vmlal_high_s16(sum[i][n], k[n], q);
            }
        }
    }
    QSA_UNROLL for (int i = 0; i < heads; i++) {
        float step = c->step[(h + i) * (dim / QSA_GROUP) + g];
        QSA_UNROLL for (int n = 0; n < DOT_CELLS; n++) {
            float *s = c->p[h + i] + j + n;
            *s = v_fma_one((float)vaddvq_s32(sum[i][n]), c->k_scale[j + n] * step, g == 0 ? 0.0f : *s);
        }
    }
}

QSA_SIMD void dots(chunk *c, int64_t heads, int64_t dim) {
    for (int64_t g = 0; g < dim / QSA_GROUP; g++) {
        for (int64_t j = 0; j < c->padded; j++) {
            c->k_scale[j] = qsa_f16_to_f32(c->walk.now->k_scale[j][g]);
        }
        for (int64_t j = 0; j < c->padded; j += DOT_CELLS) {
            int64_t h = 0;
            for (; h + DOT_HEADS <= heads; h += DOT_HEADS) {
                dot_heads(c, dim, g, j, h, DOT_HEADS);
            }
            for (; h < heads; h++) {
                dot_heads(c, dim, g, j, h, 1);
            }
            if (j % 4 == 0) {
                qsa_attend_fetch_row(&c->walk.fetch);
            }
        }
    }
}

/* p of one head on the group's grid. */
QSA_SIMD void weigh(chunk *c, int64_t h) {
    for (int64_t j = 0; j < QSA_CHUNK_MAX; j += 4) {
        int32x4_t w = vcvtnq_s32_f32(v_mul(v_load(c->p[h] + j), v_load(c->ratio + j)));
        vst1_s16(c->w[h] + j, vmovn_s32(w));
    }
}

/* 32 channels from `at` on of `heads` heads' parts gain the chunk's sums. step: of the grid. */
QSA_SIMD void sum_heads(const chunk *c, const qsa_attend_unit *unit, int64_t at, int64_t h, float step, int first, const int heads) {
    int32x4_t sum[SUM_HEADS][2 * SUM_VECTORS];
    QSA_UNROLL for (int i = 0; i < heads; i++) {
        QSA_UNROLL for (int n = 0; n < 2 * SUM_VECTORS; n++) {
            sum[i][n] = vdupq_n_s32(0);
        }
    }
    for (int64_t j = 0; j < c->walk.now->count; j++) {
        int16x8_t v[SUM_VECTORS];
        QSA_UNROLL for (int n = 0; n < SUM_VECTORS; n++) {
            v[n] = vmovl_s8(vld1_s8((const int8_t *)c->walk.now->v[j] + at + 8 * n));
        }
        QSA_UNROLL for (int i = 0; i < heads; i++) {
            int16x8_t w = vdupq_n_s16(c->w[h + i][j]);
            QSA_UNROLL for (int n = 0; n < SUM_VECTORS; n++) {
                sum[i][2 * n] = vmlal_s16(sum[i][2 * n], vget_low_s16(v[n]), vget_low_s16(w));
                sum[i][2 * n + 1] = vmlal_high_s16(sum[i][2 * n + 1], v[n], w);
            }
        }
    }
    QSA_UNROLL for (int i = 0; i < heads; i++) {
        float *acc = unit->part + (h + i) * (unit->head_dim + 2) + at;
        vf grid = v_set(step * c->new[h + i]), old = v_set(c->old[h + i]);
        QSA_UNROLL for (int n = 0; n < 2 * SUM_VECTORS; n++) {
            vf x = vcvtq_f32_s32(sum[i][n]);
            v_store(acc + 4 * n, first ? v_mul(x, grid) : v_fma(x, grid, v_mul(v_load(acc + 4 * n), old)));
        }
    }
}

QSA_SIMD void sums(chunk *c, const qsa_attend_unit *unit, int first) {
    int64_t dim = unit->head_dim;
    float step = 0.0f;
    for (int64_t at = 0; at < dim; at += SUM_CHANNELS) {
        int64_t h = 0;
        if (at % QSA_GROUP == 0) {
            memset(c->ratio, 0, sizeof c->ratio);
            step = qsa_attend_ratios(c->walk.now, at / QSA_GROUP, c->ratio);
            for (int64_t i = 0; i < unit->heads; i++) {
                weigh(c, i);
            }
        }
        for (; h + SUM_HEADS <= unit->heads; h += SUM_HEADS) {
            sum_heads(c, unit, at, h, step, first, SUM_HEADS);
            qsa_attend_fetch_row(&c->walk.fetch);
            qsa_attend_fetch_row(&c->walk.fetch);
        }
        for (; h < unit->heads; h++) {
            sum_heads(c, unit, at, h, step, first, 1);
        }
    }
}

QSA_SIMD void run_chunk(const qsa_attend_unit *unit, chunk *c, int first) {
    int64_t dim = unit->head_dim;
    c->padded = qsa_attend_pad(c->walk.now, DOT_CELLS);
    qsa_attend_fetch_scales(&c->walk.fetch);
    dots(c, unit->heads, dim);
    for (int64_t h = 0; h < unit->heads; h++) {
        qsa_softmax_head(c->p[h], c->walk.now->count, dim, first, unit->part + h * (dim + 2), &c->old[h], &c->new[h]);
        qsa_softmax_weights(c->p[h], c->walk.now->count);
    }
    sums(c, unit, first);
}

QSA_KERNEL static void qsa_attend_i8_neon(const qsa_attend_unit *unit) {
    chunk c;
    qsa_attend_open(&c.walk, unit);
    while (qsa_attend_next(&c.walk)) {
        c.q = c.walk.unit.prepared;
        c.step = (const float *)(const void *)(c.q + unit->heads * unit->head_dim);
        run_chunk(&c.walk.unit, &c, c.walk.first);
    }
}

void qsa_attend_i8_init_neon(qsa_attend_kernels *kernels) {
    kernels->run[QSA_I8_G64] = qsa_attend_i8_neon;
    kernels->name[QSA_I8_G64] = "qsa_attend_i8_neon";
}
#endif
