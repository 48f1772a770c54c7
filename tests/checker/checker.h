/* SPDX-License-Identifier: MIT */
/*
 * The kernel checker: every kernel of every CPU level against the portable one, bit for bit, on random and adversarial
 * inputs whose ends touch unreadable pages.
 *
 * A STAGE is one entry of a kernel table. It draws a job (sizes, inputs) from a random state, and runs it with the kernels of
 * a level into an output array; the frame in check.c runs the level first, the portable kernel second, and compares.
 */
#ifndef QSA_CHECKER_H
#define QSA_CHECKER_H

#include "attend/attend.h"
#include "cache/cells.h"
#include "merge/merge.h"
#include "runtime/memory.h"
#include "score/score.h"
#include "score/screen.h"
#include "select/select.h"

/* ------------------------------------------------------------------------------------------------ random numbers */

typedef struct dice {
    uint64_t state;
} dice;

uint64_t dice_bits(dice *d);
int64_t dice_range(dice *d, int64_t least, int64_t most); /* both included */
int dice_one_in(dice *d, int64_t n);
float dice_float(dice *d); /* -1 .. 1 */

/* How the values of an array are drawn: see flavour_value(). */
typedef enum flavour {
    PLAIN, ZEROS, EQUAL, SIGNED_ZEROS, DENORMAL, HUGE_VALUES, WIDE, SPARSE, SMALL_INTEGERS, INFINITIES, NANS, FLAVOURS
} flavour;
flavour dice_flavour(dice *d); /* half of the time PLAIN */
const char *flavour_name(flavour f);
void fill_f32(dice *d, flavour f, float *x, int64_t n);
void fill_f16(dice *d, flavour f, uint16_t *x, int64_t n);
void fill_bf16(dice *d, flavour f, uint16_t *x, int64_t n);

/* ------------------------------------------------------------------------------------------------ guarded memory */

/* An array within a mapping that has an unreadable page on both sides; margins hold a pattern. */
typedef struct guarded {
    char *base;
    size_t capacity;
    char *at;
    size_t bytes;
} guarded;

void guarded_open(guarded *g, size_t capacity); /* ends the process where there is no memory */
void guarded_close(guarded *g);

/* Room for `bytes`, aligned to just `align` where the dice say so, most times with its end at the unreadable page. */
void *guarded_place(guarded *g, dice *d, size_t bytes, size_t align);
int guarded_intact(const guarded *g);

/* ------------------------------------------------------------------------------------------------ stages */

typedef struct kernel_set {
    qsa_cpu cpu;
    qsa_score_kernels score;
    qsa_screen_kernels screen;
    qsa_select_kernels select;
    qsa_attend_kernels attend;
    qsa_merge_kernels merge;
    qsa_cell_kernels cell;
} kernel_set;

typedef enum element {
    ELEMENT_F32, ELEMENT_I32, ELEMENT_F16, ELEMENT_BF16, ELEMENT_BYTE
} element;

/* What a draw tells the frame about the output. */
typedef struct case_info {
    int typical;        /* in: the model's sizes and plain values, for timing */
    int64_t trial;      /* in */
    element element;    /* out */
    int64_t count;      /* out: elements */
    char text[256];     /* out: sizes and flavours, printed when the trial fails */
} case_info;

typedef struct stage {
    const char *name;
    int trials;
    const char *(*kernel)(const kernel_set *set); /* its name: equal names are the same kernel */
    void (*draw)(dice *d, case_info *info);
    void (*run)(const kernel_set *set, void *out);
    int (*inputs_intact)(void);
    int (*written)(int64_t i);                    /* whether element i is to be written; NULL: all are */
    void (*reference)(const kernel_set *set, void *out); /* what the portable level runs; NULL: run */
} stage;

/* Each ends with a NULL name. */
extern const stage score_stages[], screen_stages[], select_stages[], attend_stages[], merge_stages[], cell_stages[];

/* ------------------------------------------------------------------------------------------------ the frame */

typedef struct verdict {
    int failed;
    char text[600];
} verdict;

/* All trials of a stage at a level; stops at the first failure. */
verdict check_stage(const stage *s, const kernel_set *portable, const kernel_set *tested, uint64_t seed);

/* Nanoseconds per call with the typical job, caches warm. */
double time_stage(const stage *s, const kernel_set *set, uint64_t seed);

#endif
