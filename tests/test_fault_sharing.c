/* SPDX-License-Identifier: MIT */
/* Sequences that share pages, or a pool of them, hold what they would alone: faults 19, 31, 40 and 46, and forks at any length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "support/sample.h"
#include "support/stream.h"

enum { CELLS = 8192 };

static sample cells, others;

static int set_up(void **state) {
    (void)state;
    qsa_shape shape = sample_shape();
    cells = sample_make(&shape, CELLS, 151);
    others = sample_make(&shape, CELLS, 152);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    sample_free(&cells);
    sample_free(&others);
    return 0;
}

static qsa_cache *make_cache(qsa_context *context, int64_t capacity, int64_t page_cells) {
    qsa_cache_options options = sample_options(&cells, QSA_I8_G64, QSA_BF16, capacity);
    options.page_cells = page_cells;
    return sample_cache(context, &options);
}

static qsa_sequence *fork_of(const qsa_sequence *source, int64_t length) {
    qsa_sequence *fork = NULL;
    qsa_error error;
    sample_ok(qsa_sequence_fork(source, length, &fork, &error), &error);
    return fork;
}

static qsa_cache_stats stats_of(const qsa_cache *cache) {
    QSA_INIT(qsa_cache_stats, stats);
    assert_int_equal(qsa_cache_get_stats(cache, &stats, NULL), QSA_OK);
    return stats;
}

/* Cells and answers of both layers; rows from the sample's row `query` on. */
static void same(qsa_cache *a_cache, const qsa_sequence *a, qsa_cache *b_cache, const qsa_sequence *b, int64_t rows, int64_t query) {
    for (int64_t layer = 0; layer < SAMPLE_LAYERS; layer++) {
        sample_same_cells(a, b, layer);
        for (int contract = QSA_BLOCKS; contract <= QSA_CELLS; contract++) {
            sample_result x = sample_decode_at(a_cache, a, &cells, layer, rows, (qsa_contract)contract, query);
            sample_result y = sample_decode_at(b_cache, b, &cells, layer, rows, (qsa_contract)contract, query);
            sample_same_bits(&x, &y);
            sample_result_free(&x);
            sample_result_free(&y);
        }
    }
}

/* ------------------------------------------------------------------------------------------------ forks */

/* Both sides of a fork at every length of two pages go on, one first or the other, as if each had been alone. */
static void every_length(qsa_context *context) {
    qsa_cache *cache = make_cache(context, 40 * SAMPLE_PAGE, SAMPLE_PAGE);
    for (int64_t length = 0; length <= 2 * SAMPLE_PAGE + 2; length++) {
        int64_t end = length + 9;
        qsa_sequence *source = sample_sequence(cache), *mine = sample_sequence(cache), *theirs = sample_sequence(cache);
        sample_grow(source, &cells, length + 3); /* which rollback still knows */
        qsa_sequence *fork = fork_of(source, length);
        assert_int_equal(qsa_sequence_length(fork, 0), length);
        assert_int_equal(stats_of(cache).pages_shared, (length + SAMPLE_PAGE - 1) / SAMPLE_PAGE);
        sample_grow(length % 2 ? fork : source, length % 2 ? &others : &cells, end);
        sample_grow(length % 2 ? source : fork, length % 2 ? &cells : &others, end);
        sample_grow(mine, &cells, end);
        sample_grow(theirs, &cells, length);
        sample_grow(theirs, &others, end);
        same(cache, source, cache, mine, 3, length);
        same(cache, fork, cache, theirs, 3, length);
        qsa_sequence_destroy(source);
        same(cache, fork, cache, theirs, 3, length);
        qsa_sequence_destroy(fork);
        qsa_sequence_destroy(mine);
        qsa_sequence_destroy(theirs);
        assert_int_equal(stats_of(cache).pages_free, stats_of(cache).pages);
    }
    qsa_cache_destroy(cache);
}

static void forks_of_every_length(void **state) {
    (void)state;
    sample_each_level(every_length);
}

/* A tree of forks of forks: pages go back when the last holder does, in any order. */
static void last_holders(qsa_context *context) {
    qsa_cache *cache = make_cache(context, 100 * SAMPLE_PAGE, SAMPLE_PAGE);
    qsa_sequence *tree[12];
    tree[0] = sample_sequence(cache);
    sample_grow(tree[0], &cells, 5 * SAMPLE_PAGE);
    for (int i = 1; i < 12; i++) {
        tree[i] = fork_of(tree[(i - 1) / 2], 5 * SAMPLE_PAGE - 4 * i);
        sample_grow(tree[i], &cells, 5 * SAMPLE_PAGE);
    }
    qsa_cache_stats stats = stats_of(cache);
    assert_int_equal(stats.pages - stats.pages_free, 5 + 11); /* each fork has its own last page */
    assert_int_equal(stats.pages_shared, 4);
    assert_int_equal(stats.pages_copied, 11);
    for (int i = 0; i < 12; i++) {
        qsa_sequence_destroy(tree[(i * 7 + 3) % 12]);
        stats = stats_of(cache);
        assert_int_equal(stats.pages - stats.pages_free, i == 11 ? 0 : 4 + 11 - i);
        assert_int_equal(stats.pages_shared, i < 10 ? 4 : 0);
    }
    qsa_cache_destroy(cache);
}

static void pages_go_with_their_last_holder(void **state) {
    (void)state;
    sample_each_level(last_holders);
}

/* The page that a copy needs is not there: refused, nothing changed, and it works once there is one. */
static void without_a_free_page(qsa_context *context) {
    qsa_cache *cache = make_cache(context, 3 * SAMPLE_PAGE, SAMPLE_PAGE);
    qsa_sequence *s = sample_sequence(cache), *hog = sample_sequence(cache), *plain = NULL;
    sample_grow(s, &cells, 100);
    sample_grow(hog, &cells, 1);
    qsa_sequence *fork = fork_of(s, 100);
    stream before = stream_saved(fork, 100);
    qsa_cache_stats stats = stats_of(cache);
    for (int64_t layer = 0; layer < SAMPLE_LAYERS; layer++) {
        qsa_append_args args = sample_append_args(&others, layer, 100, 1);
        qsa_error error;
        assert_int_equal(qsa_append(fork, &args, &error), QSA_E_CAPACITY);
        assert_non_null(strstr(error.message, "1 of them to copy shared ones"));
        qsa_cache_stats now = stats_of(cache);
        assert_memory_equal(&now, &stats, sizeof now);
    }
    stream after = stream_saved(fork, 100);
    stream_same(&before, &after);
    qsa_sequence_destroy(hog);
    sample_grow(fork, &others, 103);
    sample_grow(s, &cells, 103);
    qsa_cache *large = make_cache(context, 10 * SAMPLE_PAGE, SAMPLE_PAGE);
    plain = sample_sequence(large);
    sample_grow(plain, &cells, 100);
    sample_grow(plain, &others, 103);
    same(cache, fork, large, plain, 2, 0);
    stream_free(&before);
    stream_free(&after);
    qsa_sequence_destroy(plain);
    qsa_sequence_destroy(fork);
    qsa_sequence_destroy(s);
    qsa_cache_destroy(large);
    qsa_cache_destroy(cache);
}

static void a_copy_without_a_free_page_is_refused(void **state) {
    (void)state;
    sample_each_level(without_a_free_page);
}

/* Fault 31: a block is shared in part, both append; whoever does not write keeps every byte, and every scale. */
static void shared_1001(qsa_context *context) {
    qsa_cache *cache = make_cache(context, 4096, SAMPLE_PAGE);
    qsa_sequence *one = sample_sequence(cache), *plain[2] = {sample_sequence(cache), sample_sequence(cache)};
    sample_grow(one, &cells, 1001);
    qsa_sequence *two = fork_of(one, 1001), *witness = fork_of(one, 1001);
    stream before = stream_saved(witness, 1001);
    sample_grow(one, &cells, 1010);
    sample_grow(two, &others, 1013);
    stream after = stream_saved(witness, 1001);
    stream_same(&before, &after);
    assert_int_equal(stats_of(cache).pages_copied, 2); /* the last page, once for each */
    sample_grow(plain[0], &cells, 1010);
    sample_grow(plain[1], &cells, 1001);
    sample_grow(plain[1], &others, 1013);
    same(cache, one, cache, plain[0], 4, 1001);
    same(cache, two, cache, plain[1], 4, 1001);
    stream_free(&before);
    stream_free(&after);
    qsa_sequence_destroy(one);
    qsa_sequence_destroy(two);
    qsa_sequence_destroy(witness);
    qsa_sequence_destroy(plain[0]);
    qsa_sequence_destroy(plain[1]);
    qsa_cache_destroy(cache);
}

static void a_block_shared_in_part(void **state) {
    (void)state;
    sample_each_level(shared_1001);
}

/* ------------------------------------------------------------------------------------------------ fault 19 */

static void copied_and_interleaved(qsa_context *context) {
    qsa_cache *cache = make_cache(context, 24000, SAMPLE_PAGE), *alone = make_cache(context, 24000, 128);
    qsa_sequence *source = sample_sequence(cache), *plain = sample_sequence(alone);
    sample_grow(source, &cells, 5000);
    sample_grow(plain, &cells, 5000);
    qsa_sequence *copy = fork_of(source, 5000);
    qsa_sequence_destroy(source); /* its index keys live on */
    same(cache, copy, alone, plain, 8, 4992);
    qsa_sequence_destroy(copy);
    qsa_sequence_destroy(plain);
    qsa_sequence *a = sample_sequence(cache), *b = sample_sequence(cache); /* on pages by turns */
    for (int64_t n = 0; n < 6002;) {
        n = n + 23 < 6002 ? n + 23 : 6002;
        sample_grow(a, &cells, n < 4099 ? n : 4099);
        sample_grow(b, &others, n);
    }
    qsa_sequence *a_alone = sample_sequence(alone), *b_alone = sample_sequence(alone);
    sample_grow(a_alone, &cells, 4099);
    sample_grow(b_alone, &others, 6002);
    same(cache, a, alone, a_alone, 8, 4091);
    same(cache, b, alone, b_alone, 8, 5994);
    qsa_sequence_destroy(a);
    qsa_sequence_destroy(b);
    qsa_sequence_destroy(a_alone);
    qsa_sequence_destroy(b_alone);
    qsa_cache_destroy(cache);
    qsa_cache_destroy(alone);
}

static void copies_and_interleaved_pages(void **state) {
    (void)state;
    sample_each_level(copied_and_interleaved);
}

/* 300 cells of an image share a position in the middle of 5,000: blocks are cut by rank all the same, and each block's key is the
 * builder's at the position of its first cell. */
static void of_one_position(qsa_context *context) {
    qsa_cache_options options = sample_options(&cells, QSA_F32, QSA_F32, 5120);
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *s = sample_sequence(cache);
    float *rotation = malloc(5000 * 16 * sizeof *rotation), *keys = malloc(1250 * 32 * sizeof *keys);
    int64_t positions[1250];
    assert_true(rotation && keys);
    for (int64_t c = 0; c < 5000; c++) {
        int64_t position = c < 2001 ? c : c < 2301 ? 2001 : c - 299;
        assert_int_equal(qsa_rope_row(&options.rope, position, rotation + c * 16, NULL), QSA_OK);
        if (c % 4 == 0) {
            positions[c / 4] = position;
        }
    }
    for (int64_t layer = 0; layer < SAMPLE_LAYERS; layer++) {
        for (int64_t at = 0; at < 5000; at += 250) {
            qsa_append_args args = sample_append_args(&cells, layer, at, 250);
            args.rotation = rotation + at * 16;
            assert_int_equal(qsa_append(s, &args, NULL), QSA_OK);
        }
        QSA_INIT(qsa_block_keys_args, build);
        build.raw = cells.raw;
        build.blocks = 1250;
        build.positions = positions;
        build.norm_weight = cells.norm + layer * 32;
        build.eps = 1e-6f;
        build.rope = &options.rope;
        build.type = QSA_F32;
        build.keys = keys;
        assert_int_equal(qsa_block_keys(context, &cells.shape, &build, NULL), QSA_OK);
        QSA_INIT(qsa_keys, view);
        assert_int_equal(qsa_sequence_keys(s, layer, &view, NULL), QSA_OK);
        assert_int_equal(view.blocks, 1250);
        for (int64_t b = 0; b < 1250; b++) {
            int64_t in = b % view.page_blocks;
            const char *page = (const char *)view.data + view.pages[b / view.page_blocks] * view.page_stride;
            for (int64_t c = 0; c < 32; c++) {
                assert_memory_equal(page + (in / 16 * 16 * 32 + c * 16 + in % 16) * 4, keys + b * 32 + c, 4);
            }
        }
    }
    free(rotation);
    free(keys);
    qsa_sequence_destroy(s);
    qsa_cache_destroy(cache);
}

static void cells_of_one_position(void **state) {
    (void)state;
    sample_each_level(of_one_position);
}

/* ------------------------------------------------------------------------------------------------ fault 46 */

enum { TURNS = 40, SHARERS = 3, TURN = 4096 };

/* The sharer's own cells behind the prefix come from another place of the sample. */
static int64_t place_of(int sharer) {
    return 1000 * (sharer + 1);
}

/* A prompt in one piece, then an answer in drafts of 4, of which some are taken back. */
static void take_turn(qsa_cache *cache, qsa_sequence *s, int sharer, int64_t end, uint32_t *dice) {
    int64_t n = end - 40;
    sample_grow_round(s, &cells, place_of(sharer), n);
    while (n < end) {
        *dice = *dice * 1664525u + 1013904223u;
        int64_t accept = (int64_t)(*dice >> 28) % 5;
        accept = accept < end - n ? accept : end - n;
        sample_grow_round(s, &cells, place_of(sharer), n + accept);
        sample_grow_round(s, &others, 17, n + 4);
        sample_result r = sample_decode_at(cache, s, &cells, n % 2, 4, QSA_BLOCKS, n % 4096);
        sample_result_free(&r);
        assert_int_equal(qsa_truncate(s, n + accept, NULL), QSA_OK);
        n += accept;
    }
}

/* Beside each sharer goes a sequence of another cache that has its cells in one piece a turn, and never a draft; every tenth turn
 * it is built anew from the first cell. */
static void turns(qsa_context *context) {
    int64_t most = (TURNS + 1) * (int64_t)TURN;
    qsa_cache *cache = make_cache(context, SHARERS * most + 1000, 256), *cold = make_cache(context, SHARERS * most + 1000, 128);
    qsa_sequence *sharer[SHARERS], *plain[SHARERS];
    uint32_t dice = 99;
    sharer[0] = sample_sequence(cache);
    sample_grow(sharer[0], &cells, TURN); /* the prefix */
    for (int i = 0; i < SHARERS; i++) {
        sharer[i] = i ? fork_of(sharer[0], TURN) : sharer[0];
        plain[i] = NULL;
    }
    assert_int_equal(stats_of(cache).pages_shared, TURN / 256);
    for (int64_t turn = 1; turn <= TURNS; turn++) {
        for (int i = 0; i < SHARERS; i++) {
            int64_t end = TURN + turn * TURN - 3 * i;
            take_turn(cache, sharer[i], i, end, &dice);
            if (turn % 10 == 1) {
                qsa_sequence_destroy(plain[i]);
                plain[i] = sample_sequence(cold);
                sample_grow(plain[i], &cells, TURN);
            }
            sample_grow_round(plain[i], &cells, place_of(i), end);
            for (int64_t layer = 0; layer < SAMPLE_LAYERS; layer++) {
                sample_result a = sample_decode_at(cache, sharer[i], &cells, layer, 3, QSA_BLOCKS, 100 * turn);
                sample_result b = sample_decode_at(cold, plain[i], &cells, layer, 3, QSA_BLOCKS, 100 * turn);
                sample_same_bits(&a, &b);
                sample_result_free(&a);
                sample_result_free(&b);
            }
        }
    }
    for (int i = 0; i < SHARERS; i++) {
        sample_same_cells(sharer[i], plain[i], i % 2);
        qsa_sequence_destroy(sharer[i]);
        qsa_sequence_destroy(plain[i]);
    }
    assert_int_equal(stats_of(cache).pages_free, stats_of(cache).pages);
    qsa_cache_destroy(cache);
    qsa_cache_destroy(cold);
}

static void forty_turns(void **state) {
    (void)state;
    sample_each_level(turns);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forks_of_every_length),
        cmocka_unit_test(pages_go_with_their_last_holder),
        cmocka_unit_test(a_copy_without_a_free_page_is_refused),
        cmocka_unit_test(a_block_shared_in_part),
        cmocka_unit_test(copies_and_interleaved_pages),
        cmocka_unit_test(cells_of_one_position),
        cmocka_unit_test(forty_turns),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
