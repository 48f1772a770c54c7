/* SPDX-License-Identifier: MIT */
/*
 * The text of the attend kernels of f32, f16 and bf16 K/V, for any vocabulary of runtime/simd.h; each instruction set
 * includes it once.
 *
 *   q.k  a lane is a lane of the written order, channels l, l + 16, ...; a few heads x 4 cells are sums in registers. Where a
 *        vector has fewer than 16 lanes, the channels are walked once for each share of the lanes.
 *   p.v  a lane is a channel; a few heads x a few vectors of channels are sums in registers for the whole chunk.
 *
 * Rows of K and V lie anywhere: V's are fetched during q.k, the K of the next KV head or chunk during p.v.
 */
#include "attend/attend.h"
#include "attend/softmax_simd.h"
#include "runtime/memory.h"

enum {
    SHARES = 16 / V_LANES,
    DOT_HEADS = V_LANES == 8 ? 3 : 6,
    DOT_CELLS = 4,
    SUM_HEADS = 6,
    SUM_VECTORS = V_LANES == 8 ? 2 : 4
};

typedef struct chunk {
    qsa_attend_walk walk;
    const char *next[QSA_CHUNK_MAX];       /* rows of K that the next pass reads, or any rows */
    float p[QSA_HEADS_MAX][QSA_CHUNK_MAX]; /* scores, then exp(score - m) */
    float old[QSA_HEADS_MAX], new[QSA_HEADS_MAX];
} chunk;

QSA_SIMD int64_t size_of(const qsa_type type) {
    return type == QSA_F32 ? 4 : 2;
}

/* V_LANES values from element i on. */
QSA_SIMD vf widen(const qsa_type type, const char *row, int64_t i) {
    const char *at = row + i * size_of(type);
    return type == QSA_F32   ? v_load((const float *)(const void *)at)
           : type == QSA_F16 ? v_from_f16(at)
                             : v_from_bf16(at);
}

/* Dot products of heads h.. with cells j..j+3. type, heads are constants wherever this is inlined. */
QSA_SIMD void dot_tile(const qsa_attend_unit *unit, chunk *c, int64_t h, int64_t j, const qsa_type type, const int heads) {
    vf held[DOT_HEADS][DOT_CELLS][SHARES];
    const char *const *k = c->walk.now->k + j, *const *fetch = h == 0 ? c->walk.now->v + j : k;
    const float *q[DOT_HEADS];
    int64_t dim = unit->head_dim;
    QSA_UNROLL for (int i = 0; i < heads; i++) {
        q[i] = unit->q + (h + i) * dim;
    }
    for (int share = 0; share < SHARES; share++) {
        vf sum[DOT_HEADS][DOT_CELLS];
        QSA_UNROLL for (int i = 0; i < heads; i++) {
            QSA_UNROLL for (int n = 0; n < DOT_CELLS; n++) {
                sum[i][n] = v_set(0.0f);
            }
        }
        for (int64_t d = share * V_LANES; d < dim; d += 16) {
            vf key[DOT_CELLS];
            QSA_UNROLL for (int n = 0; n < DOT_CELLS; n++) {
                key[n] = widen(type, k[n], d);
                if (share == 0) {
                    __builtin_prefetch(fetch[n] + d * size_of(type), 0, 3);
                }
            }
            QSA_UNROLL for (int i = 0; i < heads; i++) {
                vf value = v_load(q[i] + d);
                QSA_UNROLL for (int n = 0; n < DOT_CELLS; n++) {
                    sum[i][n] = v_fma(value, key[n], sum[i][n]);
                }
            }
        }
        QSA_UNROLL for (int i = 0; i < heads; i++) {
            QSA_UNROLL for (int n = 0; n < DOT_CELLS; n++) {
                held[i][n][share] = sum[i][n];
            }
        }
    }
    for (int i = 0; i < heads; i++) {
        v_fold_four(held[i][0], held[i][1], held[i][2], held[i][3], c->p[h + i] + j);
    }
}

QSA_SIMD void dots(const qsa_attend_unit *unit, chunk *c, const qsa_type type) {
    for (int64_t j = 0; j < c->walk.now->count; j += DOT_CELLS) {
        int64_t h = 0;
        for (; h + DOT_HEADS <= unit->heads; h += DOT_HEADS) {
            dot_tile(unit, c, h, j, type, DOT_HEADS);
        }
        for (; h + 2 <= unit->heads; h += 2) {
            dot_tile(unit, c, h, j, type, 2);
        }
        for (; h < unit->heads; h++) {
            dot_tile(unit, c, h, j, type, 1);
        }
    }
}

/* Some channels from d on of heads h.. gain the chunk's sums. */
QSA_SIMD void sum_tile(const qsa_attend_unit *unit, const chunk *c, int64_t h, int64_t d, int first, const qsa_type type,
                       const int heads) {
    enum { WIDTH = SUM_VECTORS * V_LANES };
    vf sum[SUM_HEADS][SUM_VECTORS];
    const char *const *fetch = h == 0 ? c->next : c->walk.now->v;
    QSA_UNROLL for (int i = 0; i < heads; i++) {
        QSA_UNROLL for (int v = 0; v < SUM_VECTORS; v++) {
            sum[i][v] = v_set(0.0f);
        }
    }
    for (int64_t j = 0; j < c->walk.now->count; j++) {
        vf value[SUM_VECTORS];
        QSA_UNROLL for (int v = 0; v < SUM_VECTORS; v++) {
            value[v] = widen(type, c->walk.now->v[j], d + v * V_LANES);
        }
        QSA_UNROLL for (int64_t byte = 0; byte < WIDTH * size_of(type); byte += 64) {
            __builtin_prefetch(fetch[j] + d * size_of(type) + byte, 0, 3);
        }
        QSA_UNROLL for (int i = 0; i < heads; i++) {
            vf p = v_set(c->p[h + i][j]);
            QSA_UNROLL for (int v = 0; v < SUM_VECTORS; v++) {
                sum[i][v] = v_fma(p, value[v], sum[i][v]);
            }
        }
    }
    QSA_UNROLL for (int i = 0; i < heads; i++) {
        float *acc = unit->part + (h + i) * (unit->head_dim + 2) + d;
        vf old = v_set(c->old[h + i]), new = v_set(c->new[h + i]);
        QSA_UNROLL for (int v = 0; v < SUM_VECTORS; v++) {
            float *at = acc + v * V_LANES;
            v_store(at, first ? sum[i][v] : v_fma(sum[i][v], new, v_mul(v_load(at), old)));
        }
    }
}

QSA_SIMD void sums(const qsa_attend_unit *unit, const chunk *c, int first, const qsa_type type) {
    for (int64_t d = 0; d < unit->head_dim; d += SUM_VECTORS * V_LANES) {
        int64_t h = 0;
        for (; h + SUM_HEADS <= unit->heads; h += SUM_HEADS) {
            sum_tile(unit, c, h, d, first, type, SUM_HEADS);
        }
        for (; h + 2 <= unit->heads; h += 2) {
            sum_tile(unit, c, h, d, first, type, 2);
        }
        for (; h < unit->heads; h++) {
            sum_tile(unit, c, h, d, first, type, 1);
        }
    }
}

/* Scores become p; m and l join the part. */
QSA_SIMD void softmaxes(const qsa_attend_unit *unit, chunk *c, int first) {
    int64_t dim = unit->head_dim;
    vf scale = v_set(unit->scale);
    for (int64_t h = 0; h < unit->heads; h++) {
        for (int64_t j = 0; j < c->walk.now->count; j += V_LANES) {
            v_store(c->p[h] + j, v_mul(v_load(c->p[h] + j), scale));
        }
        qsa_softmax_head(c->p[h], c->walk.now->count, dim, first, unit->part + h * (dim + 2), &c->old[h], &c->new[h]);
    }
}

QSA_SIMD void run_unit(const qsa_attend_unit *unit, const qsa_type type) {
    chunk c;
    memset(c.p, 0, (size_t)unit->heads * sizeof *c.p);
    qsa_attend_open(&c.walk, unit);
    while (qsa_attend_next(&c.walk)) {
        int last = c.walk.head == unit->more_heads;
        const qsa_attend_cells *next = last ? c.walk.ahead : c.walk.now;
        int64_t shift = last ? 0 : unit->kv->head_stride;
        qsa_attend_pad(c.walk.now, DOT_CELLS);
        for (int64_t j = 0; j < c.walk.now->count; j++) {
            c.next[j] = j < next->count ? next->k[j] + shift : c.walk.now->v[j];
        }
        dots(&c.walk.unit, &c, type);
        softmaxes(&c.walk.unit, &c, c.walk.first);
        sums(&c.walk.unit, &c, c.walk.first, type);
    }
}

QSA_KERNEL static void QSA_LEVEL(qsa_attend_f32)(const qsa_attend_unit *unit) {
    run_unit(unit, QSA_F32);
}

QSA_KERNEL static void QSA_LEVEL(qsa_attend_f16)(const qsa_attend_unit *unit) {
    run_unit(unit, QSA_F16);
}

QSA_KERNEL static void QSA_LEVEL(qsa_attend_bf16)(const qsa_attend_unit *unit) {
    run_unit(unit, QSA_BF16);
}

void QSA_LEVEL(qsa_attend_float_init)(qsa_attend_kernels *kernels) {
    kernels->run[QSA_F32] = QSA_LEVEL(qsa_attend_f32);
    kernels->run[QSA_F16] = QSA_LEVEL(qsa_attend_f16);
    kernels->run[QSA_BF16] = QSA_LEVEL(qsa_attend_bf16);
    kernels->name[QSA_F32] = QSA_NAME("qsa_attend_f32");
    kernels->name[QSA_F16] = QSA_NAME("qsa_attend_f16");
    kernels->name[QSA_BF16] = QSA_NAME("qsa_attend_bf16");
}
