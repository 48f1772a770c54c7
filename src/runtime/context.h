/* SPDX-License-Identifier: MIT */
/* What the rooms may ask of a context; step/context.c answers. */
#ifndef QSA_RUNTIME_CONTEXT_H
#define QSA_RUNTIME_CONTEXT_H

#include <qsa/qsa.h>

struct qsa_cell_kernels;
struct qsa_score_kernels;
struct qsa_screen_kernels;
struct qsa_select_kernels;
struct qsa_attend_kernels;
struct qsa_merge_kernels;

/* Runs items on the context's threads, each under the library's floating-point environment. */
void qsa_run(qsa_context *context, int64_t items, void (*body)(void *arg, int64_t item), void *arg);

const qsa_allocator *qsa_context_allocator(const qsa_context *context);

const struct qsa_cell_kernels *qsa_context_cell(const qsa_context *context);
const struct qsa_score_kernels *qsa_context_score(const qsa_context *context);
const struct qsa_screen_kernels *qsa_context_screen(const qsa_context *context);
const struct qsa_select_kernels *qsa_context_select(const qsa_context *context);
const struct qsa_attend_kernels *qsa_context_attend(const qsa_context *context);
const struct qsa_merge_kernels *qsa_context_merge(const qsa_context *context);

#endif
