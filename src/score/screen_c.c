/* SPDX-License-Identifier: MIT */
/* The portable screening kernel: it defines the intervals. */
#include "runtime/cpu.h"
#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "score/screen.h"

/* H_h . integers of the 16 blocks of a tile. Below 2^31: 512 * 127 * 32639. */
static void multiply_head(const char *tile, const qsa_screen_query *query, int64_t h, int32_t product[QSA_TILE]) {
    const int8_t *high = query->digits + h * 2 * query->dim, *low = high + query->dim;
    memset(product, 0, QSA_TILE * sizeof *product);
    for (int64_t c = 0; c < query->dim; c++) {
        int32_t integer = 256 * high[c] + low[c];
        const char *bytes = tile + c / 4 * QSA_TILE * 4 + c % 4;
        for (int l = 0; l < QSA_TILE; l++) {
            product[l] += integer * ((int32_t)(unsigned char)bytes[4 * l] - 128);
        }
    }
}

/* The intervals of the first `live` blocks: behind the last block of a sequence lies what nobody has written. */
static void screen_tile(const char *tile, const qsa_screen_query *query, int64_t live, float *low, float *high) {
    float sum[QSA_TILE] = {0}, step[QSA_TILE], error[QSA_TILE];
    memcpy(step, tile + query->dim * QSA_TILE, sizeof step);
    memcpy(error, tile + query->dim * QSA_TILE + sizeof step, sizeof error);
    for (int64_t h = 0; h < query->heads; h++) {
        int32_t product[QSA_TILE];
        multiply_head(tile, query, h, product);
        for (int l = 0; l < QSA_TILE; l++) {
            float positive = (float)(product[l] > 0 ? product[l] : 0);
            sum[l] = sum[l] + positive * query->head_step[h];
        }
    }
    for (int64_t l = 0; l < live; l++) {
        float score = sum[l] * (step[l] * query->scale);
        float half = qsa_fma(query->key_error, error[l], qsa_fma(query->key_step, step[l], QSA_SCREEN_LEAST));
        low[l] = score - half;
        high[l] = score + half;
    }
}

static void qsa_screen_i8_c(const qsa_screen_job *job) {
    const char *tile = job->tiles;
    for (int64_t b = 0; b < job->count; b += QSA_TILE, tile += qsa_screen_tile_bytes(job->query->dim)) {
        screen_tile(tile, job->query, qsa_min(job->count - b, QSA_TILE), job->low + b, job->high + b);
    }
}

void qsa_screen_init(qsa_screen_kernels *kernels, qsa_cpu cpu) {
    *kernels = (qsa_screen_kernels){.run = qsa_screen_i8_c, .name = "qsa_screen_i8_c"};
#if defined(QSA_X86)
    if (cpu == QSA_CPU_AVX2) {
        qsa_screen_init_avx2(kernels);
    } else if (cpu == QSA_CPU_AVX512) {
        qsa_screen_init_avx512(kernels);
    } else if (cpu == QSA_CPU_AMX) {
        qsa_screen_init_amx(kernels);
    }
#elif defined(QSA_ARM)
    if (cpu == QSA_CPU_NEON) {
        qsa_screen_init_neon(kernels);
    }
#else
    (void)cpu;
#endif
}
