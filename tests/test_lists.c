/* SPDX-License-Identifier: MIT */
/* Lists of ids that rows share and reuse: `lists`, `list_of` and `seen` of an item. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "support/rig.h"
#include "support/sample.h"

enum { LENGTH = 300, DRAFTS = 16, WIDTH = 35, STRIDE = WIDTH + DRAFTS };

static sample cells;

static int set_up(void **state) {
    (void)state;
    qsa_shape shape = sample_shape();
    cells = sample_make(&shape, LENGTH, 71);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    sample_free(&cells);
    return 0;
}

static void run_items(qsa_cache *cache, qsa_item *items, int64_t count) {
    qsa_error error;
    QSA_INIT(qsa_decode_args, args);
    args.items = items;
    args.item_count = count;
    args.workspace = sample_workspace(cache, QSA_BLOCKS, count * DRAFTS, LENGTH, &args.workspace_bytes);
    sample_ok(qsa_decode(cache, &args, &error), &error);
    free(args.workspace);
}

/*
 * The row at `base` selects; each of the drafts behind it reads what that row selected and the cells since. Three ways to say
 * it, the same bits and ids: one list with seen, the list put together by the caller, and both in one call.
 */
static void drafts_reuse(qsa_cpu cpu, int64_t threads, qsa_type kv_type) {
    qsa_context *context = sample_context(cpu, threads);
    qsa_cache_options options = sample_options(&cells, kv_type, QSA_BF16, LENGTH);
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *sequence = sample_sequence(cache);
    int64_t base = LENGTH - DRAFTS;
    sample_grow(sequence, &cells, base);
    sample_result first = sample_decode(cache, sequence, &cells, 0, 1, QSA_BLOCKS);
    sample_grow(sequence, &cells, LENGTH);

    int32_t whole[DRAFTS][STRIDE], shared[2][STRIDE];
    int64_t counts[DRAFTS], list_of[DRAFTS], seen[2] = {0, base}, shared_counts[2] = {0, first.id_stride};
    memset(shared, 0x55, sizeof shared); /* list 0 is named by no row, and holds no ids */
    memcpy(shared[1], first.ids, (size_t)first.id_stride * sizeof *first.ids);
    for (int64_t t = 0; t < DRAFTS; t++) {
        memcpy(whole[t], first.ids, (size_t)first.id_stride * sizeof *first.ids);
        counts[t] = first.id_stride + t + 1;
        for (int64_t i = 0; i <= t; i++) {
            whole[t][first.id_stride + i] = (int32_t)(base + i);
        }
        list_of[t] = 1;
    }
    sample_result made[3];
    qsa_item items[3];
    for (int i = 0; i < 3; i++) {
        made[i] = sample_result_make(&cells.shape, DRAFTS, STRIDE);
        items[i] = sample_item(sequence, &cells, 0, &made[i]);
        items[i].iq = NULL; /* nothing is scored */
        items[i].ids = i == 1 ? whole[0] : shared[0];
        items[i].n_ids = i == 1 ? counts : shared_counts;
        if (i != 1) {
            items[i].lists = 2, items[i].list_of = list_of, items[i].seen = seen;
        }
    }
    run_items(cache, items, 1);
    run_items(cache, items + 1, 2);
    sample_same_bits(&made[0], &made[1]);
    sample_same_bits(&made[0], &made[2]);
    for (int64_t t = 0; t < DRAFTS; t++) {
        for (int64_t i = 0; i < STRIDE; i++) {
            assert_int_equal(made[0].ids[t * STRIDE + i], i < counts[t] ? whole[t][i] : -1);
        }
    }
    for (int i = 0; i < 3; i++) {
        sample_result_free(&made[i]);
    }
    sample_result_free(&first);
    qsa_sequence_destroy(sequence);
    qsa_cache_destroy(cache);
    qsa_close(context);
}

static void drafts_reuse_a_list(void **state) {
    (void)state;
    static const qsa_type types[] = {QSA_I8_G64, QSA_BF16, QSA_F16, QSA_F32};
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        for (int t = 0; t < 4; t++) {
            drafts_reuse(cpu, 1 + t % 2, types[t]);
        }
    }
}

/* A plan has room for 64 entries more than a row selects; a longer list put together is refused, and says what it needs. */
static void plan_allows_for(qsa_cache *cache, qsa_sequence *sequence, qsa_contract contract, int64_t n, int64_t chunk, int64_t fold) {
    sample_result r = sample_result_make(&cells.shape, 1, LENGTH);
    qsa_item item = sample_item(sequence, &cells, 0, &r);
    int32_t list[LENGTH];
    memset(list, 0xff, sizeof list);
    qsa_contract budget = contract == QSA_DENSE ? QSA_BLOCKS : contract;
    int64_t allowed = qsa_width(&cells.shape, budget, n) + 64, seen = n < 8 ? 0 : n - 8, count = allowed - (n - seen);
    item.ids = list;
    item.n_ids = &count;
    item.seen = &seen;
    qsa_error error;
    QSA_INIT(qsa_decode_args, args);
    args.items = &item;
    args.item_count = 1;
    args.contract = contract;
    args.chunk = chunk;
    args.fold = fold;
    sample_ok(qsa_plan(cache, contract, 1, n, chunk, fold, &args.workspace_bytes, &error), &error);
    args.workspace = aligned_alloc(64, args.workspace_bytes);
    assert_non_null(args.workspace);
    sample_ok(qsa_decode(cache, &args, &error), &error);
    assert_int_equal(r.ids[0], -1);
    assert_int_equal(r.ids[allowed - 1], n - 1);
    int32_t *longer = calloc(4 * LENGTH, sizeof *longer);
    assert_non_null(longer);
    item.ids = longer;
    item.ids_out = NULL;
    item.id_stride = count = 4 * LENGTH;
    seen = n;
    assert_int_equal(qsa_decode(cache, &args, &error), QSA_E_CAPACITY);
    assert_non_null(strstr(error.message, "a row needs"));
    free(longer);
    free(args.workspace);
    sample_result_free(&r);
}

static void lists_that_a_plan_allows_for(void **state) {
    (void)state;
    qsa_context *context = sample_context(QSA_CPU_AUTO, 1);
    for (int64_t n = 1; n <= LENGTH; n += n < 9 ? 1 : 97) {
        qsa_cache_options options = sample_options(&cells, QSA_I8_G64, QSA_BF16, LENGTH);
        qsa_cache *cache = sample_cache(context, &options);
        qsa_sequence *sequence = sample_sequence(cache);
        sample_grow(sequence, &cells, n);
        for (qsa_contract contract = QSA_BLOCKS; contract <= QSA_DENSE; contract++) {
            for (int64_t fold = 0; fold < 3; fold++) {
                plan_allows_for(cache, sequence, contract, n, 32, fold);
                plan_allows_for(cache, sequence, contract, n, 64, fold);
            }
        }
        qsa_sequence_destroy(sequence);
        qsa_cache_destroy(cache);
    }
    qsa_close(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_reuse_a_list),
        cmocka_unit_test(lists_that_a_plan_allows_for),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
