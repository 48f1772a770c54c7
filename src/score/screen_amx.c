/* SPDX-License-Identifier: MIT */
/*
 * The screening kernel for AMX. A tile of keys is what the instruction wants: 16 quads of channels x 16 blocks. The
 * query's digits are the rows, so one product gives all heads of 64 channels. Loads behind a tile store wait for it:
 * sums are read one step later.
 */
#include "runtime/cpu.h"

#if defined(QSA_X86)
#define QSA_SIMD_AVX512
#include "runtime/simd.h"

#include "runtime/amx.h"
#include "runtime/memory.h"
#include "score/screen_simd.h"

enum { GROUP = 64, GROUPS_MAX = 4, HEADS_MAX = 8, LINE = 64, STEP_TILES = 2 };

/* Registers: sums of two tiles, keys of two, the query's groups of channels. */
#define T_SUM_0   0
#define T_SUM_1   1
#define T_KEY_0   2
#define T_KEY_1   3
#define T_QUERY_0 4
#define T_QUERY_1 5
#define T_QUERY_2 6
#define T_QUERY_3 7

/* [head][digit][block] of two tiles. */
typedef struct tile_sums {
    _Alignas(64) int32_t of[STEP_TILES][HEADS_MAX][2][QSA_TILE];
} tile_sums;

QSA_SIMD void start(const qsa_screen_query *query) {
    qsa_amx_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = (uint8_t)(i == T_KEY_0 || i == T_KEY_1 ? 16 : 2 * query->heads);
    }
    AMX_CONFIGURE(config);
    int64_t groups = query->dim / GROUP;
    AMX_LOAD(T_QUERY_0, query->digits, query->dim);
    if (groups > 1) {
        AMX_LOAD(T_QUERY_1, query->digits + GROUP, query->dim);
    }
    if (groups > 2) {
        AMX_LOAD(T_QUERY_2, query->digits + 2 * GROUP, query->dim);
    }
    if (groups > 3) {
        AMX_LOAD(T_QUERY_3, query->digits + 3 * GROUP, query->dim);
    }
}

#define MULTIPLY_GROUP(i, sum, key, query_tile)                                                                        \
    if (groups > (i)) {                                                                                                \
        AMX_LOAD(key, tile + (i)*GROUP * QSA_TILE, LINE);                                                              \
        AMX_MULTIPLY(su, sum, query_tile, key);                                                                        \
    }

QSA_SIMD void multiply_first(const char *tile, int64_t groups, int32_t *to) {
    AMX_ZERO(T_SUM_0);
    MULTIPLY_GROUP(0, T_SUM_0, T_KEY_0, T_QUERY_0)
    MULTIPLY_GROUP(1, T_SUM_0, T_KEY_1, T_QUERY_1)
    MULTIPLY_GROUP(2, T_SUM_0, T_KEY_0, T_QUERY_2)
    MULTIPLY_GROUP(3, T_SUM_0, T_KEY_1, T_QUERY_3)
    AMX_STORE(T_SUM_0, to);
}

QSA_SIMD void multiply_second(const char *tile, int64_t groups, int32_t *to) {
    AMX_ZERO(T_SUM_1);
    MULTIPLY_GROUP(0, T_SUM_1, T_KEY_0, T_QUERY_0)
    MULTIPLY_GROUP(1, T_SUM_1, T_KEY_1, T_QUERY_1)
    MULTIPLY_GROUP(2, T_SUM_1, T_KEY_0, T_QUERY_2)
    MULTIPLY_GROUP(3, T_SUM_1, T_KEY_1, T_QUERY_3)
    AMX_STORE(T_SUM_1, to);
}

QSA_SIMD void finish_tile(const char *tile, const qsa_screen_query *query, int32_t of[][2][QSA_TILE], float *low,
                          float *high) {
    vf sum = v_set(0.0f);
    for (int64_t h = 0; h < query->heads; h++) {
        vi product = _mm512_slli_epi32(v_load_bits(of[h][0]), 8);
        product = _mm512_add_epi32(product, v_load_bits(of[h][1]));
        product = _mm512_add_epi32(product, _mm512_set1_epi32(query->head_bias[h]));
        vf positive = _mm512_cvtepi32_ps(_mm512_max_epi32(product, _mm512_setzero_si512()));
        sum = v_add(sum, v_mul(positive, v_set(query->head_step[h])));
    }
    write_intervals(tile, query, &sum, low, high);
}

QSA_SIMD void finish_step(const qsa_screen_job *job, tile_sums *sums, int64_t b) {
    int64_t bytes = qsa_screen_tile_bytes(job->query->dim);
    for (int t = 0; t < STEP_TILES && b + t * QSA_TILE < job->count; t++) {
        int64_t first = b + t * QSA_TILE;
        finish_tile(job->tiles + first / QSA_TILE * bytes, job->query, sums->of[t], job->low + first,
                    job->high + first);
    }
}

/* Steps of two tiles: each is multiplied while the intervals of the one before are written, and the one after fetched.
 */
QSA_KERNEL static void qsa_screen_i8_amx(const qsa_screen_job *job) {
    const qsa_screen_query *query = job->query;
    if (query->dim % GROUP || query->dim > GROUPS_MAX * GROUP || query->heads > HEADS_MAX) {
        qsa_screen_i8_avx512(job);
        return;
    }
    enum { STEP = STEP_TILES * QSA_TILE };
    tile_sums sums[2];
    int64_t bytes = qsa_screen_tile_bytes(query->dim), groups = query->dim / GROUP, b = 0;
    const char *next = job->next ? job->next : job->tiles;
    start(query);
    for (; b < job->count; b += STEP) {
        const char *tile = job->tiles + b / QSA_TILE * bytes;
        const char *ahead = b + STEP < job->count ? tile + STEP_TILES * bytes : next;
        tile_sums *now = &sums[b / STEP % 2];
        multiply_first(tile, groups, now->of[0][0][0]);
        if (b + QSA_TILE < job->count) {
            multiply_second(tile + bytes, groups, now->of[1][0][0]);
        }
        for (int64_t at = 0; at < STEP_TILES * bytes; at += LINE) {
            __builtin_prefetch(ahead + at, 0, 3);
        }
        if (b > 0) {
            finish_step(job, &sums[(b / STEP + 1) % 2], b - STEP);
        }
    }
    AMX_RELEASE();
    finish_step(job, &sums[(b / STEP + 1) % 2], b - STEP);
}

void qsa_screen_init_amx(qsa_screen_kernels *kernels) {
    *kernels = (qsa_screen_kernels){.run = qsa_screen_i8_amx, .name = "qsa_screen_i8_amx"};
}
#else
typedef int qsa_no_screening_here; /* a translation unit must not be empty */
#endif
