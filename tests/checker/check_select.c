/* SPDX-License-Identifier: MIT */
/* Select: any length, block and target; scores with ties of every kind, sorted, few distinct, not numbers. */
#include "checker.h"

#include "runtime/numerics.h"

#include <stdio.h>

static struct select_state {
    qsa_select_job job;
    guarded scores;
} state;

/* Shapes of a row of scores that flavours do not give. */
typedef enum pattern {
    AS_FLAVOURED, RELU, ASCENDING, DESCENDING, FEW_DISTINCT, HALF_IN_A_BIN, LAST_BITS, FEW_NUMBERS, FEW_FINITE, PERIODIC,
    PATTERNS
} pattern;

static float pattern_value(dice *d, pattern p, int64_t i, int64_t blocks) {
    float x = dice_float(d);
    switch (p) {
    case RELU: return x > 0.7f ? x : 0.0f;
    case ASCENDING: return (float)i;
    case DESCENDING: return (float)(blocks - i);
    case FEW_DISTINCT: return (float)dice_range(d, -1, 2) * 0.5f;
    case FEW_NUMBERS: return dice_one_in(d, 30) ? x : qsa_from_bits(0x7fc00000u); /* often fewer than are taken */
    case FEW_FINITE: return dice_one_in(d, 30) ? x : -QSA_INFINITY;
    case PERIODIC: return i % 2048 < 500 ? 2.0f + x : x; /* 500 of 2,048 strided groups hold all that is large */
    case HALF_IN_A_BIN: return dice_one_in(d, 2) ? 1.0f + x * 1e-3f : x * 100.0f;
    default: return qsa_from_bits(0x3f800000u + (uint32_t)dice_range(d, 0, 7));
    }
}

static int64_t draw_blocks(dice *d, const case_info *info) {
    if (info->typical) {
        return 32768;
    }
    switch (dice_range(d, 0, 11)) {
    case 0: return dice_range(d, 4000, 4200); /* about where the portable kernel stops keeping keys */
    case 1: return dice_range(d, 4000, 40000);
    case 2: return info->trial % 40 == 0 ? 262144 + dice_range(d, 0, 40) : dice_range(d, 1, 20);
    case 3:
    case 4: return dice_range(d, 1, 40);
    default: return dice_range(d, 1, 2500);
    }
}

static int64_t draw_target(dice *d, int64_t n, int64_t block) {
    switch (dice_range(d, 0, 4)) {
    case 0: return dice_range(d, 1, n - 1);
    case 1: return n - 1;
    case 2: return qsa_min(n - 1, dice_range(d, 1, 8));
    case 3: return qsa_min(n - 1, qsa_max(1, dice_range(d, 1, n / block + 1) * block + n % block)); /* QSA_BLOCKS */
    default: return qsa_min(n - 1, 2048 + block - 1);
    }
}

static void draw(dice *d, case_info *info) {
    qsa_select_job *job = &state.job;
    if (!state.scores.base) {
        guarded_open(&state.scores, 1 << 16);
    }
    int crowded = !info->typical && info->trial % 50 == 7; /* too many blocks are above a guess made from group maxima */
    int64_t blocks = crowded ? dice_range(d, 20000, 40000) : draw_blocks(d, info);
    job->block = info->typical ? 4 : 2 << dice_range(d, 0, 2);
    job->n = blocks * job->block + (info->typical ? 0 : dice_range(d, 0, job->block - 1));
    job->target = crowded ? 512 * job->block : info->typical ? 2048 : draw_target(d, job->n, job->block);
    float *scores = guarded_place(&state.scores, d, (size_t)blocks * sizeof *scores, sizeof *scores);
    flavour f = info->typical ? PLAIN : (flavour)dice_range(d, 0, FLAVOURS - 1);
    pattern p = crowded ? PERIODIC : info->typical ? AS_FLAVOURED : (pattern)dice_range(d, 0, PATTERNS - 1);
    fill_f32(d, f, scores, blocks);
    for (int64_t i = 0; p != AS_FLAVOURED && i < blocks; i++) {
        scores[i] = pattern_value(d, p, i, blocks);
    }
    job->scores = scores;
    info->element = ELEMENT_I32;
    info->count = job->target;
    snprintf(info->text, sizeof info->text, "n %lld, block %lld, target %lld, scores %s, pattern %d", (long long)job->n,
             (long long)job->block, (long long)job->target, flavour_name(f), (int)p);
}

static void run(const kernel_set *set, void *out) {
    qsa_select_job job = state.job;
    job.ids = out;
    set->select.run(&job);
}

static int inputs_intact(void) {
    return guarded_intact(&state.scores);
}

static const char *kernel(const kernel_set *set) {
    return set->select.name;
}

const stage select_stages[] = {
    {.name = "select", .trials = 600, .kernel = kernel, .draw = draw, .run = run, .inputs_intact = inputs_intact},
    {.name = NULL},
};
