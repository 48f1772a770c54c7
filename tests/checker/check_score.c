/* SPDX-License-Identifier: MIT */
/* Score: rows and tiles, f32 and bf16 keys, any heads, widths and counts. */
#include "checker.h"

#include <stdio.h>

enum { GAP = 5 };

static struct score_state {
    qsa_score_job job;
    qsa_key_layout layout;
    qsa_type type;
    int64_t start[QSA_SCORE_ROWS]; /* of row r in the output */
    guarded keys, iq;
} state;

static int64_t element_size(void) {
    return state.type == QSA_F32 ? 4 : 2;
}

static void fill_keys(dice *d, flavour f, int64_t blocks) {
    qsa_score_job *job = &state.job;
    int64_t bytes = element_size(), size = blocks * job->dim * bytes;
    job->block_stride = job->dim * bytes;
    if (state.layout == QSA_KEYS_TILES) {
        size = qsa_round_up(blocks, QSA_TILE) * job->dim * bytes;
    } else if (dice_one_in(d, 3)) {
        job->block_stride += bytes * dice_range(d, 1, 40);
        size = (blocks - 1) * job->block_stride + job->dim * bytes;
    }
    size_t align = state.layout == QSA_KEYS_TILES ? 64 : (size_t)bytes;
    void *keys = guarded_place(&state.keys, d, (size_t)size, align);
    if (state.type == QSA_F32) {
        fill_f32(d, f, keys, size / bytes);
    } else {
        fill_bf16(d, f, keys, size / bytes);
    }
    job->keys = keys;
}

static void draw_sizes(dice *d, const case_info *info) {
    static const int64_t usual_heads[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 64};
    qsa_score_job *job = &state.job;
    if (info->typical) {
        job->heads = 4;
        job->dim = 128;
        job->rows = 1;
        return;
    }
    job->heads = dice_one_in(d, 3) ? 4 : usual_heads[dice_range(d, 0, 9)];
    job->dim = dice_one_in(d, 3) ? 128 : 16 * dice_range(d, 1, dice_one_in(d, 8) ? 32 : 10);
    job->rows = dice_one_in(d, 3) ? 1 : dice_range(d, 1, QSA_SCORE_ROWS);
    if (job->heads * job->dim * job->rows > 8192) {
        job->rows = 1;
    }
}

static void draw(dice *d, case_info *info, qsa_key_layout layout, qsa_type type) {
    qsa_score_job *job = &state.job;
    if (!state.keys.base) {
        guarded_open(&state.keys, 1 << 16);
        guarded_open(&state.iq, 1 << 16);
    }
    state.layout = layout;
    state.type = type;
    *job = (qsa_score_job){.scale = 0.0883883461f};
    draw_sizes(d, info);
    flavour fk = info->typical ? PLAIN : dice_flavour(d), fq = info->typical ? PLAIN : dice_flavour(d);
    int64_t most = info->typical ? 1024 : dice_range(d, 1, dice_one_in(d, 4) ? 150 : 40), blocks = 0;
    int64_t first_row = dice_range(d, 0, job->rows - 1);
    float *iq = guarded_place(&state.iq, d, (size_t)(job->rows * job->heads * job->dim) * sizeof *iq, sizeof *iq);
    fill_f32(d, fq, iq, job->rows * job->heads * job->dim);
    info->count = 0;
    for (int64_t r = 0; r < job->rows; r++) {
        job->iq[r] = iq + (first_row + r) % job->rows * job->heads * job->dim;
        job->count[r] = r == 0 || dice_one_in(d, 2) ? most : dice_range(d, 1, most);
        state.start[r] = info->count;
        info->count += job->count[r] + (r + 1 < job->rows ? GAP : 0);
        blocks = qsa_max(blocks, job->count[r]);
    }
    fill_keys(d, fk, blocks);
    job->next = info->typical || dice_one_in(d, 2) ? NULL : dice_one_in(d, 2) ? job->keys : job; /* a hint: any address */
    info->element = ELEMENT_F32;
    snprintf(info->text, sizeof info->text, "%lld blocks, %lld heads of %lld, %lld rows, stride %lld, keys %s, queries %s",
             (long long)blocks, (long long)job->heads, (long long)job->dim, (long long)job->rows, (long long)job->block_stride,
             flavour_name(fk), flavour_name(fq));
}

static int written(int64_t i) {
    for (int64_t r = 0; r < state.job.rows; r++) {
        if (i >= state.start[r] && i < state.start[r] + state.job.count[r]) {
            return 1;
        }
    }
    return 0;
}

static int inputs_intact(void) {
    return guarded_intact(&state.keys) && guarded_intact(&state.iq);
}

static void run(const kernel_set *set, void *out) {
    qsa_score_job job = state.job;
    for (int64_t r = 0; r < job.rows; r++) {
        job.scores[r] = (float *)out + state.start[r];
    }
    set->score.run[state.layout][state.type == QSA_BF16](&job);
}

static void draw_rows_f32(dice *d, case_info *info) {
    draw(d, info, QSA_KEYS_ROWS, QSA_F32);
}

static void draw_rows_bf16(dice *d, case_info *info) {
    draw(d, info, QSA_KEYS_ROWS, QSA_BF16);
}

static void draw_tiles_f32(dice *d, case_info *info) {
    draw(d, info, QSA_KEYS_TILES, QSA_F32);
}

static void draw_tiles_bf16(dice *d, case_info *info) {
    draw(d, info, QSA_KEYS_TILES, QSA_BF16);
}

static const char *rows_f32(const kernel_set *set) {
    return set->score.name[QSA_KEYS_ROWS][0];
}

static const char *rows_bf16(const kernel_set *set) {
    return set->score.name[QSA_KEYS_ROWS][1];
}

static const char *tiles_f32(const kernel_set *set) {
    return set->score.name[QSA_KEYS_TILES][0];
}

static const char *tiles_bf16(const kernel_set *set) {
    return set->score.name[QSA_KEYS_TILES][1];
}

enum { TRIALS = 150 };

#define STAGE(what)                                                                                                     \
    {                                                                                                                   \
        .name = "score_" #what, .trials = TRIALS, .kernel = what, .draw = draw_##what, .run = run, .written = written,   \
        .inputs_intact = inputs_intact                                                                                  \
    }

const stage score_stages[] = {STAGE(rows_f32), STAGE(rows_bf16), STAGE(tiles_f32), STAGE(tiles_bf16), {.name = NULL}};
