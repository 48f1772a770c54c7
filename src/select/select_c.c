/* SPDX-License-Identifier: MIT */
/*
 * topk2: the original's selection, and the portable kernel. Four passes of 8 bits find the key T at which the weight of the
 * entries, taken from the highest key down, reaches the target; then one pass emits all entries above T, and the first ones
 * equal to T, in order of index. Rows of up to KEPT_KEYS blocks keep their keys; longer rows make them again in each pass.
 */
#include "runtime/cpu.h"
#include "runtime/memory.h"
#include "select/select.h"

enum { KEPT_KEYS = 4096, BINS = 256 };

#define TAIL_KEY 0xffffffffu /* above +infinity's */

typedef struct row {
    const qsa_select_job *job;
    int64_t blocks;
    int64_t tail; /* cells in it */
    const uint32_t *kept;
} row;

static uint32_t key_of(const row *r, int64_t b) {
    return r->kept ? r->kept[b] : qsa_select_key(r->job->scores[b]);
}

/* Weight of the entries whose key starts with `prefix` (the bits above shift + 8), by their next 8 bits. */
static void histogram(const row *r, uint32_t prefix, int shift, int64_t weight[BINS]) {
    memset(weight, 0, BINS * sizeof *weight);
    for (int64_t b = 0; b < r->blocks; b++) {
        uint32_t key = key_of(r, b);
        if ((uint32_t)((uint64_t)key >> (shift + 8)) == prefix) {
            weight[(key >> shift) & 0xffu] += r->job->block;
        }
    }
    if ((uint32_t)((uint64_t)TAIL_KEY >> (shift + 8)) == prefix) {
        weight[(TAIL_KEY >> shift) & 0xffu] += r->tail;
    }
}

/* The threshold key; *need becomes the weight to take from the entries equal to it. */
static uint32_t find_threshold(const row *r, int64_t *need) {
    uint32_t prefix = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t weight[BINS];
        histogram(r, prefix, shift, weight);
        uint32_t bin = BINS - 1;
        while (weight[bin] < *need) {
            *need -= weight[bin--];
        }
        prefix = prefix << 8 | bin;
    }
    return prefix;
}

static int32_t *emit(int32_t *ids, int64_t first, int64_t cells) {
    for (int64_t i = 0; i < cells; i++) {
        *ids++ = (int32_t)(first + i);
    }
    return ids;
}

void qsa_select_f32_c(const qsa_select_job *job) {
    uint32_t kept[KEPT_KEYS];
    row r = {.job = job, .blocks = job->n / job->block, .tail = job->n % job->block, .kept = NULL};
    if (r.blocks <= KEPT_KEYS) {
        for (int64_t b = 0; b < r.blocks; b++) {
            kept[b] = qsa_select_key(job->scores[b]);
        }
        r.kept = kept;
    }
    int64_t need = job->target;
    uint32_t threshold = find_threshold(&r, &need);
    int32_t *ids = job->ids;
    for (int64_t b = 0; b < r.blocks; b++) {
        uint32_t key = key_of(&r, b);
        if (key > threshold) {
            ids = emit(ids, b * job->block, job->block);
        } else if (key == threshold && need > 0) {
            int64_t cells = qsa_min(need, job->block);
            ids = emit(ids, b * job->block, cells);
            need -= cells;
        }
    }
    emit(ids, r.blocks * job->block, job->ids + job->target - ids);
}

static int64_t qsa_select_candidates_c(const qsa_candidates_job *job) {
    const qsa_select_job lows = {.scores = job->low, .n = job->lows, .block = 1};
    row r = {.job = &lows, .blocks = job->lows, .tail = 0, .kept = NULL};
    int64_t need = job->k, count = 0;
    uint32_t threshold = find_threshold(&r, &need);
    for (int64_t b = 0; b < job->blocks; b++) {
        if (qsa_select_key(job->high[b]) >= threshold) {
            if (count == job->most) {
                return -1;
            }
            job->list[count++] = (int32_t)b;
        }
    }
    return count;
}

static void qsa_select_maxima_c(const float *scores, int64_t count, int64_t groups, float *maxima) {
    for (int64_t g = 0; g < groups; g++) {
        maxima[g] = -QSA_INFINITY;
    }
    for (int64_t b = 0; b < count; b++) {
        float *top = &maxima[b % groups];
        *top = scores[b] > *top ? scores[b] : *top;
    }
}

void qsa_select_init(qsa_select_kernels *kernels, qsa_cpu cpu) {
    *kernels = (qsa_select_kernels){
        .run = qsa_select_f32_c,
        .candidates = qsa_select_candidates_c,
        .maxima = qsa_select_maxima_c,
        .name = "qsa_select_f32_c",
        .candidates_name = "qsa_select_candidates_c",
        .maxima_name = "qsa_select_maxima_c",
    };
#if defined(QSA_X86)
    if (cpu == QSA_CPU_AVX2) {
        qsa_select_init_avx2(kernels);
    } else if (cpu == QSA_CPU_AVX512 || cpu == QSA_CPU_AMX) {
        qsa_select_init_avx512(kernels);
    }
#elif defined(QSA_ARM)
    if (cpu == QSA_CPU_NEON) {
        qsa_select_init_neon(kernels);
    }
#else
    (void)cpu;
#endif
}
