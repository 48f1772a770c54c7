/* SPDX-License-Identifier: MIT */
/*
 * The pool. A job is open while items may be claimed; a worker counts itself in (`inside`) before it looks whether the job
 * is open, and the caller closes the job before it waits for `inside` to reach zero. Both orders are sequentially
 * consistent, so either the worker sees the job closed or the caller waits for it: nobody waits for a worker that still
 * sleeps. `epoch` only wakes workers; a missed or spurious wake costs time, never a wrong result.
 */
#define _DEFAULT_SOURCE
#include "runtime/threads.h"

#include "runtime/fpenv.h"
#include "runtime/memory.h"

#include <pthread.h>
#include <stdatomic.h>

enum { CACHE_LINE = 64, SPINS = 4000 }; /* about 50 us of waiting awake: the time between two stages of a step */

struct qsa_pool {
    _Alignas(CACHE_LINE) _Atomic int64_t next; /* item to claim */
    _Alignas(CACHE_LINE) _Atomic int64_t inside;
    _Atomic int open;
    _Alignas(CACHE_LINE) _Atomic uint64_t epoch;
    _Atomic int stop;
    _Atomic int64_t sleepers;

    int64_t items;
    void (*body)(void *arg, int64_t item);
    void *arg;

    pthread_mutex_t owner; /* held by the call that has the pool */
    pthread_mutex_t lock;  /* with wake: for sleeping */
    pthread_cond_t wake;
    qsa_allocator allocator;
    int64_t workers;
    pthread_t *thread;
};

static inline void relax(void) {
#if defined(QSA_X86)
    _mm_pause();
#elif defined(QSA_ARM)
    __asm__ volatile("yield");
#endif
}

static void claim_items(qsa_pool *pool) {
    uint64_t saved = qsa_fpenv_enter();
    for (;;) {
        int64_t item = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (item >= pool->items) {
            break;
        }
        pool->body(pool->arg, item);
    }
    qsa_fpenv_leave(saved);
}

static void wait_for_epoch(qsa_pool *pool, uint64_t seen) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&pool->epoch, memory_order_acquire) != seen) {
            return;
        }
        relax();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    while (atomic_load(&pool->epoch) == seen) {
        pthread_cond_wait(&pool->wake, &pool->lock);
    }
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
}

static void *worker_main(void *arg) {
    qsa_pool *pool = arg;
    uint64_t seen = 0;
    for (;;) {
        wait_for_epoch(pool, seen);
        seen = atomic_load(&pool->epoch);
        if (atomic_load(&pool->stop)) {
            return NULL;
        }
        atomic_fetch_add(&pool->inside, 1);
        if (atomic_load(&pool->open)) {
            claim_items(pool);
        }
        atomic_fetch_sub(&pool->inside, 1);
    }
}

static void advance_epoch(qsa_pool *pool) {
    atomic_fetch_add(&pool->epoch, 1);
    if (atomic_load(&pool->sleepers)) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
}

void qsa_serial_run(int64_t items, void (*body)(void *arg, int64_t item), void *arg) {
    uint64_t saved = qsa_fpenv_enter();
    for (int64_t i = 0; i < items; i++) {
        body(arg, i);
    }
    qsa_fpenv_leave(saved);
}

void qsa_pool_run(qsa_pool *pool, int64_t items, void (*body)(void *arg, int64_t item), void *arg) {
    if (items < 2 || pthread_mutex_trylock(&pool->owner) != 0) {
        qsa_serial_run(items, body, arg);
        return;
    }
    pool->items = items;
    pool->body = body;
    pool->arg = arg;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_store(&pool->open, 1);
    advance_epoch(pool);
    claim_items(pool);
    atomic_store(&pool->open, 0);
    while (atomic_load(&pool->inside) != 0) {
        relax();
    }
    pthread_mutex_unlock(&pool->owner);
}

/* bytes: as allocated, which is more than workers says when a thread could not be made. */
static void tear_down(qsa_pool *pool, size_t bytes) {
    atomic_store(&pool->stop, 1);
    atomic_fetch_add(&pool->epoch, 1);
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int64_t i = 0; i < pool->workers; i++) {
        pthread_join(pool->thread[i], NULL);
    }
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->owner);
    qsa_allocator allocator = pool->allocator;
    qsa_release(&allocator, pool, bytes, CACHE_LINE);
}

static size_t pool_bytes(int64_t workers) {
    return sizeof(qsa_pool) + (size_t)workers * sizeof(pthread_t);
}

qsa_pool *qsa_pool_create(const qsa_allocator *allocator, int64_t threads) {
    int64_t wanted = threads - 1;
    qsa_pool *pool = qsa_allocate(allocator, pool_bytes(wanted), CACHE_LINE);
    if (!pool) {
        return NULL;
    }
    *pool = (qsa_pool){.allocator = *allocator, .workers = 0, .thread = (pthread_t *)(pool + 1)};
    pthread_mutex_init(&pool->owner, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    while (pool->workers < wanted && pthread_create(&pool->thread[pool->workers], NULL, worker_main, pool) == 0) {
        pool->workers++;
    }
    if (pool->workers < wanted) {
        tear_down(pool, pool_bytes(wanted));
        return NULL;
    }
    return pool;
}

void qsa_pool_destroy(qsa_pool *pool) {
    if (pool) {
        tear_down(pool, pool_bytes(pool->workers));
    }
}
