/* SPDX-License-Identifier: MIT */
/* Many threads on one context and cache, parallel_for of the caller's, and calls from within calls: always the same
 * bits. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "support/sample.h"

enum { CELLS = 260, WORKERS = 6, ROUNDS = 8, ROWS = 3, LAYER = 1, WIDEST = 35 };

static sample cells;

static int set_up(void **state) {
    (void)state;
    qsa_shape shape = sample_shape();
    cells = sample_make(&shape, CELLS, 141);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    sample_free(&cells);
    return 0;
}

static qsa_cache *make_cache(qsa_context *context, int64_t sequences) {
    qsa_cache_options options = sample_options(&cells, QSA_I8_G64, QSA_BF16, sequences * 5 * SAMPLE_PAGE);
    return sample_cache(context, &options);
}

/* Length of a worker's sequence in a round. */
static int64_t length_of(int worker, int round) {
    return 60 + 17 * worker + 13 * round;
}

/* ------------------------------------------------------------------------------------------------ the plain way */

/* Results of every worker's rounds, made by one thread on portable code. */
static sample_result expected[WORKERS][ROUNDS];

static void make_expected(void **state) {
    (void)state;
    qsa_context *context = sample_context(QSA_CPU_C, 1);
    qsa_cache *cache = make_cache(context, 1);
    for (int w = 0; w < WORKERS; w++) {
        for (int r = 0; r < ROUNDS; r++) {
            qsa_sequence *s = sample_sequence(cache);
            sample_grow(s, &cells, length_of(w, r));
            expected[w][r] = sample_decode(cache, s, &cells, LAYER, ROWS, QSA_BLOCKS);
            qsa_sequence_destroy(s);
        }
    }
    assert_memory_not_equal(expected[0][0].out, expected[1][0].out, expected[0][0].out_bytes);
    qsa_cache_destroy(cache);
    qsa_close(context);
}

static void free_expected(void **state) {
    (void)state;
    for (int i = 0; i < WORKERS * ROUNDS; i++) {
        sample_result_free(&expected[i / ROUNDS][i % ROUNDS]);
    }
}

/* ------------------------------------------------------------------------------------------------ many callers */

typedef struct worker {
    pthread_t thread;
    qsa_context *context;
    qsa_cache *cache;
    int number;
    atomic_int *start; /* workers that wait */
    const char *wrong; /* the first thing that was, or NULL */
} worker;

/* Like sample_decode(), without assertions, which belong to the test's own thread. */
static const char *check_round(worker *w, qsa_sequence *s, int round) {
    int64_t length = length_of(w->number, round);
    for (int64_t layer = 0; layer < SAMPLE_LAYERS; layer++) {
        int64_t first = qsa_sequence_length(s, layer);
        qsa_append_args args = {.size = sizeof args, .layer = layer, .cells = length - first};
        args.k = cells.k + first * 128, args.v = cells.v + first * 128, args.raw_index = cells.raw + first * 32;
        if (qsa_append(s, &args, NULL)) {
            return "append";
        }
    }
    float out[ROWS][4][64];
    int32_t ids[ROWS][WIDEST];
    qsa_item item = {.sequence = s, .rows = ROWS, .out = out, .ids_out = ids[0], .id_stride = WIDEST};
    item.q = cells.q + (length - ROWS) * 256, item.gate = cells.gate + (length - ROWS) * 256;
    item.iq = cells.iq + (length - ROWS) * 64;
    QSA_INIT(qsa_decode_args, args);
    args.layer = LAYER, args.items = &item, args.item_count = 1;
    if (qsa_plan(w->cache, QSA_BLOCKS, ROWS, length, 0, 0, &args.workspace_bytes, NULL)) {
        return "plan";
    }
    args.workspace = aligned_alloc(64, args.workspace_bytes);
    qsa_status status = args.workspace ? qsa_decode(w->cache, &args, NULL) : QSA_E_MEMORY;
    free(args.workspace);
    const sample_result *e = &expected[w->number][round];
    return status                            ? "decode"
           : memcmp(ids, e->ids, sizeof ids) ? "ids"
           : memcmp(out, e->out, sizeof out) ? "out"
           : sizeof out != e->out_bytes      ? "size"
                                             : NULL;
}

static void *worker_main(void *arg) {
    worker *w = arg;
    atomic_fetch_sub(w->start, 1);
    while (atomic_load(w->start) > 0) {
    }
    for (int again = 0; again < 3 && !w->wrong; again++) {
        qsa_sequence *s = NULL;
        w->wrong = qsa_sequence_create(w->cache, &s, NULL) ? "create" : NULL;
        for (int round = 0; round < ROUNDS && !w->wrong; round++) {
            w->wrong = check_round(w, s, round);
            if (!w->wrong && round == ROUNDS / 2 && again == 1) { /* a step back, and on again */
                w->wrong = qsa_truncate(s, length_of(w->number, 0) / 4 * 4, NULL) ? "truncate" : NULL;
            }
        }
        QSA_INIT(qsa_cache_stats, stats);
        if (!w->wrong &&
            (qsa_cache_get_stats(w->cache, &stats, NULL) || stats.sequences < 1 || stats.sequences > WORKERS)) {
            w->wrong = "stats";
        }
        qsa_sequence_destroy(s);
    }
    return NULL;
}

static void run_workers(qsa_context *context) {
    worker workers[WORKERS];
    atomic_int start = WORKERS;
    qsa_cache *cache = make_cache(context, WORKERS);
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (worker){.context = context, .cache = cache, .number = i, .start = &start};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        if (workers[i].wrong) {
            fail_msg("worker %d: %s", i, workers[i].wrong);
        }
    }
    QSA_INIT(qsa_cache_stats, stats);
    assert_int_equal(qsa_cache_get_stats(cache, &stats, NULL), QSA_OK);
    assert_int_equal(stats.sequences, 0);
    assert_int_equal(stats.pages_free, stats.pages);
    qsa_cache_destroy(cache);
}

static void threads_share_a_context_and_a_cache(void **state) {
    make_expected(state);
    for (int64_t threads = 1; threads <= 4; threads += 3) {
        qsa_context *context = sample_context(QSA_CPU_AUTO, threads);
        run_workers(context);
        qsa_close(context);
    }
    free_expected(state);
}

/* The stages, too: each thread on its own arrays. */
typedef struct scorer {
    pthread_t thread;
    qsa_context *context;
    const qsa_keys *keys;
    float scores[ROWS][CELLS / 4 + 1];
    qsa_status status;
} scorer;

static void *scorer_main(void *arg) {
    scorer *s = arg;
    const int64_t n[ROWS] = {CELLS, CELLS - 1, 50};
    QSA_INIT(qsa_score_args, args);
    args.iq = cells.iq, args.rows = ROWS, args.n = n, args.keys = s->keys;
    args.scores = s->scores[0], args.score_stride = CELLS / 4 + 1;
    for (int i = 0; i < 20 && !s->status; i++) {
        memset(s->scores, 0, sizeof s->scores);
        s->status = qsa_score(s->context, &cells.shape, &args, NULL);
    }
    return NULL;
}

static void threads_share_a_context_for_stages(void **state) {
    (void)state;
    static scorer scorers[WORKERS];
    QSA_INIT(qsa_keys, keys);
    keys.type = QSA_F32, keys.data = cells.raw, keys.blocks = CELLS / 4;
    qsa_context *context = sample_context(QSA_CPU_AUTO, 3);
    for (int i = 0; i < WORKERS; i++) {
        scorers[i].context = context, scorers[i].keys = &keys;
        assert_int_equal(pthread_create(&scorers[i].thread, NULL, scorer_main, &scorers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_join(scorers[i].thread, NULL), 0);
        assert_int_equal(scorers[i].status, QSA_OK);
    }
    scorer *single = calloc(1, sizeof *single);
    single->context = sample_context(QSA_CPU_C, 1), single->keys = &keys;
    scorer_main(single);
    for (int i = 0; i < WORKERS; i++) {
        assert_memory_equal(scorers[i].scores, single->scores, sizeof single->scores);
    }
    qsa_close(single->context);
    qsa_close(context);
    free(single);
}

/* ------------------------------------------------------------------------------------------------ parallel_for */

typedef struct loop {
    _Atomic int64_t calls;
    atomic_int depth;
    qsa_cache *cache; /* of the call from within a call */
    qsa_sequence *sequence;
    const sample_result *inner;
    int inner_wrong;
} loop;

typedef void loop_body(void *arg, int64_t item);

static void forwards(void *user, int64_t items, loop_body *body, void *arg) {
    ((loop *)user)->calls++;
    for (int64_t i = 0; i < items; i++) {
        body(arg, i);
    }
}

static void backwards(void *user, int64_t items, loop_body *body, void *arg) {
    ((loop *)user)->calls++;
    for (int64_t i = items - 1; i >= 0; i--) {
        body(arg, i);
    }
}

/* Odd items first, then the even ones from the end. */
static void shuffled(void *user, int64_t items, loop_body *body, void *arg) {
    ((loop *)user)->calls++;
    for (int64_t i = 1; i < items; i += 2) {
        body(arg, i);
    }
    for (int64_t i = (items - 1) / 2 * 2; i >= 0; i -= 2) {
        body(arg, i);
    }
}

typedef struct share {
    pthread_t thread;
    int64_t first, items, step;
    loop_body *body;
    void *arg;
} share;

static void *share_main(void *arg) {
    const share *s = arg;
    for (int64_t i = s->first; i < s->items; i += s->step) {
        s->body(s->arg, i);
    }
    return NULL;
}

/* Three new threads for each loop; the caller's waits. */
static void on_new_threads(void *user, int64_t items, loop_body *body, void *arg) {
    share shares[3];
    ((loop *)user)->calls++;
    for (int i = 0; i < 3; i++) {
        shares[i] = (share){.first = i, .items = items, .step = 3, .body = body, .arg = arg};
        if (pthread_create(&shares[i].thread, NULL, share_main, &shares[i])) {
            abort();
        }
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(shares[i].thread, NULL);
    }
}

/* A loop within a loop: runs of items, each of which is a loop of one thread. */
static void in_two_levels(void *user, int64_t items, loop_body *body, void *arg) {
    for (int64_t first = 0; first < items; first += 7) {
        share s = {.first = first, .items = first + 7 < items ? first + 7 : items, .step = 1, .body = body, .arg = arg};
        if (pthread_create(&s.thread, NULL, share_main, &s)) {
            abort();
        }
        pthread_join(s.thread, NULL);
    }
    ((loop *)user)->calls++;
}

/* Decodes another sequence of the same cache and context before the items of the first loop run. */
static void with_a_call_inside(void *user, int64_t items, loop_body *body, void *arg) {
    loop *l = user;
    if (l->sequence && atomic_fetch_add(&l->depth, 1) == 0) {
        sample_result r = sample_result_make(&cells.shape, ROWS, WIDEST);
        l->inner_wrong |= sample_try_decode(l->cache, l->sequence, &cells, LAYER, QSA_BLOCKS, &r, NULL) != QSA_OK;
        l->inner_wrong |=
            memcmp(r.out, l->inner->out, r.out_bytes) != 0 || memcmp(r.ids, l->inner->ids, r.id_bytes) != 0;
        sample_result_free(&r);
    }
    backwards(user, items, body, arg);
}

static void any_parallel_for_gives_the_same_bits(void **state) {
    static const qsa_parallel_for loops[] = {forwards,       backwards,     shuffled,
                                             on_new_threads, in_two_levels, with_a_call_inside};
    make_expected(state);
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++) {
        loop l = {.calls = 0};
        qsa_context *context;
        QSA_INIT(qsa_options, options);
        options.threads = 7; /* ignored */
        options.parallel_for = loops[i];
        options.parallel_user = &l;
        assert_int_equal(qsa_open(&options, &context, NULL), QSA_OK);
        assert_int_equal(qsa_context_threads(context), 1);
        qsa_cache *cache = make_cache(context, 2);
        qsa_sequence *other = sample_sequence(cache);
        sample_grow(other, &cells, length_of(3, 5));
        for (int w = 0; w < WORKERS; w += 5) {
            qsa_sequence *s = sample_sequence(cache);
            for (int r = 0; r < ROUNDS; r++) {
                int64_t calls = l.calls;
                sample_grow(s, &cells, length_of(w, r));
                l.cache = cache, l.sequence = other, l.inner = &expected[3][5];
                atomic_store(&l.depth, 0);
                sample_result got = sample_decode(cache, s, &cells, LAYER, ROWS, QSA_BLOCKS);
                l.sequence = NULL;
                sample_same_bits(&got, &expected[w][r]);
                sample_result_free(&got);
                assert_true(l.calls >= calls + 6); /* two appends and four stages */
            }
            qsa_sequence_destroy(s);
        }
        assert_int_equal(l.inner_wrong, 0);
        qsa_sequence_destroy(other);
        qsa_cache_destroy(cache);
        qsa_close(context);
    }
    free_expected(state);
}

/* ------------------------------------------------------------------------------------------------ inside a body */

/* Whole decodes as the items of a loop: of one context, whose own loop is its threads or the same kind again. */
typedef struct decodes {
    qsa_cache *cache;
    qsa_sequence *sequence[WORKERS];
    sample_result result[WORKERS];
    qsa_status status[WORKERS];
} decodes;

static void decode_item(void *arg, int64_t i) {
    decodes *d = arg;
    d->status[i] = sample_try_decode(d->cache, d->sequence[i], &cells, LAYER, QSA_BLOCKS, &d->result[i], NULL);
}

static void decodes_as_items_of_the_callers_loop(void **state) {
    static const qsa_parallel_for loops[] = {backwards, on_new_threads, in_two_levels};
    make_expected(state);
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++) {
        for (int own_loop = 0; own_loop < 2; own_loop++) {
            loop outer = {.calls = 0}, inner = {.calls = 0};
            qsa_context *context;
            QSA_INIT(qsa_options, options);
            options.threads = 3;
            options.parallel_for = own_loop ? loops[i] : NULL;
            options.parallel_user = &inner;
            assert_int_equal(qsa_open(&options, &context, NULL), QSA_OK);
            decodes d = {.cache = make_cache(context, WORKERS)};
            for (int w = 0; w < WORKERS; w++) {
                d.sequence[w] = sample_sequence(d.cache);
                sample_grow(d.sequence[w], &cells, length_of(w, 2));
                d.result[w] = sample_result_make(&cells.shape, ROWS, WIDEST);
            }
            loops[i](&outer, WORKERS, decode_item, &d);
            assert_int_equal(outer.calls, 1);
            assert_int_equal(inner.calls > 0, own_loop);
            for (int w = 0; w < WORKERS; w++) {
                assert_int_equal(d.status[w], QSA_OK);
                sample_same_bits(&d.result[w], &expected[w][2]);
                sample_result_free(&d.result[w]);
                qsa_sequence_destroy(d.sequence[w]);
            }
            qsa_cache_destroy(d.cache);
            qsa_close(context);
        }
    }
    free_expected(state);
}

/* Contexts come and go while others work: threads are joined, none is left over. */
static void contexts_open_and_close(void **state) {
    (void)state;
    for (int i = 0; i < 60; i++) {
        qsa_context *context = sample_context(QSA_CPU_AUTO, 1 + i % 5);
        assert_int_equal(qsa_context_threads(context), 1 + i % 5);
        if (i % 3 == 0) {
            scorer *s = calloc(1, sizeof *s);
            QSA_INIT(qsa_keys, keys);
            keys.type = QSA_F32, keys.data = cells.raw, keys.blocks = CELLS / 4;
            s->context = context, s->keys = &keys;
            scorer_main(s);
            assert_int_equal(s->status, QSA_OK);
            free(s);
        }
        qsa_close(context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_a_context_and_a_cache),
        cmocka_unit_test(threads_share_a_context_for_stages),
        cmocka_unit_test(any_parallel_for_gives_the_same_bits),
        cmocka_unit_test(decodes_as_items_of_the_callers_loop),
        cmocka_unit_test(contexts_open_and_close),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
