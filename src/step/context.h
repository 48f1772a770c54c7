/* SPDX-License-Identifier: MIT */
/* A context: its options made definite, its threads, and the table of kernels that its CPU level chose. */
#ifndef QSA_STEP_CONTEXT_H
#define QSA_STEP_CONTEXT_H

#include "attend/attend.h"
#include "cache/cells.h"
#include "merge/merge.h"
#include "runtime/threads.h"
#include "score/score.h"
#include "score/screen.h"
#include "select/select.h"

enum { QSA_KERNEL_NAMES = 24 };

struct qsa_context {
    qsa_allocator allocator;
    qsa_cpu cpu;
    int64_t threads;
    qsa_pool *pool; /* NULL: one thread, or parallel_for */
    qsa_parallel_for parallel_for;
    void *parallel_user;
    qsa_cell_kernels cell;
    qsa_score_kernels score;
    qsa_screen_kernels screen;
    qsa_select_kernels select;
    qsa_attend_kernels attend;
    qsa_merge_kernels merge;
};

#endif
