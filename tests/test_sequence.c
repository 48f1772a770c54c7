/* SPDX-License-Identifier: MIT */
/* Caches and sequences: accounting, pages, growing and shrinking, missing index keys, views, codecs, block keys. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "support/counted.h"
#include "support/levels.h"
#include "support/sample.h"

enum { CELLS = 400 };

static const qsa_type kv_types[] = {QSA_F32, QSA_F16, QSA_BF16, QSA_I8_G64};
static const qsa_type key_types[] = {QSA_F32, QSA_BF16};

static counter count;
static qsa_context *context;
static qsa_cpu level;
static sample cells;

static int set_up(void **state) {
    (void)state;
    qsa_shape shape = sample_shape();
    QSA_INIT(qsa_options, options);
    options.cpu = level;
    options.threads = 2;
    options.allocator = counted(&count);
    assert_int_equal(qsa_open(&options, &context, NULL), QSA_OK);
    cells = sample_make(&shape, CELLS, 91);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    sample_free(&cells);
    qsa_close(context);
    assert_int_equal(count.bytes, 0); /* nothing that any test took is still held */
    return 0;
}

static qsa_cache *make_cache(qsa_type kv, qsa_type key, int64_t capacity) {
    qsa_cache_options options = sample_options(&cells, kv, key, capacity);
    return sample_cache(context, &options);
}

static qsa_cache_stats stats_of(const qsa_cache *cache) {
    QSA_INIT(qsa_cache_stats, stats);
    assert_int_equal(qsa_cache_get_stats(cache, &stats, NULL), QSA_OK);
    return stats;
}

/* ------------------------------------------------------------------------------------------------ accounting */

static void bytes_and_pages_are_accounted(void **state) {
    (void)state;
    for (int i = 0; i < 4 * 2; i++) {
        qsa_type kv = kv_types[i / 2], key = key_types[i % 2];
        int64_t before = count.bytes;
        qsa_cache *cache = make_cache(kv, key, 5 * SAMPLE_PAGE - 63); /* rounded up to 5 pages */
        int64_t element = kv == QSA_F32 ? 4 : kv == QSA_I8_G64 ? 1 : 2, halves = kv == QSA_I8_G64 ? 2 : 0;
        int64_t a_cell = 2 * 2 * (64 * element + halves) + 32 * (key == QSA_F32 ? 4 : 2) / 4;
        qsa_cache_stats s = stats_of(cache);
        assert_int_equal(s.pages, 5);
        assert_int_equal(s.pages_free, 5);
        assert_int_equal(s.page_cells, SAMPLE_PAGE);
        assert_int_equal(s.bytes_per_cell, a_cell);
        assert_int_equal(s.bytes_per_cell, qsa_bytes_per_cell(&cells.shape, kv, key));
        assert_int_equal(s.bytes_held, count.bytes - before);
        assert_true(s.bytes_held >= 5 * SAMPLE_PAGE * SAMPLE_LAYERS * a_cell);
        assert_true(s.bytes_held <= 5 * SAMPLE_PAGE * SAMPLE_LAYERS * a_cell + 4096);
        assert_int_equal(s.bytes_used, 0);
        assert_int_equal(s.sequences, 0);
        qsa_sequence *one = sample_sequence(cache), *two = sample_sequence(cache);
        s = stats_of(cache);
        assert_int_equal(s.sequences, 2);
        assert_int_equal(s.bytes_held, count.bytes - before);
        assert_int_equal(s.pages_free, 5);
        sample_append(one, &cells, 0, 0, SAMPLE_PAGE);
        assert_int_equal(stats_of(cache).pages_free, 4);
        sample_append(one, &cells, 0, SAMPLE_PAGE, 1);
        sample_append(one, &cells, 1, 0, 3); /* another layer, on the same pages */
        sample_append(two, &cells, 1, 0, 1);
        s = stats_of(cache);
        assert_int_equal(s.pages_free, 2);
        assert_int_equal(s.bytes_used, 3 * SAMPLE_PAGE * SAMPLE_LAYERS * a_cell);
        assert_int_equal(s.bytes_held, count.bytes - before); /* growing takes nothing */
        qsa_sequence_destroy(two);
        assert_int_equal(stats_of(cache).pages_free, 3);
        assert_int_equal(qsa_truncate(one, 0, NULL), QSA_OK);
        s = stats_of(cache);
        assert_int_equal(s.pages_free, 5);
        assert_int_equal(s.bytes_used, 0);
        assert_int_equal(s.sequences, 1);
        qsa_sequence_destroy(one);
        qsa_cache_destroy(cache);
        assert_int_equal(count.bytes, before);
    }
}

/* Each block key is built once, whatever the steps, and a step of k cells builds at most ceil(k / 4) + 1 (fault 17). */
static void block_keys_are_built_once(void **state) {
    (void)state;
    qsa_cache *cache = make_cache(QSA_I8_G64, QSA_BF16, CELLS);
    qsa_sequence *s = sample_sequence(cache);
    int64_t built = 0;
    for (int64_t length = 0, step = 1; length + step <= CELLS; length += step, step = step % 7 + 1) {
        sample_append(s, &cells, 0, length, step);
        int64_t now = stats_of(cache).block_keys_built;
        assert_true(now - built <= (step + 3) / 4 + 1);
        built = now;
        assert_int_equal(built, (length + step) / 4);
    }
    qsa_sequence_destroy(s);
    qsa_cache_destroy(cache);
}

/* ------------------------------------------------------------------------------------------------ capacity */

/* Fault 40. */
static void append_past_capacity_changes_nothing(void **state) {
    (void)state;
    qsa_cache *cache = make_cache(QSA_I8_G64, QSA_BF16, 4 * SAMPLE_PAGE);
    qsa_sequence *one = sample_sequence(cache), *two = sample_sequence(cache);
    sample_grow(one, &cells, 150); /* 3 pages */
    sample_grow(two, &cells, 10);  /* 1 page */
    sample_result before = sample_decode(cache, one, &cells, 1, 4, QSA_BLOCKS);
    qsa_append_args args = sample_append_args(&cells, 1, 150, 50);
    qsa_error error;
    qsa_cache_stats s = stats_of(cache), now;
    assert_int_equal(qsa_append(one, &args, &error), QSA_E_CAPACITY);
    assert_non_null(strstr(error.message, "0 of 4 are free"));
    now = stats_of(cache);
    assert_memory_equal(&s, &now, sizeof s);
    assert_int_equal(qsa_sequence_length(one, 1), 150);
    sample_result after = sample_decode(cache, one, &cells, 1, 4, QSA_BLOCKS);
    sample_same_bits(&before, &after);
    sample_append(one, &cells, 1, 150, 42); /* what the pages held anyway: the decode at the full length is right */
    sample_result full = sample_decode(cache, one, &cells, 1, 3, QSA_BLOCKS);
    qsa_cache *large = make_cache(QSA_I8_G64, QSA_BF16, CELLS);
    qsa_sequence *alone = sample_sequence(large);
    sample_grow(alone, &cells, 192);
    sample_result expected = sample_decode(large, alone, &cells, 1, 3, QSA_BLOCKS);
    sample_same_bits(&full, &expected);
    args = sample_append_args(&cells, 1, 192, 1);
    assert_int_equal(qsa_append(one, &args, NULL), QSA_E_CAPACITY);
    qsa_sequence_destroy(two); /* its page is what was missing */
    sample_append(one, &cells, 1, 192, 64);
    assert_int_equal(stats_of(cache).pages_free, 0);
    sample_result_free(&before), sample_result_free(&after), sample_result_free(&full), sample_result_free(&expected);
    qsa_sequence_destroy(one), qsa_sequence_destroy(alone);
    qsa_cache_destroy(cache), qsa_cache_destroy(large);
}

/* ------------------------------------------------------------------------------------------------ truncate */

/* Every length that rollback allows: afterwards as if the cells had never been there; and growing again, too. */
static void truncate_within_rollback_is_never_appended(void **state) {
    (void)state;
    qsa_shape shape = sample_shape();
    sample wrong = sample_make(&shape, CELLS, 92); /* the drafts that are taken back */
    for (int i = 0; i < 4; i++) {
        qsa_cache *cache = make_cache(kv_types[i], key_types[i % 2], 4 * CELLS);
        for (int64_t longest = 64; longest <= 68; longest++) {
            for (int64_t length = longest - SAMPLE_ROLLBACK + 4; length <= longest; length++) {
                qsa_sequence *drafted = sample_sequence(cache), *plain = sample_sequence(cache);
                sample_grow(drafted, &cells, length);
                sample_grow(drafted, &wrong, longest);
                assert_int_equal(qsa_truncate(drafted, length, NULL), QSA_OK);
                sample_grow(plain, &cells, length);
                for (int64_t end = length; end <= length + 9; end += 3) {
                    sample_grow(drafted, &cells, end);
                    sample_grow(plain, &cells, end);
                    sample_same_cells(drafted, plain, end % 2);
                    sample_result a = sample_decode(cache, drafted, &cells, end % 2, 2, QSA_BLOCKS);
                    sample_result b = sample_decode(cache, plain, &cells, end % 2, 2, QSA_BLOCKS);
                    sample_same_bits(&a, &b);
                    sample_result_free(&a), sample_result_free(&b);
                }
                qsa_sequence_destroy(drafted), qsa_sequence_destroy(plain);
            }
        }
        assert_int_equal(stats_of(cache).pages_free, stats_of(cache).pages);
        qsa_cache_destroy(cache);
    }
    sample_free(&wrong);
}

/* Inside a block whose raw keys are gone: refused, nothing changed, with a length in the message that then works. */
static void truncate_beyond_rollback_is_refused(void **state) {
    (void)state;
    qsa_cache *cache = make_cache(QSA_BF16, QSA_F32, 2 * CELLS);
    for (int64_t length = 1; length < 300 - SAMPLE_ROLLBACK; length += 13) {
        qsa_sequence *s = sample_sequence(cache), *plain = sample_sequence(cache);
        qsa_error error;
        sample_grow(s, &cells, 300);
        int64_t nearest = -1;
        qsa_status status = qsa_truncate(s, length, &error);
        if (length % 4 == 0) {
            sample_ok(status, &error);
            nearest = length;
        } else {
            assert_int_equal(status, QSA_E_STATE);
            assert_int_equal(qsa_sequence_length(s, 0), 300);
            assert_int_equal(qsa_sequence_length(s, 1), 300);
            const char *last = strrchr(error.message, ':');
            assert_non_null(last);
            assert_int_equal(sscanf(last, ": %" SCNd64 " works", &nearest), 1);
            assert_true(nearest > length - 4 && nearest < length + 4 && nearest != length);
            sample_ok(qsa_truncate(s, nearest, &error), &error);
        }
        assert_int_equal(qsa_sequence_length(s, 0), nearest);
        sample_grow(s, &cells, nearest + 50);
        sample_grow(plain, &cells, nearest + 50);
        sample_same_cells(s, plain, 0);
        sample_same_cells(s, plain, 1);
        qsa_sequence_destroy(s), qsa_sequence_destroy(plain);
    }
    qsa_cache_destroy(cache);
}

/* The rule of the header in words: from the longest that the layer has been since a cell was written, not from its
 * length. */
static void rollback_counts_from_the_longest(void **state) {
    (void)state;
    qsa_cache *cache = make_cache(QSA_I8_G64, QSA_F32, CELLS);
    qsa_sequence *s = sample_sequence(cache);
    sample_grow(s, &cells, 100);
    for (int64_t length = 99; length >= 100 - SAMPLE_ROLLBACK + 4; length--) { /* one cell at a time */
        assert_int_equal(qsa_truncate(s, length, NULL), QSA_OK);
    }
    assert_int_equal(qsa_truncate(s, 81, NULL), QSA_E_STATE);
    assert_int_equal(qsa_sequence_length(s, 0), 88);
    assert_int_equal(qsa_truncate(s, 80, NULL), QSA_OK);
    sample_grow(s, &cells, 83);
    assert_int_equal(qsa_truncate(s, 81, NULL), QSA_OK); /* written anew */
    qsa_sequence_destroy(s);
    qsa_cache_destroy(cache);
}

/* Layers of different lengths: each is cut if it is longer, and pages stay while any layer needs them. */
static void truncate_cuts_only_longer_layers(void **state) {
    (void)state;
    qsa_cache *cache = make_cache(QSA_F32, QSA_F32, 5 * SAMPLE_PAGE);
    qsa_sequence *s = sample_sequence(cache);
    sample_append(s, &cells, 0, 0, 300);
    sample_append(s, &cells, 1, 0, 70);
    assert_int_equal(stats_of(cache).pages_free, 0);
    assert_int_equal(qsa_truncate(s, 128, NULL), QSA_OK);
    assert_int_equal(qsa_sequence_length(s, 0), 128);
    assert_int_equal(qsa_sequence_length(s, 1), 70);
    assert_int_equal(stats_of(cache).pages_free, 3);
    assert_int_equal(qsa_truncate(s, 128, NULL), QSA_OK);
    assert_int_equal(stats_of(cache).pages_free, 3);
    assert_int_equal(qsa_truncate(s, 64, NULL), QSA_OK);
    assert_int_equal(qsa_sequence_length(s, 1), 64);
    assert_int_equal(stats_of(cache).pages_free, 4);
    qsa_sequence_destroy(s);
    qsa_cache_destroy(cache);
}

/* ------------------------------------------------------------------------------------------------ sharing pages */

/* Three sequences that grow, shrink and die by turns, on pages of one cache: each holds what it would alone (fault 19).
 */
static void interleaved_sequences_are_isolated_builds(void **state) {
    (void)state;
    enum { SEQUENCES = 3 };
    qsa_shape shape = sample_shape();
    sample samples[SEQUENCES];
    qsa_cache *shared = make_cache(QSA_I8_G64, QSA_BF16, 20 * SAMPLE_PAGE);
    qsa_sequence *s[SEQUENCES];
    qsa_cache_options options[SEQUENCES];
    for (int i = 0; i < SEQUENCES; i++) {
        samples[i] = sample_make(&shape, CELLS, 100 + (uint64_t)i);
        memcpy(samples[i].norm, cells.norm, SAMPLE_LAYERS * 32 * sizeof(float)); /* of the cache, not of a sequence */
        options[i] = sample_options(&cells, QSA_I8_G64, QSA_BF16, 20 * SAMPLE_PAGE);
        s[i] = sample_sequence(shared);
    }
    uint32_t dice = 12345;
    for (int turn = 0; turn < 300; turn++) {
        dice = dice * 1664525u + 1013904223u;
        int i = (int)(dice >> 24) % SEQUENCES, step = 1 + (int)(dice >> 16 & 15);
        int64_t length = qsa_sequence_length(s[i], 0);
        if (turn % 50 == 49) {
            qsa_sequence_destroy(s[i]); /* its pages go to whoever grows next */
            s[i] = sample_sequence(shared);
        } else if (length + step > CELLS || turn % 7 == 6) {
            assert_int_equal(qsa_truncate(s[i], length > 40 ? (length - 37) / 4 * 4 : 0, NULL), QSA_OK);
        } else {
            sample_grow(s[i], &samples[i], length + step);
        }
    }
    for (int i = 0; i < SEQUENCES; i++) {
        sample_grow(s[i], &samples[i], 250 + i);
        qsa_cache *own = sample_cache(context, &options[i]);
        qsa_sequence *alone = sample_sequence(own);
        sample_grow(alone, &samples[i], 250 + i);
        for (int layer = 0; layer < SAMPLE_LAYERS; layer++) {
            sample_same_cells(s[i], alone, layer);
            for (int contract = QSA_BLOCKS; contract <= QSA_DENSE; contract++) {
                sample_result a = sample_decode(shared, s[i], &samples[i], layer, 3, (qsa_contract)contract);
                sample_result b = sample_decode(own, alone, &samples[i], layer, 3, (qsa_contract)contract);
                sample_same_bits(&a, &b);
                sample_result_free(&a), sample_result_free(&b);
            }
        }
        qsa_sequence_destroy(alone);
        qsa_cache_destroy(own);
    }
    for (int i = 0; i < SEQUENCES; i++) {
        qsa_sequence_destroy(s[i]);
        sample_free(&samples[i]);
    }
    assert_int_equal(stats_of(shared).pages_free, 20);
    qsa_cache_destroy(shared);
}

/* ------------------------------------------------------------------------------------------------ missing keys */

/* K/V without index keys, then a sparse decode: refused, never answered from stale keys (fault 18). */
static void cells_without_index_keys(void **state) {
    (void)state;
    qsa_cache *cache = make_cache(QSA_I8_G64, QSA_BF16, 2 * CELLS);
    qsa_sequence *s = sample_sequence(cache), *full = sample_sequence(cache);
    qsa_error error;
    sample_grow(full, &cells, 90);
    sample_append(s, &cells, 0, 0, 72);
    qsa_append_args args = sample_append_args(&cells, 0, 72, 10);
    args.raw_index = NULL;
    sample_ok(qsa_append(s, &args, &error), &error);
    sample_append(s, &cells, 0, 82, 8); /* keys from here on are not enough either */
    assert_int_equal(qsa_sequence_length(s, 0), 90);
    sample_result r = sample_result_make(&cells.shape, 1, 40), canary = sample_result_make(&cells.shape, 1, 40);
    for (int contract = QSA_BLOCKS; contract <= QSA_CELLS; contract++) {
        assert_int_equal(sample_try_decode(cache, s, &cells, 0, (qsa_contract)contract, &r, &error), QSA_E_STATE);
        assert_non_null(strstr(error.message, "from cell 72 on"));
        sample_same_bits(&r, &canary);
    }
    sample_result dense = sample_decode(cache, s, &cells, 0, 3, QSA_DENSE); /* reads no index */
    sample_result dense_full = sample_decode(cache, full, &cells, 0, 3, QSA_DENSE);
    sample_same_bits(&dense, &dense_full);
    QSA_INIT(qsa_keys, keys);
    assert_int_equal(qsa_sequence_keys(s, 0, &keys, NULL), QSA_OK);
    assert_int_equal(keys.blocks, 18);
    assert_int_equal(qsa_truncate(s, 76, NULL), QSA_OK); /* still one block without a key */
    assert_int_equal(sample_try_decode(cache, s, &cells, 0, QSA_BLOCKS, &r, &error), QSA_E_STATE);
    assert_int_equal(qsa_truncate(s, 72, NULL), QSA_OK);
    assert_int_equal(sample_try_decode(cache, s, &cells, 0, QSA_BLOCKS, &r, &error), QSA_OK);
    sample_append(s, &cells, 0, 72, 18); /* and with keys, as if nothing had been */
    sample_result sparse = sample_decode(cache, s, &cells, 0, 3, QSA_BLOCKS);
    sample_result sparse_full = sample_decode(cache, full, &cells, 0, 3, QSA_BLOCKS);
    sample_same_bits(&sparse, &sparse_full);
    sample_result_free(&r), sample_result_free(&canary), sample_result_free(&dense), sample_result_free(&dense_full);
    sample_result_free(&sparse), sample_result_free(&sparse_full);
    qsa_sequence_destroy(s), qsa_sequence_destroy(full);
    qsa_cache_destroy(cache);
}

/* Rows that need no scores are answered without index keys: all their cells are taken. */
static void short_rows_need_no_index_keys(void **state) {
    (void)state;
    qsa_cache *cache = make_cache(QSA_F16, QSA_F32, CELLS);
    qsa_sequence *s = sample_sequence(cache), *full = sample_sequence(cache);
    qsa_append_args args = sample_append_args(&cells, 0, 0, 35); /* budget 32, and the tail */
    args.raw_index = NULL;
    assert_int_equal(qsa_append(s, &args, NULL), QSA_OK);
    sample_grow(full, &cells, 35);
    sample_result a = sample_decode(cache, s, &cells, 0, 35, QSA_BLOCKS),
                  b = sample_decode(cache, full, &cells, 0, 35, QSA_BLOCKS);
    sample_same_bits(&a, &b);
    args = sample_append_args(&cells, 0, 35, 1);
    args.raw_index = NULL;
    assert_int_equal(qsa_append(s, &args, NULL), QSA_OK);
    qsa_error error;
    sample_result r = sample_result_make(&cells.shape, 1, 40);
    assert_int_equal(sample_try_decode(cache, s, &cells, 0, QSA_BLOCKS, &r, &error), QSA_E_STATE);
    sample_result_free(&a), sample_result_free(&b), sample_result_free(&r);
    qsa_sequence_destroy(s), qsa_sequence_destroy(full);
    qsa_cache_destroy(cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_and_pages_are_accounted),
        cmocka_unit_test(block_keys_are_built_once),
        cmocka_unit_test(append_past_capacity_changes_nothing),
        cmocka_unit_test(truncate_within_rollback_is_never_appended),
        cmocka_unit_test(truncate_beyond_rollback_is_refused),
        cmocka_unit_test(rollback_counts_from_the_longest),
        cmocka_unit_test(truncate_cuts_only_longer_layers),
        cmocka_unit_test(interleaved_sequences_are_isolated_builds),
        cmocka_unit_test(cells_without_index_keys),
        cmocka_unit_test(short_rows_need_no_index_keys),
    };
    int failed = 0;
    for (level = QSA_CPU_C; level; level = next_cpu(level)) {
        failed += cmocka_run_group_tests_name(qsa_cpu_name(level), tests, set_up, tear_down);
    }
    return failed;
}
