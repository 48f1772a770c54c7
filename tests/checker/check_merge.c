/* SPDX-License-Identifier: MIT */
/* Merge: any number of parts, empty ones among them, with and without a gate; and the original's first version of it. */
#include "checker.h"

#include "runtime/numerics.h"

#include <stdio.h>

static struct merge_state {
    qsa_merge_job job;
    guarded partials, gate;
} state;

static void fill_parts(dice *d, flavour f, float *partials) {
    const qsa_merge_job *job = &state.job;
    int64_t dim = job->head_dim;
    for (int64_t j = 0; j < job->parts; j++) {
        float *part = partials + j * job->part_stride;
        fill_f32(d, f, part, dim);
        fill_f32(d, f == NANS || f == INFINITIES ? f : PLAIN, part + dim, 1);
        part[dim] *= dice_one_in(d, 10) ? 200.0f : 5.0f;
        part[dim + 1] = 1.0f + 30.0f * dice_float(d) * dice_float(d);
        if (dice_one_in(d, 6)) {
            memset(part, 0, (size_t)dim * sizeof *part);
            part[dim] = dice_one_in(d, 2) ? -QSA_INFINITY : 500.0f; /* is not to be read */
            part[dim + 1] = 0.0f;
        }
    }
}

static void draw(dice *d, case_info *info) {
    qsa_merge_job *job = &state.job;
    if (!state.gate.base) {
        guarded_open(&state.partials, 1 << 16);
        guarded_open(&state.gate, 1 << 16);
    }
    *job = (qsa_merge_job){.head_dim = 256, .parts = 17, .part_stride = 24 * 258};
    if (!info->typical) {
        job->head_dim = dice_one_in(d, 3) ? 256 : 64 * dice_range(d, 1, 8);
        job->parts = dice_one_in(d, 10) ? 0 : dice_range(d, 1, 40);
        job->part_stride = job->head_dim + 2 + (dice_one_in(d, 2) ? 0 : dice_range(d, 1, 600));
    }
    flavour fp = info->typical ? PLAIN : dice_flavour(d), fg = info->typical ? PLAIN : dice_flavour(d);
    int64_t floats = job->parts ? (job->parts - 1) * job->part_stride + job->head_dim + 2 : 0;
    float *partials = guarded_place(&state.partials, d, (size_t)floats * sizeof *partials, sizeof *partials);
    fill_parts(d, fp, partials);
    job->partials = floats ? partials : NULL;
    float *gate = guarded_place(&state.gate, d, (size_t)job->head_dim * sizeof *gate, sizeof *gate);
    fill_f32(d, fg, gate, job->head_dim);
    for (int64_t i = 0; fg == PLAIN && i < job->head_dim; i++) {
        gate[i] *= dice_one_in(d, 20) ? 120.0f : 8.0f;
    }
    job->gate = info->typical || !dice_one_in(d, 4) ? gate : NULL;
    info->element = ELEMENT_F32;
    info->count = job->head_dim;
    snprintf(info->text, sizeof info->text, "%lld parts of %lld, stride %lld, partials %s, gate %s", (long long)job->parts,
             (long long)job->head_dim, (long long)job->part_stride, flavour_name(fp), job->gate ? flavour_name(fg) : "none");
}

static void run(const kernel_set *set, void *out) {
    qsa_merge_job job = state.job;
    job.out = out;
    set->merge.run(&job);
}

static void run_first(const kernel_set *set, void *out) {
    qsa_merge_job job = state.job;
    (void)set;
    job.out = out;
    qsa_merge_first(&job);
}

static int inputs_intact(void) {
    return guarded_intact(&state.partials) && guarded_intact(&state.gate);
}

static const char *kernel(const kernel_set *set) {
    return set->merge.name;
}

static const char *first_kernel(const kernel_set *set) {
    (void)set;
    return "qsa_merge_first";
}

const stage merge_stages[] = {
    {.name = "merge", .trials = 300, .kernel = kernel, .draw = draw, .run = run, .inputs_intact = inputs_intact},
    {.name = "merge_first", .trials = 100, .kernel = first_kernel, .draw = draw, .run = run_first, .inputs_intact = inputs_intact,
     .reference = run},
    {.name = NULL},
};
