/* SPDX-License-Identifier: MIT */
/* Drafts that are taken back leave nothing behind: faults 14, 15, 16, 20 and 38, at every CPU level that is here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "support/counted.h"
#include "support/sample.h"

enum { CELLS = 8192, WIDEST = 16, ROLLBACK = 20 }; /* the widest draft, and the block that it may begin in */

static sample cells, drafts; /* `drafts` are the cells that are rejected */

static int set_up(void **state) {
    (void)state;
    qsa_shape shape = sample_shape();
    cells = sample_make(&shape, CELLS, 141);
    drafts = sample_make(&shape, CELLS, 142);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    sample_free(&cells);
    sample_free(&drafts);
    return 0;
}

static qsa_cache *make_cache(qsa_context *context, qsa_type kv, qsa_type key, int64_t capacity) {
    qsa_cache_options options = sample_options(&cells, kv, key, capacity);
    options.rollback = ROLLBACK;
    return sample_cache(context, &options);
}

static int64_t built(const qsa_cache *cache) {
    QSA_INIT(qsa_cache_stats, stats);
    assert_int_equal(qsa_cache_get_stats(cache, &stats, NULL), QSA_OK);
    return stats.block_keys_built;
}

static void same_state(qsa_cache *cache, const qsa_sequence *a, const qsa_sequence *b) {
    for (int64_t layer = 0; layer < SAMPLE_LAYERS; layer++) {
        int64_t n = qsa_sequence_length(a, layer);
        sample_same_cells(a, b, layer);
        sample_result x = sample_decode(cache, a, &cells, layer, n < 3 ? n : 3, QSA_BLOCKS);
        sample_result y = sample_decode(cache, b, &cells, layer, n < 3 ? n : 3, QSA_BLOCKS);
        sample_same_bits(&x, &y);
        sample_result_free(&x);
        sample_result_free(&y);
    }
}

/* The rows of a verification are those that one-cell steps give, as long as the drafts before them are right. */
static void same_rows(qsa_cache *cache, const qsa_sequence *drafted, qsa_sequence *const *plain, int64_t width, int64_t right) {
    sample_result rows = sample_decode(cache, drafted, &cells, 0, width, QSA_BLOCKS);
    int64_t floats = cells.shape.q_heads * cells.shape.head_dim;
    for (int64_t t = 0; t < right; t++) {
        sample_result one = sample_decode(cache, plain[t], &cells, 0, 1, QSA_BLOCKS);
        assert_memory_equal(one.out, rows.out + t * floats, (size_t)floats * sizeof *one.out);
        assert_memory_equal(one.ids, rows.ids + t * rows.id_stride, (size_t)one.id_stride * sizeof *one.ids);
        sample_result_free(&one);
    }
    sample_result_free(&rows);
}

/*
 * From `start` cells on: `width` drafts of which the first `accept` are right, verified, the others taken back; then `after` steps
 * of one cell. plain[t] has start + t + 1 cells, each of them one step.
 */
static void verify(qsa_cache *cache, qsa_sequence *const *plain, int64_t start, int64_t width, int64_t accept, int64_t after) {
    qsa_sequence *drafted = sample_sequence(cache);
    sample_grow(drafted, &cells, start);
    for (int64_t layer = 0; layer < SAMPLE_LAYERS; layer++) {
        int64_t before = built(cache);
        sample_append(drafted, &cells, layer, start, accept);
        sample_append(drafted, &drafts, layer, start + accept, width - accept);
        assert_true(built(cache) - before <= (width + 3) / 4 + 1);
    }
    same_rows(cache, drafted, plain, width, accept);
    assert_int_equal(qsa_truncate(drafted, start + accept, NULL), QSA_OK);
    for (int64_t step = 0; step <= after; step++) {
        sample_grow(drafted, &cells, start + accept + step);
        if (accept + step > 0 && (step % 5 == 0 || step == after)) {
            same_state(cache, drafted, plain[accept + step - 1]);
        }
    }
    qsa_sequence_destroy(drafted);
}

/* plain[t]: start + t + 1 cells, each appended alone. */
static void make_plain(qsa_cache *cache, int64_t start, qsa_sequence **plain, int64_t count) {
    for (int64_t t = 0; t < count; t++) {
        plain[t] = sample_sequence(cache);
        sample_grow(plain[t], &cells, start);
        for (int64_t n = start + 1; n <= start + t + 1; n++) {
            sample_grow(plain[t], &cells, n);
        }
    }
}

static void free_all(qsa_sequence **sequences, int64_t count) {
    for (int64_t t = 0; t < count; t++) {
        qsa_sequence_destroy(sequences[t]);
    }
}

static void every_width_and_accept(qsa_context *context) {
    qsa_cache *cache = make_cache(context, QSA_I8_G64, QSA_BF16, 64 * 256);
    for (int64_t start = 60; start < 64; start++) { /* a page ends at 64 */
        qsa_sequence *plain[WIDEST + 3];
        make_plain(cache, start, plain, WIDEST + 3);
        for (int64_t width = 1; width <= WIDEST; width++) {
            for (int64_t accept = 0; accept <= width; accept++) {
                verify(cache, plain, start, width, accept, 3);
            }
        }
        free_all(plain, WIDEST + 3);
    }
    qsa_cache_destroy(cache);
}

/* Fault 14: widths 1 to 16, every start modulo 4, every number of accepted drafts. */
static void drafts_of_every_width(void **state) {
    (void)state;
    sample_each_level(every_width_and_accept);
}

static void twenty_steps_after(qsa_context *context) {
    static const qsa_type kv[] = {QSA_F32, QSA_F16, QSA_BF16, QSA_I8_G64};
    for (int i = 0; i < 4; i++) {
        qsa_cache *cache = make_cache(context, kv[i], i % 2 ? QSA_F32 : QSA_BF16, 64 * 256);
        for (int64_t start = 117; start < 121; start++) {
            qsa_sequence *plain[28];
            make_plain(cache, start, plain, 28);
            for (int64_t accept = 0; accept <= 8; accept++) {
                verify(cache, plain, start, 8, accept, 20); /* fault 15 */
            }
            for (int64_t width = 1; width <= 8; width++) { /* fault 16 */
                verify(cache, plain, start, width, 0, 1);
                verify(cache, plain, start, width, width - 1, 1);
                verify(cache, plain, start, width, width, 1);
            }
            free_all(plain, 28);
        }
        qsa_cache_destroy(cache);
    }
}

/* Faults 15 and 16: steps that follow, in every format. */
static void steps_after_drafts(void **state) {
    (void)state;
    sample_each_level(twenty_steps_after);
}

/* Rejecting everything at once and again, at the same place: nothing piles up, no page is lost. */
static void again(qsa_context *context) {
    qsa_cache *cache = make_cache(context, QSA_I8_G64, QSA_BF16, 3 * SAMPLE_PAGE);
    qsa_sequence *s = sample_sequence(cache), *plain = sample_sequence(cache);
    sample_grow(s, &cells, 63);
    sample_grow(plain, &cells, 63);
    for (int64_t i = 0; i < 500; i++) {
        sample_grow(s, &drafts, 63 + 1 + i % WIDEST); /* into the third page and back */
        assert_int_equal(qsa_truncate(s, 63, NULL), QSA_OK);
    }
    same_state(cache, s, plain);
    sample_grow(s, &cells, 64);
    sample_grow(plain, &cells, 64);
    same_state(cache, s, plain);
    qsa_sequence_destroy(s);
    qsa_sequence_destroy(plain);
    qsa_cache_destroy(cache);
}

static void the_same_drafts_again(void **state) {
    (void)state;
    sample_each_level(again);
}

/* Fault 38: on the way to 100,000 cells, 4-row steps at every offset modulo 4 beside a sequence that never drafted. */
static void long_way(qsa_context *context) {
    enum { END = 100000 };
    qsa_cache *cache = make_cache(context, QSA_I8_G64, QSA_BF16, 2 * END + 1000);
    qsa_sequence *drafted = sample_sequence(cache), *plain = sample_sequence(cache);
    uint32_t dice = 7;
    int64_t seen[4] = {0}, step = 0;
    for (int64_t n = 0; n + 9000 < END; step++) {
        dice = dice * 1664525u + 1013904223u;
        n += step % 4 ? 1 + (int64_t)(dice >> 30) : 1 + (int64_t)(dice >> 19);
        sample_grow_round(drafted, &cells, 0, n);
        sample_grow_round(plain, &cells, 0, n);
        sample_grow_round(drafted, &drafts, (int64_t)(dice >> 24), n + 4); /* wrong ones */
        if (step % 4 == 3) {
            sample_result wrong = sample_decode_at(cache, drafted, &cells, step % 2, 4, QSA_BLOCKS, 0);
            sample_result_free(&wrong);
        }
        assert_int_equal(qsa_truncate(drafted, n, NULL), QSA_OK);
        sample_grow_round(drafted, &cells, 0, n + 4); /* right ones, of which some are taken back all the same */
        sample_grow_round(plain, &cells, 0, n + 4);
        sample_result a = sample_decode_at(cache, drafted, &cells, step % 2, 4, QSA_BLOCKS, n % 4096);
        sample_result b = sample_decode_at(cache, plain, &cells, step % 2, 4, QSA_BLOCKS, n % 4096);
        sample_same_bits(&a, &b);
        sample_result_free(&a);
        sample_result_free(&b);
        int64_t accept = 1 + (int64_t)(dice >> 8) % 4;
        assert_int_equal(qsa_truncate(drafted, n + accept, NULL), QSA_OK);
        assert_int_equal(qsa_truncate(plain, n + accept, NULL), QSA_OK);
        seen[n % 4]++;
        n += accept;
    }
    assert_true(seen[0] > 3 && seen[1] > 3 && seen[2] > 3 && seen[3] > 3);
    sample_same_cells(drafted, plain, 0);
    sample_same_cells(drafted, plain, 1);
    qsa_sequence_destroy(drafted);
    qsa_sequence_destroy(plain);
    qsa_cache_destroy(cache);
}

static void drafts_at_any_depth(void **state) {
    (void)state;
    sample_each_level(long_way);
}

/* Fault 20: of raw index keys a sequence keeps the ring and no more: its memory does not follow the cells it can have. */
static void raw_keys_are_a_ring(void **state) {
    (void)state;
    counter count = {0};
    QSA_INIT(qsa_options, options);
    options.threads = 1;
    options.allocator = counted(&count);
    qsa_context *context = NULL;
    assert_int_equal(qsa_open(&options, &context, NULL), QSA_OK);
    int64_t bytes[2], pages[2];
    for (int i = 0; i < 2; i++) {
        qsa_cache *cache = make_cache(context, QSA_I8_G64, QSA_BF16, i ? 64000 : 640);
        int64_t before = count.bytes;
        qsa_sequence *s = sample_sequence(cache);
        bytes[i] = count.bytes - before;
        pages[i] = i ? 1000 : 10;
        sample_grow(s, &cells, 640);
        assert_int_equal(count.bytes - before, bytes[i]); /* and none is taken later */
        qsa_sequence_destroy(s);
        qsa_cache_destroy(cache);
    }
    assert_int_equal(bytes[1] - bytes[0], (pages[1] - pages[0]) * (int64_t)sizeof(int32_t)); /* the page table alone */
    assert_true(bytes[0] < SAMPLE_LAYERS * (ROLLBACK * 32 + (ROLLBACK / 4 + 2) * 16) * 4 + 1024);
    qsa_close(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_of_every_width),
        cmocka_unit_test(steps_after_drafts),
        cmocka_unit_test(the_same_drafts_again),
        cmocka_unit_test(drafts_at_any_depth),
        cmocka_unit_test(raw_keys_are_a_ring),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
