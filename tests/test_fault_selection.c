/* SPDX-License-Identifier: MIT */
/* Faults of other engines' selection, by their rows in docs/faults.md: qsa_select() against a full stable sort. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oracle/oracle.h"
#include "support/layer_model.h"
#include "support/rig.h"

static const qsa_contract contracts[2] = {QSA_BLOCKS, QSA_CELLS};

static float *new_scores(int64_t blocks) {
    float *scores = malloc((size_t)(blocks + 1) * sizeof *scores);
    assert_non_null(scores);
    scores[blocks] = INFINITY;
    return scores;
}

/* One row; ids [qsa_width()]. */
static void select_row(qsa_context *context, const qsa_shape *shape, qsa_contract contract, int64_t n,
                       const float *scores, int32_t *ids) {
    int64_t width = qsa_width(shape, contract, n), n_ids = -1;
    memset(ids, 0xa5, (size_t)width * sizeof *ids);
    QSA_INIT(qsa_select_args, args);
    args.contract = contract;
    args.scores = scores;
    args.score_stride = n / shape->block + 1;
    args.rows = 1;
    args.n = &n;
    args.ids = ids;
    args.id_stride = width;
    args.n_ids = &n_ids;
    MUST(qsa_select, context, shape, &args);
    assert_int_equal(n_ids, width);
}

/* SEL, `runs` times under both contracts. */
static void assert_selected(qsa_context *context, const qsa_shape *shape, int64_t n, const float *scores, int runs) {
    for (int c = 0; c < 2; c++) {
        int64_t width = qsa_width(shape, contracts[c], n);
        int32_t *got = malloc((size_t)(width + 1) * sizeof *got), *want = malloc((size_t)(width + 1) * sizeof *want);
        assert_int_equal(oracle_select(shape, contracts[c], n, scores, want), width);
        for (int run = 0; run < runs; run++) {
            select_row(context, shape, contracts[c], n, scores, got);
            assert_memory_equal(got, want, (size_t)width * sizeof *got);
        }
        free(got), free(want);
    }
}

/* The same on every CPU level; `threads` threads. */
static void assert_selected_everywhere(int64_t threads, const qsa_shape *shape, int64_t n, const float *scores,
                                       int runs) {
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        qsa_context *context = open_context(cpu, threads);
        assert_selected(context, shape, n, scores, runs);
        qsa_close(context);
    }
}

static void shuffle(rng *r, int64_t count, float *x) {
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = rng_range(r, 0, i);
        float swap = x[i];
        x[i] = x[j];
        x[j] = swap;
    }
}

/* ------------------------------------------------------------------------------------------ 2 */

static void fault_02_boundary_counts_of_both_contracts(void **state) {
    (void)state;
    static const int64_t blocks_counts[9] = {2048, 2049, 2050, 2051, 2048, 2049, 2050, 2051, 2048}; /* from 2,048 on */
    rng r = rng_of(test_seed(2));
    qsa_shape shape = small_shape();
    float *scores = new_scores(600);
    rng_fill(&r, 600, 1.0f, scores);
    for (int64_t n = 2048; n <= 2060; n++) {
        int64_t want = n <= 2056 ? blocks_counts[n - 2048] : 2048 + n % 4;
        assert_int_equal(qsa_width(&shape, QSA_BLOCKS, n), want);
        assert_int_equal(qsa_width(&shape, QSA_CELLS, n), n < 2051 ? n : 2051);
        assert_int_equal(qsa_width(&shape, QSA_DENSE, n), n);
        assert_selected_everywhere(1, &shape, n, scores, 1);
    }
    for (int64_t block = 2; block <= 8; block *= 2) { /* every block size, around every small budget */
        for (int64_t budget = block; budget <= 5 * block; budget += block) {
            shape.block = block;
            shape.budget = budget;
            qsa_context *context = open_context(QSA_CPU_AUTO, 1);
            for (int64_t n = 0; n <= budget + 4 * block; n++) {
                int64_t whole = n / block * block;
                assert_int_equal(qsa_width(&shape, QSA_BLOCKS, n), (whole < budget ? whole : budget) + n % block);
                assert_int_equal(qsa_width(&shape, QSA_CELLS, n), n < budget + block - 1 ? n : budget + block - 1);
                assert_selected(context, &shape, n, scores, 1);
            }
            qsa_close(context);
        }
    }
    free(scores);
}

/* One call takes one contract, and each of its rows that contract's count, whatever the rows before it had. */
static void fault_02_contracts_never_mix_inside_a_call(void **state) {
    (void)state;
    enum { ROWS = 26, STRIDE = 2051, SCORES = 516 };
    rng r = rng_of(test_seed(22));
    qsa_shape shape = small_shape();
    float *scores = rng_floats(&r, ROWS * SCORES, 1.0f);
    int32_t *ids = malloc(ROWS * STRIDE * sizeof *ids), *want = malloc(STRIDE * sizeof *want);
    int64_t n[ROWS], n_ids[ROWS];
    for (int64_t t = 0; t < ROWS; t++) {
        n[t] = 2048 + t * 5 % 13; /* every length twice, in no order */
    }
    for (int c = 0; c < 2; c++) {
        qsa_context *context = open_context(QSA_CPU_AUTO, 3);
        QSA_INIT(qsa_select_args, args);
        args.contract = contracts[c];
        args.scores = scores;
        args.score_stride = SCORES;
        args.rows = ROWS;
        args.n = n;
        args.ids = ids;
        args.id_stride = STRIDE;
        args.n_ids = n_ids;
        memset(ids, 0xa5, ROWS * STRIDE * sizeof *ids);
        MUST(qsa_select, context, &shape, &args);
        for (int64_t t = 0; t < ROWS; t++) {
            int64_t count = oracle_select(&shape, contracts[c], n[t], scores + t * SCORES, want);
            assert_int_equal(n_ids[t], count);
            assert_memory_equal(ids + t * STRIDE, want, (size_t)count * sizeof *ids);
            for (int64_t i = count; i < STRIDE; i++) {
                assert_int_equal(ids[t * STRIDE + i], -1);
            }
        }
        args.contract = QSA_DENSE;
        qsa_error error;
        assert_int_equal(qsa_select(context, &shape, &args, &error), QSA_E_ARGUMENT);
        qsa_close(context);
    }
    free(scores), free(ids), free(want);
}

/* ------------------------------------------------------------------------------------------ 3, 4, 7 */

/* Blocks in ties of four, the cut inside one: n = 131,072 and every tail, 100 runs, threads 1..8. */
static void fault_03_ties_of_four(void **state) {
    (void)state;
    enum { BLOCKS = 32768 };
    rng r = rng_of(test_seed(3));
    qsa_shape shape = small_shape();
    float *scores = new_scores(BLOCKS);
    for (int64_t b = 0; b < BLOCKS; b++) {
        scores[b] = b % 4 == 0 ? rng_float(&r) : scores[b - 1];
    }
    for (int64_t off = 0; off < 4; off++) { /* 512 blocks end after 1, 2, 3 and 4 of a tie's blocks */
        float *moved = new_scores(BLOCKS);
        memcpy(moved, scores, BLOCKS * sizeof *moved);
        for (int64_t b = 0; b < off; b++) {
            moved[4 * b] = 2.0f; /* above all others, and away from their ties */
        }
        int32_t want[2051], got[2051];
        int64_t n = 4 * BLOCKS + off, count = oracle_select(&shape, QSA_BLOCKS, n, moved, want);
        for (int64_t threads = 1; threads <= 8; threads++) {
            for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
                qsa_context *context = open_context(cpu, threads);
                for (int run = 0; run < 25; run++) { /* times 4 tails */
                    select_row(context, &shape, QSA_BLOCKS, n, moved, got);
                    assert_memory_equal(got, want, (size_t)count * sizeof *got);
                }
                qsa_close(context);
            }
        }
        for (int64_t i = 0; i < count - off; i += 4) { /* no block is taken in part but the tail */
            assert_int_equal(got[i] % 4, 0);
            assert_int_equal(got[i + 3], got[i] + 3);
        }
        for (int64_t i = 0; i < off; i++) {
            assert_int_equal(got[count - off + i], 4 * BLOCKS + i);
        }
        assert_selected_everywhere(2, &shape, n, moved, 1); /* and CELLS, which cuts the last block */
        free(moved);
    }
    free(scores);
}

static void fault_04_seven_values_and_a_tie_of_20000(void **state) {
    (void)state;
    enum { BLOCKS = 65536, TIE = 20000 };
    rng r = rng_of(test_seed(4));
    qsa_shape shape = small_shape();
    float *scores = new_scores(BLOCKS);
    static const int64_t above[] = {0, 1, 300, 511}; /* blocks above the tie */
    for (int a = 0; a < 4; a++) {
        for (int64_t b = 0; b < BLOCKS; b++) {
            float lower = 0.125f * (float)(b % 4);
            float upper = b % 2 ? 3.0f : 2.5f;
            scores[b] = b < above[a] ? upper : b < above[a] + TIE ? 1.0f : lower;
        }
        shuffle(&r, BLOCKS, scores);
        assert_selected_everywhere(3, &shape, 4 * BLOCKS + a, scores, 25); /* times 4 */
    }
    free(scores);
}

static void fault_07_all_but_300_scores_are_zero(void **state) {
    (void)state;
    enum { BLOCKS = 65536, POSITIVE = 300 };
    rng r = rng_of(test_seed(7));
    qsa_shape shape = small_shape();
    float *scores = new_scores(BLOCKS);
    for (int kind = 0; kind < 4; kind++) { /* +0, -0, both, and positive ones too small to be normal */
        for (int64_t b = 0; b < BLOCKS; b++) {
            float zero = kind == 1 || (kind == 2 && rng_range(&r, 0, 1)) ? -0.0f : 0.0f;
            float positive = kind == 3 ? 1e-45f * (float)(b + 1) : 0.5f + rng_float(&r) * 0.25f;
            scores[b] = b < POSITIVE ? positive : zero;
        }
        shuffle(&r, BLOCKS, scores);
        int32_t ids[2051];
        qsa_context *context = open_context(QSA_CPU_AUTO, 2);
        select_row(context, &shape, QSA_BLOCKS, 4 * BLOCKS, scores, ids);
        qsa_close(context);
        int64_t positive = 0, zeros = 0, next_zero = 0;
        for (int64_t i = 0; i < 2048; i += 4) {
            int64_t b = ids[i] / 4;
            if (scores[b] > 0) {
                positive++;
                continue;
            }
            while (scores[next_zero] > 0) {
                next_zero++;
            }
            assert_int_equal(b, next_zero++);
            zeros++;
        }
        assert_int_equal(positive, POSITIVE);
        assert_int_equal(zeros, 512 - POSITIVE);
        assert_selected_everywhere(2, &shape, 4 * BLOCKS + kind, scores, 2);
    }
    memset(scores, 0, BLOCKS * sizeof *scores); /* every score 0: the first blocks */
    for (int64_t n = 2048; n < 2060; n++) {
        assert_selected_everywhere(1, &shape, n, scores, 1);
    }
    free(scores);
}

/* ------------------------------------------------------------------------------------------ 6 */

/* Half of a long row inside one bin of any radix: values that share their upper 8, 16 or 24 bits. */
static void fault_06_half_of_a_long_row_in_one_bin(void **state) {
    (void)state;
    static const int64_t sizes[2] = {30938, 65504};
    static const double shares[2] = {0.50, 0.52};
    rng r = rng_of(test_seed(6));
    qsa_shape shape = small_shape();
    for (int size = 0; size < 2; size++) {
        for (int shared = 8; shared <= 32; shared += 8) {
            int64_t blocks = sizes[size], inside = (int64_t)(shares[size] * (double)blocks);
            float *scores = new_scores(blocks);
            for (int64_t b = 0; b < blocks; b++) {
                uint32_t bits = UINT32_C(0x3f9ac35b);
                if (shared < 32) {
                    bits ^= (uint32_t)rng_next(&r) >> shared;
                }
                float in_bin;
                memcpy(&in_bin, &bits, sizeof in_bin);
                scores[b] = b < inside ? in_bin : b < inside + 100 ? 100.0f + rng_float(&r) : 0.25f * rng_float(&r);
            }
            shuffle(&r, blocks, scores);
            int runs = shared == 8 ? 50 : 5;
            assert_selected_everywhere(2, &shape, 4 * blocks, scores, runs);
            shape.budget = inside / 2 * 4; /* the cut in the middle of the bin */
            assert_selected_everywhere(1, &shape, 4 * blocks + 3, scores, 2);
            shape.budget = 2048;
            free(scores);
        }
    }
}

/* ------------------------------------------------------------------------------------------ 8 */

static float nan_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void fault_08_nan_scores_rank_below_every_number(void **state) {
    (void)state;
    enum { BLOCKS = 40000 };
    static const uint32_t nans[] = {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu};
    rng r = rng_of(test_seed(8));
    qsa_shape shape = small_shape();
    float *scores = new_scores(BLOCKS), *dirty = new_scores(BLOCKS);
    rng_fill(&r, BLOCKS, 1.0f, scores);
    scores[7] = -INFINITY;
    scores[8] = INFINITY;
    for (int kind = 0; kind < 6; kind++) {
        memcpy(dirty, scores, BLOCKS * sizeof *dirty);
        dirty[5] = nan_of(nans[kind]);
        assert_selected_everywhere(2, &shape, 4 * BLOCKS + 1, dirty, 2);
        int32_t ids[2051];
        qsa_context *context = open_context(QSA_CPU_AUTO, 2);
        select_row(context, &shape, QSA_BLOCKS, 4 * BLOCKS, dirty, ids);
        for (int i = 0; i < 2048; i++) {
            assert_int_not_equal(ids[i] / 4, 5);
        }
        /* More numbers missing than the budget can pass over: 500 numbers, the rest NaN of every kind. */
        for (int64_t b = 0; b < BLOCKS; b++) {
            dirty[b] = b % 80 == 3 ? scores[b] : nan_of(nans[rng_range(&r, 0, 5)]);
        }
        assert_selected(context, &shape, 4 * BLOCKS + kind % 4, dirty, 1);
        for (int64_t b = 0; b < BLOCKS; b++) { /* nothing but NaN and -infinity */
            dirty[b] = b % 400 == 9 ? -INFINITY : nan_of(nans[b % 6]);
        }
        assert_selected(context, &shape, 4 * BLOCKS + kind % 4, dirty, 1);
        assert_selected(context, &shape, 4 * BLOCKS, scores, 1); /* and a clean row afterwards */
        qsa_close(context);
    }
    free(scores), free(dirty);
}

/* ------------------------------------------------------------------------------------------ 12 */

/* Every row length 1..9,999 with a random budget, over values from all different to few. */
static void fault_12_every_row_length_with_a_random_budget(void **state) {
    (void)state;
    enum { LONGEST = 9999 };
    rng r = rng_of(test_seed(12));
    qsa_cpu levels[8];
    int level_count = 0;
    qsa_context *contexts[8];
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        levels[level_count] = cpu;
        contexts[level_count] = open_context(levels[level_count], 1);
        level_count++;
    }
    qsa_shape shape = small_shape();
    float *scores = new_scores(LONGEST);
    for (int64_t blocks = 1; blocks <= LONGEST; blocks++) {
        int64_t values = INT64_C(1) << rng_range(&r, 0, 23);
        for (int64_t b = 0; b < blocks; b++) {
            scores[b] = (float)rng_range(&r, -values / 4, values) * 0.01f;
        }
        shape.block = INT64_C(2) << rng_range(&r, 0, 2);
        shape.budget = shape.block * rng_range(&r, 1, blocks + 2);
        int64_t n = blocks * shape.block + rng_range(&r, 0, shape.block - 1);
        scores[blocks] = INFINITY;
        int64_t width = qsa_width(&shape, QSA_CELLS, n);
        int32_t *got = malloc((size_t)(width + 1) * sizeof *got), *want = malloc((size_t)(width + 1) * sizeof *want);
        qsa_contract contract = contracts[blocks % 2];
        int64_t count = oracle_select(&shape, contract, n, scores, want);
        for (int level = 0; level < level_count; level++) {
            select_row(contexts[level], &shape, contract, n, scores, got);
            assert_memory_equal(got, want, (size_t)count * sizeof *got);
        }
        free(got), free(want);
    }
    for (int level = 0; level < level_count; level++) {
        qsa_close(contexts[level]);
    }
    free(scores);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_02_boundary_counts_of_both_contracts),
        cmocka_unit_test(fault_02_contracts_never_mix_inside_a_call),
        cmocka_unit_test(fault_03_ties_of_four),
        cmocka_unit_test(fault_04_seven_values_and_a_tie_of_20000),
        cmocka_unit_test(fault_06_half_of_a_long_row_in_one_bin),
        cmocka_unit_test(fault_07_all_but_300_scores_are_zero),
        cmocka_unit_test(fault_08_nan_scores_rank_below_every_number),
        cmocka_unit_test(fault_12_every_row_length_with_a_random_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
