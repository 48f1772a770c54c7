/* SPDX-License-Identifier: MIT */
/* Fault 39: eight threads serve forks of one prefix at the same time, and nobody's answer or cell is touched by another. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "support/levels.h"
#include "support/sample.h"

enum { WORKERS = 8, PREFIX = 165, CELLS = 600, ROUNDS = 30, ROWS = 3, WIDE = 35, OUT = 4 * 64 };

static sample cells;

/* What a worker saw. Asserts belong to the main thread: a worker only says how far it came. */
typedef struct worker {
    qsa_cache *cache;
    const qsa_sequence *prefix;
    qsa_sequence *fork;
    int64_t number;
    float out[ROUNDS][ROWS * OUT];
    int32_t ids[ROUNDS][ROWS * WIDE];
    qsa_status failed;
} worker;

static qsa_status grow_to(qsa_sequence *s, int64_t number, int64_t length) {
    qsa_status status = QSA_OK;
    for (int64_t layer = 0; !status && layer < SAMPLE_LAYERS; layer++) {
        int64_t from = qsa_sequence_length(s, layer), row = from < PREFIX ? from : from + 30 * number; /* each its own cells */
        QSA_INIT(qsa_append_args, args);
        args.layer = layer;
        args.cells = length - from;
        args.k = cells.k + row * 128;
        args.v = cells.v + row * 128;
        args.raw_index = cells.raw + row * 32;
        status = qsa_append(s, &args, NULL);
    }
    return status;
}

/* Drafts, an answer, a rejection; now and then the fork is left for a fork of itself, and all is done again on a new prefix. */
static void *serve(void *arg) {
    worker *w = arg;
    size_t bytes = 0;
    void *workspace = NULL;
    qsa_status status = qsa_plan(w->cache, QSA_BLOCKS, ROWS, CELLS, 0, 0, &bytes, NULL);
    workspace = status ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64);
    status = status || !workspace ? QSA_E_MEMORY : qsa_sequence_fork(w->prefix, PREFIX - w->number, &w->fork, NULL);
    int64_t n = PREFIX - w->number;
    for (int64_t i = 0; !status && i < ROUNDS; i++) {
        n += 1 + (i + w->number) % 4;
        qsa_item item = {.rows = ROWS, .q = cells.q + i * OUT, .gate = cells.gate + i * OUT, .iq = cells.iq + i * 64,
                         .out = w->out[i], .id_stride = WIDE, .ids_out = w->ids[i]};
        QSA_INIT(qsa_decode_args, args);
        args.layer = i % SAMPLE_LAYERS;
        args.items = &item;
        args.item_count = 1;
        args.workspace = workspace;
        args.workspace_bytes = bytes;
        if ((status = grow_to(w->fork, w->number, n + 5)) || (status = qsa_truncate(w->fork, n, NULL))) {
            break;
        }
        if (i % 10 == 9) {
            qsa_sequence *next = NULL;
            status = qsa_sequence_fork(w->fork, n, &next, NULL);
            qsa_sequence_destroy(w->fork);
            w->fork = next;
        }
        item.sequence = w->fork;
        status = status ? status : qsa_decode(w->cache, &args, NULL);
    }
    free(workspace);
    w->failed = status;
    return NULL;
}

static worker *new_workers(qsa_cache *cache, const qsa_sequence *prefix) {
    worker *w = calloc(WORKERS, sizeof *w);
    assert_non_null(w);
    for (int64_t i = 0; i < WORKERS; i++) {
        w[i].cache = cache;
        w[i].prefix = prefix;
        w[i].number = i;
    }
    return w;
}

static void eight_threads(qsa_cpu cpu, int64_t threads) {
    qsa_context *context = sample_context(cpu, threads);
    qsa_cache_options options = sample_options(&cells, QSA_I8_G64, QSA_BF16, 200 * SAMPLE_PAGE);
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *prefix = sample_sequence(cache);
    sample_grow(prefix, &cells, PREFIX);
    worker *together = new_workers(cache, prefix), *alone = new_workers(cache, prefix);
    pthread_t thread[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, serve, &together[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        serve(&alone[i]);
        assert_int_equal(together[i].failed, QSA_OK);
        assert_int_equal(alone[i].failed, QSA_OK);
        assert_memory_equal(together[i].out, alone[i].out, sizeof alone[i].out);
        assert_memory_equal(together[i].ids, alone[i].ids, sizeof alone[i].ids);
        for (int64_t layer = 0; layer < SAMPLE_LAYERS; layer++) {
            sample_same_cells(together[i].fork, alone[i].fork, layer);
        }
    }
    qsa_sequence *fresh = sample_sequence(cache);
    sample_grow(fresh, &cells, PREFIX);
    sample_same_cells(prefix, fresh, 0);
    sample_same_cells(prefix, fresh, 1);
    qsa_sequence_destroy(fresh);
    for (int i = 0; i < WORKERS; i++) {
        qsa_sequence_destroy(together[i].fork);
        qsa_sequence_destroy(alone[i].fork);
    }
    qsa_sequence_destroy(prefix);
    QSA_INIT(qsa_cache_stats, stats);
    assert_int_equal(qsa_cache_get_stats(cache, &stats, NULL), QSA_OK);
    assert_int_equal(stats.pages_free, stats.pages);
    assert_int_equal(stats.pages_shared, 0);
    free(together);
    free(alone);
    qsa_cache_destroy(cache);
    qsa_close(context);
}

static void fault_39_eight_threads_on_one_prefix(void **state) {
    (void)state;
    qsa_shape shape = sample_shape();
    cells = sample_make(&shape, CELLS, 39);
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        for (int i = 0; i < 3; i++) {
            eight_threads(cpu, 1);
            eight_threads(cpu, 3);
        }
    }
    sample_free(&cells);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fault_39_eight_threads_on_one_prefix)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
