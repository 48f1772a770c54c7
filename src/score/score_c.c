/* SPDX-License-Identifier: MIT */
/* The portable score kernels: they define the bits. */
#include "runtime/cpu.h"
#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "score/score.h"

/* d[l] of one head for the 16 blocks of a tile, then its relu added to sum[l]. */
static void add_head(const float *iq, const float key[][QSA_TILE], int64_t dim, float sum[QSA_TILE]) {
    float d[QSA_TILE] = {0};
    for (int64_t c = 0; c < dim; c++) {
        for (int l = 0; l < QSA_TILE; l++) {
            d[l] = qsa_fma(iq[c], key[c][l], d[l]);
        }
    }
    for (int l = 0; l < QSA_TILE; l++) {
        sum[l] += 0.0f > d[l] ? 0.0f : d[l];
    }
}

/* The tile's keys are in f32 here, whatever they were stored as: [dim][16]. */
static void score_tile(const qsa_score_job *job, int64_t first, const float key[][QSA_TILE]) {
    for (int64_t r = 0; r < job->rows; r++) {
        int64_t live = qsa_min(job->count[r] - first, QSA_TILE);
        if (live <= 0) {
            continue;
        }
        float sum[QSA_TILE] = {0};
        for (int64_t h = 0; h < job->heads; h++) {
            add_head(job->iq[r] + h * job->dim, key, job->dim, sum);
        }
        for (int64_t l = 0; l < live; l++) {
            job->scores[r][first + l] = sum[l] * job->scale;
        }
    }
}

static int64_t longest(const qsa_score_job *job) {
    int64_t blocks = 0;
    for (int64_t r = 0; r < job->rows; r++) {
        blocks = qsa_max(blocks, job->count[r]);
    }
    return blocks;
}

static float element(const void *base, qsa_type type, int64_t offset) {
    const char *at = (const char *)base + offset;
    if (type == QSA_F32) {
        float x;
        memcpy(&x, at, sizeof x);
        return x;
    }
    uint16_t x;
    memcpy(&x, at, sizeof x);
    return qsa_bf16_to_f32(x);
}

static void score_any(const qsa_score_job *job, qsa_key_layout layout, qsa_type type) {
    float key[512][QSA_TILE];
    int64_t blocks = longest(job), bytes = type == QSA_F32 ? 4 : 2;
    for (int64_t first = 0; first < blocks; first += QSA_TILE) {
        for (int64_t c = 0; c < job->dim; c++) {
            for (int64_t l = 0; l < QSA_TILE; l++) {
                int64_t b = first + l;
                if (layout == QSA_KEYS_TILES) {
                    key[c][l] = element(job->keys, type, qsa_tile_offset(type, job->dim, b, c));
                } else {
                    key[c][l] = b < blocks ? element(job->keys, type, b * job->block_stride + c * bytes) : 0.0f;
                }
            }
        }
        score_tile(job, first, (const float(*)[QSA_TILE])key);
    }
}

static void list_any(const qsa_score_list *list, qsa_type type) {
    float key[512][QSA_TILE];
    qsa_score_job job = {.heads = list->heads, .dim = list->dim, .scale = list->scale, .rows = 1};
    int64_t bytes = type == QSA_F32 ? 4 : 2;
    job.iq[0] = list->iq;
    job.scores[0] = list->scores;
    job.count[0] = list->count;
    for (int64_t first = 0; first < list->count; first += QSA_TILE) {
        for (int64_t l = 0; l < QSA_TILE; l++) {
            const char *at = list->key[qsa_min(first + l, list->count - 1)];
            for (int64_t c = 0; c < list->dim; c++) {
                key[c][l] = element(at, type, c * bytes);
            }
        }
        score_tile(&job, first, (const float(*)[QSA_TILE])key);
    }
}

static void qsa_score_list_f32_c(const qsa_score_list *list) {
    list_any(list, QSA_F32);
}

static void qsa_score_list_bf16_c(const qsa_score_list *list) {
    list_any(list, QSA_BF16);
}

static void qsa_score_rows_f32_c(const qsa_score_job *job) {
    score_any(job, QSA_KEYS_ROWS, QSA_F32);
}

static void qsa_score_rows_bf16_c(const qsa_score_job *job) {
    score_any(job, QSA_KEYS_ROWS, QSA_BF16);
}

static void qsa_score_tiles_f32_c(const qsa_score_job *job) {
    score_any(job, QSA_KEYS_TILES, QSA_F32);
}

static void qsa_score_tiles_bf16_c(const qsa_score_job *job) {
    score_any(job, QSA_KEYS_TILES, QSA_BF16);
}

void qsa_score_init(qsa_score_kernels *kernels, qsa_cpu cpu) {
    *kernels = (qsa_score_kernels){
        .run = {{qsa_score_rows_f32_c, qsa_score_rows_bf16_c}, {qsa_score_tiles_f32_c, qsa_score_tiles_bf16_c}},
        .list = {qsa_score_list_f32_c, qsa_score_list_bf16_c},
        .name = {{"qsa_score_rows_f32_c", "qsa_score_rows_bf16_c"}, {"qsa_score_tiles_f32_c", "qsa_score_tiles_bf16_c"}},
        .list_name = {"qsa_score_list_f32_c", "qsa_score_list_bf16_c"},
    };
#if defined(QSA_X86)
    if (cpu == QSA_CPU_AVX2) {
        qsa_score_init_avx2(kernels);
    } else if (cpu == QSA_CPU_AVX512 || cpu == QSA_CPU_AMX) {
        qsa_score_init_avx512(kernels);
    }
#elif defined(QSA_ARM)
    if (cpu == QSA_CPU_NEON) {
        qsa_score_init_neon(kernels);
    }
#else
    (void)cpu;
#endif
}
