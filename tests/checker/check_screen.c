/* SPDX-License-Identifier: MIT */
/* Screening: intervals of tiles of any bytes, scores of keys that lie anywhere, group maxima, and lists of candidates.
 */
#include "checker.h"

#include "runtime/numerics.h"

#include <stdio.h>
#include <stdlib.h>

enum { DIM_MAX = 512, HEADS_MAX = 64, LIST_MOST = 300, FEW_TRIALS = 150, MANY_TRIALS = 400 };

static struct screen_state {
    qsa_screen_job job;
    qsa_screen_query query;
    guarded tiles, query_memory;
    qsa_score_list list;
    guarded keys, iq;
    const char *key[LIST_MOST];
    qsa_candidates_job candidates;
    int64_t groups, count;
    float limit; /* the k-th largest lower end */
    guarded low, high;
} state;

static void open_guards(void) {
    guarded *all[] = {&state.tiles, &state.query_memory, &state.keys, &state.iq, &state.low, &state.high};
    for (size_t i = 0; !state.tiles.base && i < sizeof all / sizeof *all; i++) {
        guarded_open(all[i], 1 << 16);
    }
}

static int inputs_intact(void) {
    const guarded *all[] = {&state.tiles, &state.query_memory, &state.keys, &state.iq, &state.low, &state.high};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!guarded_intact(all[i])) {
            return 0;
        }
    }
    return 1;
}

static void draw_sizes(dice *d, const case_info *info, int64_t *heads, int64_t *dim) {
    *heads = info->typical || dice_one_in(d, 3) ? 4 : dice_range(d, 1, dice_one_in(d, 10) ? HEADS_MAX : 9);
    *dim = info->typical || dice_one_in(d, 3) ? 128 : 16 * dice_range(d, 1, dice_one_in(d, 8) ? 32 : 10);
}

/* ------------------------------------------------------------------------------------------------ intervals */

static void draw_screen(dice *d, case_info *info) {
    int64_t heads, dim;
    open_guards();
    draw_sizes(d, info, &heads, &dim);
    int64_t count = info->typical ? 1024 : dice_range(d, 1, dice_one_in(d, 4) ? 150 : 40),
            tiles = qsa_div_up(count, QSA_TILE);
    int64_t bytes = qsa_screen_tile_bytes(dim);
    flavour f = info->typical ? PLAIN : dice_flavour(d);
    char *tile = guarded_place(&state.tiles, d, (size_t)(tiles * bytes), 64);
    float *iq = guarded_place(&state.iq, d, (size_t)(heads * dim) * sizeof *iq, sizeof *iq);
    void *memory = guarded_place(&state.query_memory, d, (size_t)qsa_screen_query_bytes(heads, dim), 64);
    for (int64_t i = 0; i < tiles * bytes; i++) {
        tile[i] = (char)(dice_one_in(d, 9) ? 255 : dice_bits(d) & 255);
    }
    for (int64_t i = 0; i < tiles; i++) {
        fill_f32(d, f, (float *)(void *)(tile + i * bytes + dim * QSA_TILE), 2 * QSA_TILE);
    }
    fill_f32(d, dice_one_in(d, 3) ? EQUAL : PLAIN, iq, heads * dim);
    iq[0] = 0.75f; /* not all zero */
    (void)qsa_screen_prepare(iq, heads, dim, 0.0883883461f, memory, &state.query);
    state.job = (qsa_screen_job){.tiles = tile, .count = count, .query = &state.query};
    state.job.next = info->typical || dice_one_in(d, 2) ? NULL : (const char *)&state;
    info->element = ELEMENT_F32;
    info->count = 2 * tiles * QSA_TILE;
    snprintf(info->text, sizeof info->text, "%lld blocks, %lld heads of %lld, steps %s", (long long)count,
             (long long)heads, (long long)dim, flavour_name(f));
}

static void run_screen(const kernel_set *set, void *out) {
    qsa_screen_job job = state.job;
    job.low = out;
    job.high = job.low + qsa_round_up(job.count, QSA_TILE);
    set->screen.run(&job);
    for (int64_t i = job.count; i < qsa_round_up(job.count, QSA_TILE); i++) { /* behind the last block any end may be written */
        job.low[i] = job.high[i] = 0.0f;
    }
}

static const char *screen_name(const kernel_set *set) {
    return set->screen.name;
}

/* ------------------------------------------------------------------------------------------------ listed keys */

static void draw_list(dice *d, case_info *info, qsa_type type) {
    qsa_score_list *list = &state.list;
    int64_t bytes = type == QSA_F32 ? 4 : 2, keys = info->typical ? 4096 : dice_range(d, 1, 60);
    open_guards();
    *list = (qsa_score_list){.scale = 0.0883883461f, .key = state.key};
    draw_sizes(d, info, &list->heads, &list->dim);
    list->count = info->typical ? 128 : dice_range(d, 1, dice_one_in(d, 4) ? LIST_MOST : 40);
    flavour fk = info->typical ? PLAIN : dice_flavour(d), fq = info->typical ? PLAIN : dice_flavour(d);
    float *iq = guarded_place(&state.iq, d, (size_t)(list->heads * list->dim) * sizeof *iq, sizeof *iq);
    char *base = guarded_place(&state.keys, d, (size_t)(keys * list->dim * bytes), (size_t)bytes);
    fill_f32(d, fq, iq, list->heads * list->dim);
    if (type == QSA_F32) {
        fill_f32(d, fk, (float *)(void *)base, keys * list->dim);
    } else {
        fill_bf16(d, fk, (uint16_t *)(void *)base, keys * list->dim);
    }
    for (int64_t i = 0; i < list->count; i++) {
        state.key[i] = base + dice_range(d, 0, keys - 1) * list->dim * bytes;
    }
    list->iq = iq;
    info->element = ELEMENT_F32;
    info->count = list->count;
    snprintf(info->text, sizeof info->text, "%lld of %lld keys, %lld heads of %lld, keys %s, queries %s",
             (long long)list->count, (long long)keys, (long long)list->heads, (long long)list->dim, flavour_name(fk),
             flavour_name(fq));
}

static void draw_list_f32(dice *d, case_info *info) {
    draw_list(d, info, QSA_F32);
}

static void draw_list_bf16(dice *d, case_info *info) {
    draw_list(d, info, QSA_BF16);
}

static void run_list(const kernel_set *set, void *out, int bf16) {
    qsa_score_list list = state.list;
    list.scores = out;
    set->score.list[bf16](&list);
}

static void run_list_f32(const kernel_set *set, void *out) {
    run_list(set, out, 0);
}

static void run_list_bf16(const kernel_set *set, void *out) {
    run_list(set, out, 1);
}

static const char *list_f32_name(const kernel_set *set) {
    return set->score.list_name[0];
}

static const char *list_bf16_name(const kernel_set *set) {
    return set->score.list_name[1];
}

/* ------------------------------------------------------------------------------------------------ maxima */

/* Values as intervals have them: no NaN; infinities and ties of all kinds. */
static float end_value(dice *d, int kind) {
    switch (kind) {
    case 0:
        return dice_one_in(d, 2) ? -QSA_INFINITY : dice_float(d);
    case 1:
        return (float)dice_range(d, -1, 1) * 0.5f;
    case 2:
        return dice_one_in(d, 2) ? 0.0f : -0.0f;
    case 3:
        return dice_one_in(d, 30) ? QSA_INFINITY : dice_float(d);
    default:
        return dice_float(d);
    }
}

static void draw_maxima(dice *d, case_info *info) {
    open_guards();
    state.groups = dice_one_in(d, 2) ? 128 : 256;
    state.count = info->typical || dice_one_in(d, 3) ? 1024 : dice_range(d, 1, 1024);
    float *low = guarded_place(&state.low, d, (size_t)state.count * sizeof *low, sizeof *low);
    int kind = info->typical ? 4 : (int)dice_range(d, 0, 6);
    for (int64_t i = 0; i < state.count; i++) {
        low[i] = end_value(d, kind);
    }
    info->element = ELEMENT_F32;
    info->count = state.groups;
    snprintf(info->text, sizeof info->text, "%lld scores, %lld groups, kind %d", (long long)state.count,
             (long long)state.groups, kind);
}

/* -0 and +0 are equal: which of them is the larger is left open. */
static void run_maxima(const kernel_set *set, void *out) {
    float *maxima = out;
    set->select.maxima((const float *)(const void *)state.low.at, state.count, state.groups, maxima);
    for (int64_t g = 0; g < state.groups; g++) {
        maxima[g] += 0.0f;
    }
}

static const char *maxima_name(const kernel_set *set) {
    return set->select.maxima_name;
}

/* ------------------------------------------------------------------------------------------------ candidates */

static int descending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static void draw_candidates(dice *d, case_info *info) {
    qsa_candidates_job *job = &state.candidates;
    open_guards();
    int kind = info->typical ? 4 : (int)dice_range(d, 0, 6);
    int64_t lows = QSA_SELECT_WORD * (info->typical ? 64 : dice_range(d, 1, 70));
    int64_t blocks = info->typical ? 32768 : lows + dice_range(d, 0, 3000);
    *job = (qsa_candidates_job){.lows = lows, .blocks = blocks, .most = blocks};
    job->k = info->typical ? 512 : dice_one_in(d, 3) ? dice_range(d, 1, lows) : dice_range(d, 1, qsa_min(lows, 60));
    float *low = guarded_place(&state.low, d, (size_t)lows * sizeof *low, sizeof *low);
    float *high = guarded_place(&state.high, d, (size_t)blocks * sizeof *high, sizeof *high);
    for (int64_t i = 0; i < blocks; i++) {
        float x = end_value(d, kind), half = dice_one_in(d, 3) ? 0.0f : 0.05f;
        high[i] = x + half;
        if (i < lows) {
            low[i] = x - half;
        }
    }
    float *sorted = malloc((size_t)lows * sizeof *sorted);
    if (!sorted) {
        exit(2);
    }
    memcpy(sorted, low, (size_t)lows * sizeof *sorted);
    qsort(sorted, (size_t)lows, sizeof *sorted, descending);
    state.limit = sorted[job->k - 1];
    free(sorted);
    job->low = low;
    job->high = high;
    info->element = ELEMENT_I32;
    info->count = blocks;
    snprintf(info->text, sizeof info->text, "%lld of %lld lower ends, %lld blocks, kind %d", (long long)job->k,
             (long long)lows, (long long)blocks, kind);
}

/* A level may list a few more than the portable kernel: compared are the blocks that must be there. */
static int must_be_listed(int64_t i) {
    return state.candidates.high[i] >= state.limit;
}

static void run_candidates(const kernel_set *set, void *out) {
    static int32_t list[1 << 17];
    static float kept[1 << 13];
    qsa_candidates_job job = state.candidates;
    int32_t *listed = out;
    memcpy(kept, job.low, (size_t)job.lows * sizeof *kept);
    job.list = list;
    int64_t count = set->select.candidates(&job);
    memcpy(job.low, kept, (size_t)job.lows * sizeof *kept);
    for (int64_t i = 0; i < count; i++) {
        if (must_be_listed(list[i])) {
            listed[list[i]] = i == 0 || list[i] > list[i - 1];
        }
    }
}

static const char *candidates_name(const kernel_set *set) {
    return set->select.candidates_name;
}

const stage screen_stages[] = {
    {.name = "screen_i8",
     .trials = FEW_TRIALS,
     .kernel = screen_name,
     .draw = draw_screen,
     .run = run_screen,
     .inputs_intact = inputs_intact},
    {.name = "score_list_f32",
     .trials = FEW_TRIALS,
     .kernel = list_f32_name,
     .draw = draw_list_f32,
     .run = run_list_f32,
     .inputs_intact = inputs_intact},
    {.name = "score_list_bf16",
     .trials = FEW_TRIALS,
     .kernel = list_bf16_name,
     .draw = draw_list_bf16,
     .run = run_list_bf16,
     .inputs_intact = inputs_intact},
    {.name = "select_maxima",
     .trials = MANY_TRIALS,
     .kernel = maxima_name,
     .draw = draw_maxima,
     .run = run_maxima,
     .inputs_intact = inputs_intact},
    {.name = "select_candidates",
     .trials = MANY_TRIALS,
     .kernel = candidates_name,
     .draw = draw_candidates,
     .run = run_candidates,
     .inputs_intact = inputs_intact,
     .written = must_be_listed},
    {.name = NULL},
};
