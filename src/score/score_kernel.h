/* SPDX-License-Identifier: MIT */
/*
 * The text of the score kernels, for any vocabulary of runtime/simd.h; each instruction set includes it once.
 *
 * A CHAIN is one dot product of the definition: one index head of one row against a block. A block is a lane, so that
 * chains need no sums across lanes. A STRIP is the tiles that a loop over the channels takes at once, times a few chains:
 * enough sums in registers to hide the latency of an fma. While a strip is computed, the one after it is fetched, 4 or
 * 8 KB ahead.
 */
#include "runtime/memory.h"
#include "score/score.h"

enum {
    LINE = 64,                                /* bytes of a tile that are read at once: 16 blocks */
    LINE_VECTORS = QSA_TILE / V_LANES,
    STRIP_TILES = V_LANES == 16 ? 2 : 1,
    STRIP_VECTORS = STRIP_TILES * LINE_VECTORS,
    STRIP_BLOCKS = STRIP_TILES * QSA_TILE,
    MANY = V_LANES == 16 ? 8 : 4,             /* chains taken at once where there are as many */
    INDEX_HEADS_MAX = 64,
    INDEX_DIM_MAX = 512
};

typedef struct chain_list {
    const float *q[QSA_SCORE_ROWS * INDEX_HEADS_MAX];
    unsigned char row[QSA_SCORE_ROWS * INDEX_HEADS_MAX];
} chain_list;

/* Where the tiles of a strip are, and those of the strip after it. */
typedef struct strip {
    const char *tile[STRIP_TILES];
    const char *ahead[STRIP_TILES];
    vf sum[QSA_SCORE_ROWS][STRIP_VECTORS];
} strip;

/* d of some chains, each then added to its row's sum. bf16, tiles and chains are constants wherever this is inlined. */
QSA_SIMD void run_chains(strip *s, const chain_list *list, int64_t first, int64_t dim, const int bf16, const int tiles,
                         const int chains) {
    vf d[MANY][STRIP_VECTORS];
    const float *q[MANY];
    const char *tile[STRIP_TILES], *ahead[STRIP_TILES];
    QSA_UNROLL for (int t = 0; t < tiles; t++) {
        tile[t] = s->tile[t];
        ahead[t] = s->ahead[t];
    }
    QSA_UNROLL for (int i = 0; i < chains; i++) {
        q[i] = list->q[first + i];
        QSA_UNROLL for (int v = 0; v < tiles * LINE_VECTORS; v++) {
            d[i][v] = v_set(0.0f);
        }
    }
    for (int64_t c = 0, at = 0; c < dim; c += 1 + bf16, at += LINE) {
        vf even[STRIP_VECTORS], odd[STRIP_VECTORS];
        QSA_UNROLL for (int t = 0; t < tiles; t++) {
            __builtin_prefetch(ahead[t] + at, 0, 3);
        }
        QSA_UNROLL for (int v = 0; v < tiles * LINE_VECTORS; v++) {
            const char *line = tile[v / LINE_VECTORS] + at + v % LINE_VECTORS * V_LANES * 4;
            even[v] = bf16 ? v_low16(v_load_bits(line)) : v_load((const float *)(const void *)line);
            odd[v] = bf16 ? v_high16(v_load_bits(line)) : even[v];
        }
        QSA_UNROLL for (int i = 0; i < chains; i++) {
            vf value = v_set(q[i][c]);
            QSA_UNROLL for (int v = 0; v < tiles * LINE_VECTORS; v++) {
                d[i][v] = v_fma(value, even[v], d[i][v]);
            }
        }
        QSA_UNROLL for (int i = 0; i < chains; i++) {
            vf value = bf16 ? v_set(q[i][c + 1]) : v_set(0.0f);
            QSA_UNROLL for (int v = 0; v < tiles * LINE_VECTORS; v++) {
                d[i][v] = bf16 ? v_fma(value, odd[v], d[i][v]) : d[i][v];
            }
        }
    }
    QSA_UNROLL for (int i = 0; i < chains; i++) {
        vf *sum = s->sum[list->row[first + i]];
        QSA_UNROLL for (int v = 0; v < tiles * LINE_VECTORS; v++) {
            sum[v] = v_add(sum[v], v_relu(d[i][v]));
        }
    }
}

QSA_SIMD void run_strip(const qsa_score_job *job, strip *s, const chain_list *list, int64_t first, const int bf16,
                        const int tiles) {
    int64_t chains = job->rows * job->heads, i = 0;
    for (int64_t r = 0; r < job->rows; r++) {
        QSA_UNROLL for (int v = 0; v < tiles * LINE_VECTORS; v++) {
            s->sum[r][v] = v_set(0.0f);
        }
    }
    while (i < chains) {
        int64_t left = chains - i;
        if (MANY > 4 && left >= MANY) {
            run_chains(s, list, i, job->dim, bf16, tiles, MANY);
            i += MANY;
        } else if (left >= 4) {
            run_chains(s, list, i, job->dim, bf16, tiles, 4);
            i += 4;
        } else if (left >= 2) {
            run_chains(s, list, i, job->dim, bf16, tiles, 2);
            i += 2;
        } else {
            run_chains(s, list, i, job->dim, bf16, tiles, 1);
            i += 1;
        }
        for (int t = 0; t < tiles; t++) {
            s->ahead[t] = s->tile[t]; /* fetched once */
        }
    }
    vf scale = v_set(job->scale);
    for (int64_t r = 0; r < job->rows; r++) {
        int64_t live = job->count[r] - first;
        for (int v = 0; v < tiles * LINE_VECTORS && live > 0; v++, live -= V_LANES) {
            vf score = v_mul(s->sum[r][v], scale);
            float *to = job->scores[r] + first + v * V_LANES;
            if (live >= V_LANES) {
                v_store(to, score);
            } else {
                v_store_n(to, score, live);
            }
        }
    }
}

QSA_SIMD int64_t list_chains(const qsa_score_job *job, chain_list *list) {
    int64_t blocks = 0, i = 0;
    for (int64_t r = 0; r < job->rows; r++) {
        blocks = qsa_max(blocks, job->count[r]);
        for (int64_t h = 0; h < job->heads; h++, i++) {
            list->q[i] = job->iq[r] + h * job->dim;
            list->row[i] = (unsigned char)r;
        }
    }
    return blocks;
}

QSA_SIMD void run_tiles(const qsa_score_job *job, const int bf16) {
    chain_list list;
    strip s;
    int64_t blocks = list_chains(job, &list), tile_bytes = job->dim / (1 + bf16) * LINE, first = 0;
    const char *keys = job->keys, *next = job->next ? job->next : job->keys;
    for (; first < blocks; first += STRIP_BLOCKS, keys += STRIP_TILES * tile_bytes) {
        const char *ahead = first + STRIP_BLOCKS < blocks ? keys + STRIP_TILES * tile_bytes : next;
        for (int t = 0; t < STRIP_TILES; t++) {
            s.tile[t] = keys + t * tile_bytes;
            s.ahead[t] = ahead + t * tile_bytes;
        }
        if (STRIP_TILES > 1 && blocks - first <= QSA_TILE) {
            run_strip(job, &s, &list, first, bf16, 1);
        } else {
            run_strip(job, &s, &list, first, bf16, STRIP_TILES);
        }
    }
}

/* Keys of a strip, `bytes` each, turned into tiles. */
QSA_SIMD void turn_keys(const char *const *key, int64_t bytes, uint32_t *to) {
    for (int64_t b = 0; b < STRIP_BLOCKS; b += V_LANES) {
        uint32_t *out = to + b / QSA_TILE * QSA_TILE * (bytes / 4) + b % QSA_TILE;
        for (int64_t at = 0; at < bytes; at += 16) {
            vi column[4];
            v_columns(key + b, at, column);
            QSA_UNROLL for (int i = 0; i < 4; i++) {
                v_store_bits(out + (at / 4 + i) * QSA_TILE, column[i]);
            }
        }
    }
}

QSA_SIMD void run_turned(const qsa_score_job *job, const chain_list *list, const char *const *key, int64_t first, const int bf16) {
    _Alignas(64) uint32_t turned[STRIP_TILES * INDEX_DIM_MAX * QSA_TILE];
    strip s;
    int64_t lines = job->dim / (1 + bf16);
    turn_keys(key, lines * 4, turned);
    for (int t = 0; t < STRIP_TILES; t++) {
        s.tile[t] = s.ahead[t] = (const char *)turned + t * lines * LINE;
    }
    run_strip(job, &s, list, first, bf16, STRIP_TILES);
}

/* Rows behind the last block repeat it. */
QSA_SIMD void run_rows(const qsa_score_job *job, const int bf16) {
    chain_list list;
    int64_t blocks = list_chains(job, &list);
    for (int64_t first = 0; first < blocks; first += STRIP_BLOCKS) {
        const char *key[STRIP_BLOCKS];
        for (int64_t i = 0; i < STRIP_BLOCKS; i++) {
            key[i] = (const char *)job->keys + qsa_min(first + i, blocks - 1) * job->block_stride;
        }
        run_turned(job, &list, key, first, bf16);
    }
}

/* The keys of a list are far apart: those of the next strip are fetched while one is computed. */
QSA_SIMD void run_list(const qsa_score_list *from, const int bf16) {
    qsa_score_job job = {.heads = from->heads, .dim = from->dim, .scale = from->scale, .rows = 1};
    chain_list list;
    job.iq[0] = from->iq;
    job.scores[0] = from->scores;
    job.count[0] = from->count;
    list_chains(&job, &list);
    for (int64_t first = 0; first < from->count; first += STRIP_BLOCKS) {
        const char *key[STRIP_BLOCKS];
        for (int64_t i = 0; i < STRIP_BLOCKS; i++) {
            const char *ahead = from->key[qsa_min(first + STRIP_BLOCKS + i, from->count - 1)];
            key[i] = from->key[qsa_min(first + i, from->count - 1)];
            for (int64_t at = 0; at < job.dim * (bf16 ? 2 : 4); at += LINE) {
                __builtin_prefetch(ahead + at, 0, 3);
            }
        }
        run_turned(&job, &list, key, first, bf16);
    }
}

QSA_KERNEL static void QSA_LEVEL(qsa_score_list_f32)(const qsa_score_list *list) {
    run_list(list, 0);
}

QSA_KERNEL static void QSA_LEVEL(qsa_score_list_bf16)(const qsa_score_list *list) {
    run_list(list, 1);
}

QSA_KERNEL static void QSA_LEVEL(qsa_score_rows_f32)(const qsa_score_job *job) {
    run_rows(job, 0);
}

QSA_KERNEL static void QSA_LEVEL(qsa_score_rows_bf16)(const qsa_score_job *job) {
    run_rows(job, 1);
}

QSA_KERNEL static void QSA_LEVEL(qsa_score_tiles_f32)(const qsa_score_job *job) {
    run_tiles(job, 0);
}

QSA_KERNEL static void QSA_LEVEL(qsa_score_tiles_bf16)(const qsa_score_job *job) {
    run_tiles(job, 1);
}

void QSA_LEVEL(qsa_score_init)(qsa_score_kernels *kernels) {
    *kernels = (qsa_score_kernels){
        .run = {{QSA_LEVEL(qsa_score_rows_f32), QSA_LEVEL(qsa_score_rows_bf16)},
                {QSA_LEVEL(qsa_score_tiles_f32), QSA_LEVEL(qsa_score_tiles_bf16)}},
        .list = {QSA_LEVEL(qsa_score_list_f32), QSA_LEVEL(qsa_score_list_bf16)},
        .name = {{QSA_NAME("qsa_score_rows_f32"), QSA_NAME("qsa_score_rows_bf16")},
                 {QSA_NAME("qsa_score_tiles_f32"), QSA_NAME("qsa_score_tiles_bf16")}},
        .list_name = {QSA_NAME("qsa_score_list_f32"), QSA_NAME("qsa_score_list_bf16")},
    };
}
