/* SPDX-License-Identifier: MIT */
/* A pool of threads that runs numbered items, claimed one by one. Which thread runs an item never changes what it computes. */
#ifndef QSA_RUNTIME_THREADS_H
#define QSA_RUNTIME_THREADS_H

#include <qsa/qsa.h>

typedef struct qsa_pool qsa_pool;

/* threads >= 2, the caller of qsa_pool_run included. NULL when memory or a thread cannot be had. */
qsa_pool *qsa_pool_create(const qsa_allocator *allocator, int64_t threads);
void qsa_pool_destroy(qsa_pool *pool);

/* Runs body(arg, 0..items-1) on the pool; on this thread alone when another one's call has the pool. */
void qsa_pool_run(qsa_pool *pool, int64_t items, void (*body)(void *arg, int64_t item), void *arg);

/* The same on this thread. */
void qsa_serial_run(int64_t items, void (*body)(void *arg, int64_t item), void *arg);

#endif
