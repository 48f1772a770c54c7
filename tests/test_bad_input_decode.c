/* SPDX-License-Identifier: MIT */
/* Bad input to a step: qsa_plan() and qsa_decode(). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "support/refusal.h"
#include "support/sample.h"

enum { LENGTH = 150, ROWS = 3, IDS = 40 };

static qsa_context *context;
static sample cells;
static qsa_cache *cache, *other_cache;
static qsa_sequence *sequence, *stranger;

static int set_up(void **state) {
    (void)state;
    qsa_shape shape = sample_shape();
    context = sample_context(QSA_CPU_AUTO, 2);
    cells = sample_make(&shape, LENGTH, 61);
    qsa_cache_options options = sample_options(&cells, QSA_I8_G64, QSA_BF16, 300);
    cache = sample_cache(context, &options);
    other_cache = sample_cache(context, &options);
    sequence = sample_sequence(cache);
    stranger = sample_sequence(other_cache);
    sample_grow(sequence, &cells, LENGTH);
    sample_grow(stranger, &cells, LENGTH);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    qsa_sequence_destroy(sequence), qsa_sequence_destroy(stranger);
    qsa_cache_destroy(cache), qsa_cache_destroy(other_cache);
    sample_free(&cells);
    qsa_close(context);
    return 0;
}

/* ------------------------------------------------------------------------------------------------ plan */

typedef struct plan_call {
    const qsa_cache *cache;
    int contract;
    int64_t rows, cells, chunk, fold;
    size_t *bytes;
} plan_call;

static qsa_status run_plan(void *state, qsa_error *error) {
    const plan_call *p = state;
    return qsa_plan(p->cache, (qsa_contract)p->contract, p->rows, p->cells, p->chunk, p->fold, p->bytes, error);
}

#define A(field, value) BAD_I64(0, plan_call, field, value, QSA_E_ARGUMENT, #field " is")

static void plan_refuses(void **state) {
    (void)state;
    size_t bytes = 0;
    plan_call p = {cache, QSA_CELLS, 5, 1000, 32, 2, &bytes};
    const refused_call call = {
        .part = {{&p, sizeof p}}, .result = {{&bytes, sizeof bytes}}, .run = run_plan, .state = &p};
    const refusal rows[] = {
        NO_PTR(0, plan_call, cache, "cache is NULL"),
        NO_PTR(0, plan_call, bytes, "workspace_bytes is NULL"),
        BAD_INT(0, plan_call, contract, 3, QSA_E_ARGUMENT, "contract is 3"),
        BAD_INT(0, plan_call, contract, -1, QSA_E_ARGUMENT, "contract is"),
        A(rows, -1),
        A(rows, INT64_MIN),
        A(cells, -1),
        A(cells, INT64_MIN),
        A(cells, INT64_MAX),
        A(cells, INT64_C(1) << 31),
        A(chunk, 1),
        A(chunk, 33),
        A(chunk, 96),
        A(chunk, -64),
        A(chunk, INT64_MAX),
        A(chunk, INT64_MIN),
        A(fold, -1),
        A(fold, INT64_MIN),
        A(fold, INT64_MAX),
        A(fold, INT64_C(1) << 31),
    };
    CHECK_REFUSALS(&call, rows);
}
#undef A

/* The largest values that are allowed give a size, and more of anything never a smaller one. */
static void plans_of_any_size_do_not_overflow(void **state) {
    (void)state;
    static const int64_t lengths[] = {0, 1, 4, 35, 36, 1000, INT64_C(1) << 20, INT32_MAX};
    static const int64_t folds[] = {INT32_MAX, 1000, 1};
    for (int contract = QSA_BLOCKS; contract <= QSA_DENSE; contract++) {
        for (int64_t chunk = 32; chunk <= 64; chunk += 32) {
            for (int f = 0; f < 3; f++) {
                size_t last = 0;
                for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
                    size_t one, many;
                    assert_int_equal(
                        qsa_plan(cache, (qsa_contract)contract, 1, lengths[i], chunk, folds[f], &one, NULL), QSA_OK);
                    assert_int_equal(
                        qsa_plan(cache, (qsa_contract)contract, INT64_MAX, lengths[i], chunk, folds[f], &many, NULL),
                        QSA_OK);
                    assert_true(one >= last && many >= one && one % 64 == 0);
                    last = one;
                }
            }
        }
    }
}

/* ------------------------------------------------------------------------------------------------ decode */

enum { P, ARGS, ITEMS, OWN_IDS, OWN_COUNTS, LIST_OF, SEEN };

typedef struct decode_call {
    qsa_cache *cache;
    const qsa_decode_args *args;
} decode_call;

static qsa_status run_decode(void *state, qsa_error *error) {
    const decode_call *p = state;
    return qsa_decode(p->cache, p->args, error);
}

#define A(field, value) BAD_I64(ARGS, qsa_decode_args, field, value, QSA_E_ARGUMENT, #field " is")
#define ITEM_AT(type, i, field, value, status, words)                                                                  \
    {                                                                                                                  \
        ITEMS, (i) * sizeof(qsa_item) + offsetof(qsa_item, field), sizeof(type), &(const type){value}, status, words,  \
            __LINE__                                                                                                   \
    }
#define ITEM(i, field, value, words) ITEM_AT(int64_t, i, field, value, QSA_E_ARGUMENT, words)
#define ITEM_NULL(i, field, words)   ITEM_AT(uintptr_t, i, field, 0, QSA_E_ARGUMENT, words)

static void decode_refuses(void **state) {
    (void)state;
    sample_result made[2] = {sample_result_make(&cells.shape, ROWS, IDS), sample_result_make(&cells.shape, ROWS, IDS)};
    qsa_item items[2] = {sample_item(sequence, &cells, 1, &made[0]), sample_item(sequence, &cells, 1, &made[1])};
    int32_t own[ROWS][IDS];
    int64_t own_counts[ROWS] = {IDS, 0, 7};
    for (int i = 0; i < ROWS * IDS; i++) {
        own[i / IDS][i % IDS] = i % 7 == 3 ? -1 : i;
    }
    items[1].ids = own[0];
    items[1].n_ids = own_counts;
    int64_t list_of[ROWS] = {0, 2, 2}, seen[ROWS] = {LENGTH - 2, 0, LENGTH - 1};
    QSA_INIT(qsa_decode_args, args);
    args.layer = 1;
    args.items = items;
    args.item_count = 2;
    args.workspace = sample_workspace(cache, QSA_BLOCKS, 2 * ROWS, LENGTH, &args.workspace_bytes);
    decode_call p = {cache, &args};
    const refused_call call = {
        .part = {[P] = {&p, sizeof p},
                 [ARGS] = {&args, sizeof args},
                 [ITEMS] = {items, sizeof items},
                 [OWN_IDS] = {own, sizeof own},
                 [OWN_COUNTS] = {own_counts, sizeof own_counts},
                 [LIST_OF] = {list_of, sizeof list_of},
                 [SEEN] = {seen, sizeof seen}},
        .result = {{made[0].out, made[0].out_bytes},
                   {made[0].ids, made[0].id_bytes},
                   {made[1].out, made[1].out_bytes},
                   {made[1].ids, made[1].id_bytes}},
        .run = run_decode,
        .state = &p,
    };
    const refusal arg_rows[] = {
        NO_PTR(P, decode_call, cache, "cache is NULL"),
        NO_PTR(P, decode_call, args, "args is NULL"),
        BAD_SIZE(ARGS, qsa_decode_args, 0, "args"),
        BAD_SIZE(ARGS, qsa_decode_args, sizeof args - 8, "args"),
        A(layer, -1),
        A(layer, SAMPLE_LAYERS),
        A(layer, INT64_MAX),
        A(layer, INT64_MIN),
        BAD_I64(ARGS, qsa_decode_args, layer, 1 << 20, QSA_E_ARGUMENT, "layer is 1048576"),
        NO_PTR(ARGS, qsa_decode_args, items, "items NULL"),
        A(item_count, -1),
        A(item_count, INT64_MIN),
        BAD_INT(ARGS, qsa_decode_args, contract, 3, QSA_E_ARGUMENT, "contract is 3"),
        BAD_INT(ARGS, qsa_decode_args, contract, -1, QSA_E_ARGUMENT, "contract is"),
        A(chunk, 1),
        A(chunk, 48),
        A(chunk, 128),
        A(chunk, -32),
        A(chunk, INT64_MAX),
        A(chunk, INT64_MIN),
        A(fold, -1),
        A(fold, INT64_MIN),
        A(fold, INT64_MAX),
        A(fold, INT64_C(1) << 31),
        BAD_INT(ARGS, qsa_decode_args, out_type, QSA_I8_G64, QSA_E_SHAPE, "out_type is i8_g64"),
        BAD_INT(ARGS, qsa_decode_args, out_type, 6, QSA_E_SHAPE, "out_type is unknown"),
        BAD_INT(ARGS, qsa_decode_args, out_type, -1, QSA_E_SHAPE, "out_type is unknown"),
        SPOIL(uintptr_t, ARGS, qsa_decode_args, workspace, (uintptr_t)args.workspace + 4, QSA_E_ARGUMENT,
              "workspace is"),
        SPOIL(uintptr_t, ARGS, qsa_decode_args, workspace, (uintptr_t)args.workspace + 32, QSA_E_ARGUMENT,
              "workspace is"),
        SPOIL(uintptr_t, ARGS, qsa_decode_args, workspace, 0, QSA_E_CAPACITY, "workspace is NULL"),
        SPOIL(size_t, ARGS, qsa_decode_args, workspace_bytes, 0, QSA_E_CAPACITY, "workspace"),
        SPOIL(size_t, ARGS, qsa_decode_args, workspace_bytes, 64, QSA_E_CAPACITY, "workspace"),
    };
    CHECK_REFUSALS(&call, arg_rows);
    const refusal item_rows[] = {
        ITEM_NULL(0, sequence, "items[0].sequence is NULL"),
        ITEM_AT(uintptr_t, 1, sequence, (uintptr_t)stranger, QSA_E_ARGUMENT, "items[1].sequence is of another cache"),
        ITEM(0, rows, -1, "items[0].rows is -1"),
        ITEM(1, rows, LENGTH + 1, "items[1].rows is 151"),
        ITEM(1, rows, INT64_MAX, "items[1].rows is"),
        ITEM(0, rows, INT64_MIN, "items[0].rows is"),
        ITEM_NULL(0, q, "items[0].q is NULL"),
        ITEM_NULL(1, q, "items[1].q is NULL"),
        ITEM_NULL(0, out, "items[0].out is NULL"),
        ITEM_NULL(0, iq, "items[0].iq is NULL"),
        ITEM(0, id_stride, -1, "items[0].id_stride is -1"),
        ITEM(0, id_stride, 0, "items[0].id_stride is 0"),
        ITEM(0, id_stride, 33, "items[0].id_stride is 33"),
        ITEM(0, id_stride, INT64_MIN, "items[0].id_stride is"),
        ITEM(0, id_stride, INT64_MAX, "items[0].id_stride is"),
        ITEM(1, id_stride, INT64_MAX / 2, "items[1].id_stride is"),
        ITEM(1, id_stride, IDS - 1, "items[1].n_ids[0] is 40"),
        SPOIL_AT(int64_t, OWN_COUNTS, 1, -1, QSA_E_ARGUMENT, "items[1].n_ids[1] is -1"),
        SPOIL_AT(int64_t, OWN_COUNTS, 2, IDS + 1, QSA_E_ARGUMENT, "items[1].n_ids[2] is 41"),
        SPOIL_AT(int64_t, OWN_COUNTS, 2, INT64_MAX, QSA_E_ARGUMENT, "items[1].n_ids[2] is"),
        SPOIL_AT(int32_t, OWN_IDS, 0, -2, QSA_E_ARGUMENT, "items[1].ids[0][0] is -2"),
        SPOIL_AT(int32_t, OWN_IDS, 0, LENGTH - 2, QSA_E_ARGUMENT,
                 "items[1].ids[0][0] is 148"), /* row 0 sees 148 cells */
        SPOIL_AT(int32_t, OWN_IDS, 2 * IDS + 6, LENGTH, QSA_E_ARGUMENT, "items[1].ids[2][6] is 150"),
        SPOIL_AT(int32_t, OWN_IDS, 2 * IDS, INT32_MIN, QSA_E_ARGUMENT, "items[1].ids[2][0] is"),
        SPOIL_AT(int32_t, OWN_IDS, 2 * IDS, INT32_MAX, QSA_E_ARGUMENT, "items[1].ids[2][0] is"),
    };
    CHECK_REFUSALS(&call, item_rows);
    items[1].lists = ROWS, items[1].list_of = list_of, items[1].seen = seen, items[1].id_stride = IDS + 3;
    items[1].ids_out = NULL;
    made[1].id_bytes = 0;
    const refused_call listed = call;
    const refusal list_rows[] = {
        ITEM(1, lists, -1, "items[1].lists is -1"),
        ITEM(1, lists, INT64_MAX, "items[1].id_stride is"),
        ITEM(1, lists, 2, "items[1]: row 1 reads list 2: expected 0..1"),
        SPOIL_AT(int64_t, LIST_OF, 1, -1, QSA_E_ARGUMENT, "items[1]: row 1 reads list -1"),
        SPOIL_AT(int64_t, LIST_OF, 0, ROWS, QSA_E_ARGUMENT, "items[1]: row 0 reads list 3"),
        SPOIL_AT(int64_t, LIST_OF, 2, INT64_MAX, QSA_E_ARGUMENT, "items[1]: row 2 reads list"),
        SPOIL_AT(int64_t, SEEN, 2, -1, QSA_E_ARGUMENT, "items[1].seen[2] is -1"),
        SPOIL_AT(int64_t, SEEN, 0, LENGTH - 1, QSA_E_ARGUMENT, "items[1].seen[0] is 149: expected 0..148, what row 0"),
        SPOIL_AT(int64_t, SEEN, 2, 5, QSA_E_ARGUMENT, "items[1].ids[2][0] is"), /* an id behind what was seen */
    };
    CHECK_REFUSALS(&listed, list_rows);
    free(args.workspace);
    sample_result_free(&made[0]), sample_result_free(&made[1]);
}
#undef A

/* A workspace for one row runs any number of rows; planned for fewer cells, it is refused. */
static void workspaces_of_one_row_are_enough(void **state) {
    (void)state;
    sample_result whole = sample_decode(cache, sequence, &cells, 0, 40, QSA_CELLS);
    sample_result waves = sample_result_make(&cells.shape, 40, whole.id_stride);
    qsa_item item = sample_item(sequence, &cells, 0, &waves);
    qsa_error error;
    QSA_INIT(qsa_decode_args, args);
    args.items = &item;
    args.item_count = 1;
    args.workspace = sample_workspace(cache, QSA_CELLS, 1, LENGTH, &args.workspace_bytes);
    size_t enough = args.workspace_bytes;
    args.contract = QSA_DENSE;
    item.ids_out = NULL;
    assert_int_equal(qsa_plan(cache, QSA_DENSE, 1, 40, 0, 0, &args.workspace_bytes, NULL), QSA_OK);
    assert_int_equal(qsa_decode(cache, &args, &error), QSA_E_CAPACITY);
    args.contract = QSA_CELLS;
    item.ids_out = waves.ids;
    args.workspace_bytes = enough;
    sample_ok(qsa_decode(cache, &args, &error), &error);
    sample_same_bits(&whole, &waves);
    free(args.workspace);
    sample_result_free(&whole), sample_result_free(&waves);
}

/* No rows, no items: nothing is needed and nothing is written. */
static void nothing_to_do_is_no_error(void **state) {
    (void)state;
    QSA_INIT(qsa_decode_args, args);
    qsa_item item = {.sequence = sequence};
    int64_t ns[4] = {1, 2, 3, 4};
    args.stage_ns = ns;
    assert_int_equal(qsa_decode(cache, &args, NULL), QSA_OK);
    args.items = &item;
    args.item_count = 1;
    assert_int_equal(qsa_decode(cache, &args, NULL), QSA_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ns[i], i + 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_refuses),
        cmocka_unit_test(plans_of_any_size_do_not_overflow),
        cmocka_unit_test(decode_refuses),
        cmocka_unit_test(workspaces_of_one_row_are_enough),
        cmocka_unit_test(nothing_to_do_is_no_error),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
