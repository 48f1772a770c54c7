/* SPDX-License-Identifier: MIT */
/* Faults of other engines with sizes, overflow and crashes, by their rows in docs/faults.md. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "oracle/oracle.h"
#include "support/layer_model.h"
#include "support/rig.h"

static const qsa_contract contracts[2] = {QSA_BLOCKS, QSA_CELLS};

/* ------------------------------------------------------------------------------------------ 35 */

static void fault_35_lengths_around_the_context_limit_and_a_million(void **state) {
    (void)state;
    enum { COUNT = 16 };
    rng random = rng_of(test_seed(35));
    int64_t lengths[COUNT];
    for (int i = 0; i < 14; i++) {
        lengths[i] = 262139 + i;
    }
    lengths[14] = 524288;
    lengths[15] = 1048576;
    queries q[COUNT];
    decoded first[COUNT][2];
    rig_options options = {.shape = small_shape(), .capacity = 1048576, .threads = 2, .seed = 35};
    for (int i = 0; i < COUNT; i++) {
        q[i] = new_queries(&random, &options.shape, 1);
    }
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        options.cpu = cpu;
        rig r = open_rig(&options);
        for (int i = 0; i < COUNT; i++) {
            grow(&r, r.sequence, lengths[i]);
            for (int c = 0; c < 2; c++) {
                decoded d = decode(&r, &q[i], contracts[c]);
                if (cpu == QSA_CPU_C) {
                    check_decoded(&r, r.sequence, &q[i], contracts[c], &d);
                    first[i][c] = d;
                } else {
                    assert_same_decoded(&d, &first[i][c]);
                    free_decoded(&d);
                }
            }
        }
        check_keys(&r, r.sequence, 262144 - 200, 200);
        check_cells(&r, r.sequence, 1048576 - 500, 500);
        close_rig(&r);
    }
    for (int i = 0; i < COUNT; i++) {
        free_decoded(&first[i][0]), free_decoded(&first[i][1]);
        free_queries(&q[i]);
    }
}

/* ------------------------------------------------------------------------------------------ 36 */

static void fault_36_4096_rows_in_one_batch(void **state) {
    (void)state;
    enum { ROWS = 4096 };
    rng random = rng_of(test_seed(36));
    rig_options options = {.shape = small_shape(), .capacity = ROWS * 64, .page_cells = 64, .threads = 3};
    options.shape.budget = 8; /* so that tiny rows select */
    rig r = open_rig(&options);
    qsa_sequence **sequences = malloc(ROWS * sizeof(qsa_sequence *));
    queries q = new_queries(&random, &r.shape, ROWS);
    for (int64_t i = 0; i < ROWS; i++) {
        MUST(qsa_sequence_create, r.cache, &sequences[i]);
        grow(&r, sequences[i], 1 + i % 23);
    }
    for (int c = 0; c < 2; c++) {
        decoded all = decode_batch(&r, sequences, &q, contracts[c]);
        for (int64_t i = 0; i < ROWS; i++) {
            queries one = queries_at(&r, &q, i, 1);
            decoded row = {.rows = 1, .width = qsa_width(&r.shape, contracts[c], 1 + i % 23), .out_width = 128};
            row.ids = all.ids + i * all.width;
            row.out = all.out + i * all.out_width;
            check_decoded(&r, sequences[i], &one, contracts[c], &row);
        }
        free_decoded(&all);
    }
    for (int64_t i = 0; i < ROWS; i++) {
        qsa_sequence_destroy(sequences[i]);
    }
    free(sequences);
    free_queries(&q);
    close_rig(&r);
}

/* Rows that lie so far apart that the last begins 8.6 GB behind the first: address space, of which little is touched.
 */
static void fault_36_offsets_need_64_bits(void **state) {
    (void)state;
    enum { ROWS = 4096, N = 6 };
    const int64_t stride = 524289;
    size_t bytes = (size_t)(ROWS * stride) * sizeof(float);
    float *scores = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (scores == MAP_FAILED) {
        skip(); /* no such address space here */
    }
    rng random = rng_of(test_seed(360));
    qsa_shape s = small_shape();
    s.budget = 4;
    qsa_context *context = open_context(QSA_CPU_AUTO, 2);
    float *data = rng_floats(&random, 2 * s.index_dim, 1.0f), *iq = rng_floats(&random, ROWS * s.index_dim, 1.0f);
    int64_t n[ROWS], n_ids[ROWS];
    for (int64_t t = 0; t < ROWS; t++) {
        n[t] = N + t % 5;
    }
    QSA_INIT(qsa_keys, keys);
    keys.type = QSA_F32;
    keys.data = data;
    keys.blocks = 2;
    QSA_INIT(qsa_score_args, score);
    score.iq = iq;
    score.rows = ROWS;
    score.n = n;
    score.keys = &keys;
    score.scores = scores;
    score.score_stride = stride;
    MUST(qsa_score, context, &s, &score);
    int32_t *ids = malloc(ROWS * 8 * sizeof *ids), want[8];
    QSA_INIT(qsa_select_args, select);
    select.contract = QSA_BLOCKS;
    select.scores = scores;
    select.score_stride = stride;
    select.rows = ROWS;
    select.n = n;
    select.ids = ids;
    select.id_stride = 8;
    select.n_ids = n_ids;
    MUST(qsa_select, context, &s, &select);
    for (int64_t t = 0; t < ROWS; t++) {
        double key[16];
        for (int64_t b = 0; b < n[t] / 4; b++) {
            for (int i = 0; i < 16; i++) {
                key[i] = (double)data[b * 16 + i];
            }
            assert_true(fabs(oracle_score(&s, iq + t * 16, key, NULL) - (double)scores[t * stride + b]) < 1e-5);
        }
        int64_t count = oracle_select(&s, QSA_BLOCKS, n[t], scores + t * stride, want);
        assert_int_equal(n_ids[t], count);
        assert_memory_equal(ids + t * 8, want, (size_t)count * sizeof *ids);
    }
    free(data), free(iq), free(ids);
    munmap(scores, bytes);
    qsa_close(context);
}

/* ------------------------------------------------------------------------------------------ 37 */

/* Two rigs of the same source hold the same state: lengths, block counts, and the outputs' bits. */
static void assert_same_state(const rig *a, qsa_sequence *in_a, const rig *b, qsa_sequence *in_b, rng *random) {
    int64_t n = qsa_sequence_length(in_a, 0);
    assert_int_equal(n, qsa_sequence_length(in_b, 0));
    queries q = new_queries(random, &a->shape, n < 3 ? n : 3);
    for (int c = 0; c < 2; c++) {
        decoded da = decode_rows(a, in_a, &q, contracts[c], 0, 0), db = decode_rows(b, in_b, &q, contracts[c], 0, 0);
        assert_same_decoded(&da, &db);
        free_decoded(&da), free_decoded(&db);
    }
    free_queries(&q);
}

static void fault_37_append_1_then_2700_then_decode(void **state) {
    (void)state;
    static const int64_t pieces[][4] = {{1, 2700}, {2700, 1}, {1, 1, 2699}, {0, 1, 0, 2700}, {3, 2697, 1}, {2701, 0}};
    rng random = rng_of(test_seed(37));
    for (int p = 0; p < 6; p++) {
        rig_options options = {.shape = small_shape(), .kv_type = p % 2 ? QSA_F32 : QSA_I8_G64, .seed = 37};
        rig r = open_rig(&options), at_once = open_rig(&options);
        for (int i = 0; i < 4; i++) {
            append_cells(&r, r.sequence, pieces[p][i]);
        }
        append_cells(&at_once, at_once.sequence, 2701);
        queries q = new_queries(&random, &r.shape, 5);
        decoded d = decode(&r, &q, QSA_BLOCKS);
        check_decoded(&r, r.sequence, &q, QSA_BLOCKS, &d);
        free_decoded(&d);
        free_queries(&q);
        assert_same_state(&r, r.sequence, &at_once, at_once.sequence, &random);
        close_rig(&r), close_rig(&at_once);
    }
}

/* Any sizes in any order: steps of 0 to all that fits, truncations, decodes of any number of rows. Never an abort. */
static void fault_37_no_valid_size_aborts(void **state) {
    (void)state;
    enum { CAPACITY = 6144 };
    rng random = rng_of(test_seed(370));
    for (int round = 0; round < 6; round++) {
        rig_options options = {.shape = shape_of(2, 2, 64, 2, 16, 2 << round % 3, 512), .capacity = CAPACITY};
        options.threads = round + 1;
        rig r = open_rig(&options);
        for (int step = 0; step < 150; step++) {
            int64_t n = qsa_sequence_length(r.sequence, 0), kind = rng_range(&random, 0, 5);
            if (kind == 0) { /* whole blocks always work */
                MUST(qsa_truncate, r.sequence, rng_range(&random, 0, n) / r.shape.block * r.shape.block);
            } else {
                append_cells(&r, r.sequence, rng_range(&random, 0, kind == 1 ? CAPACITY - n : (CAPACITY - n) % 300));
            }
            n = qsa_sequence_length(r.sequence, 0);
            queries q = new_queries(&random, &r.shape, rng_range(&random, 0, n < 20 ? n : 20));
            decoded d = decode(&r, &q, contracts[step % 2]);
            if (step % 10 == 0) {
                check_decoded(&r, r.sequence, &q, contracts[step % 2], &d);
            }
            free_decoded(&d);
            free_queries(&q);
        }
        close_rig(&r);
    }
}

/* ------------------------------------------------------------------------------------------ 38 */

/* Steps of four rows at every offset of a block, up to n = 100,000: each row has its own list, its own tail, and sees
 * no block that a later row completed. */
static void four_row_steps(qsa_cpu cpu) {
    enum { LONGEST = 100000, STEPS = 100 };
    rng random = rng_of(test_seed(38));
    rig_options options = {.shape = small_shape(), .cpu = cpu, .capacity = LONGEST + 8, .threads = 2, .seed = 38};
    options.shape.budget = 1024;
    rig r = open_rig(&options);
    for (int step = 0; step < STEPS; step++) {
        int64_t n = qsa_sequence_length(r.sequence, 0), most = (int64_t)LONGEST * (step + 1) / STEPS - 4;
        int64_t start = rng_range(&random, n, most) / 4 * 4 + step % 4;
        grow(&r, r.sequence, start > n ? start : n + 1);
        append_cells(&r, r.sequence, 4);
        queries q = new_queries(&random, &r.shape, 4);
        qsa_contract contract = contracts[step / 4 % 2];
        decoded d = decode(&r, &q, contract);
        check_decoded(&r, r.sequence, &q, contract, &d);
        if (step % 5 == 0) { /* as if the later rows' cells had never been there */
            n = qsa_sequence_length(r.sequence, 0);
            for (int64_t t = 3; t >= 0; t--) {
                MUST(qsa_truncate, r.sequence, n - 3 + t);
                queries one = queries_at(&r, &q, t, 1);
                decoded solo = decode(&r, &one, contract);
                assert_memory_equal(solo.ids, d.ids + t * d.width, (size_t)solo.width * sizeof *solo.ids);
                assert_memory_equal(solo.out, d.out + t * d.out_width, (size_t)solo.out_width * sizeof *solo.out);
                free_decoded(&solo);
            }
        }
        free_decoded(&d);
        free_queries(&q);
    }
    close_rig(&r);
}

static void fault_38_four_row_steps_at_every_offset(void **state) {
    (void)state;
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        four_row_steps(cpu);
    }
}

/* ------------------------------------------------------------------------------------------ 40 */

static qsa_status try_append(const rig *r, qsa_sequence *sequence, int64_t cells, qsa_error *error) {
    int64_t kv = r->shape.kv_heads * r->shape.head_dim;
    QSA_INIT(qsa_append_args, args);
    float *k = calloc((size_t)(cells * kv), sizeof *k),
          *raw = calloc((size_t)(cells * r->shape.index_dim), sizeof *raw);
    args.cells = cells;
    args.k = args.v = k;
    args.raw_index = raw;
    qsa_status status = qsa_append(sequence, &args, error);
    free(k), free(raw);
    return status;
}

static void past_capacity(qsa_cpu cpu) {
    enum { CAPACITY = 5120, OTHER = 700 };
    rng random = rng_of(test_seed(40));
    for (int type = QSA_F32; type <= QSA_I8_G64; type++) {
        rig_options options = {.shape = small_shape(), .kv_type = (qsa_type)type, .cpu = cpu, .capacity = CAPACITY, .seed = 40};
        rig r = open_rig(&options);
        qsa_sequence *other;
        qsa_error error;
        MUST(qsa_sequence_create, r.cache, &other);
        grow(&r, other, OTHER);                   /* three pages of 256 */
        grow(&r, r.sequence, CAPACITY - 768 - 3); /* all others but three cells */
        static const int64_t too_many[] = {4, 5, 260, 100000};
        for (int i = 0; i < 4; i++) {
            QSA_INIT(qsa_cache_stats, before);
            QSA_INIT(qsa_cache_stats, after);
            MUST(qsa_cache_get_stats, r.cache, &before);
            queries q = new_queries(&random, &r.shape, 2);
            decoded want = decode(&r, &q, QSA_BLOCKS);
            assert_int_equal(try_append(&r, r.sequence, too_many[i], &error), QSA_E_CAPACITY);
            assert_true(error.status == QSA_E_CAPACITY && error.message[0]);
            assert_int_equal(try_append(&r, other, 69, &error), QSA_E_CAPACITY);
            MUST(qsa_cache_get_stats, r.cache, &after);
            assert_memory_equal(&before, &after, sizeof before);
            decoded got = decode(&r, &q, QSA_BLOCKS);
            assert_same_decoded(&got, &want);
            free_decoded(&want), free_decoded(&got);
            free_queries(&q);
        }
        append_cells(&r, r.sequence, 3); /* to the last cell */
        append_cells(&r, other, 68);
        assert_int_equal(try_append(&r, r.sequence, 1, &error), QSA_E_CAPACITY);
        assert_int_equal(try_append(&r, other, 1, &error), QSA_E_CAPACITY);
        qsa_sequence *const both[2] = {r.sequence, other};
        for (int i = 0; i < 2; i++) {
            queries q = new_queries(&random, &r.shape, 4);
            decoded d = decode_rows(&r, both[i], &q, QSA_BLOCKS, 0, 0);
            check_decoded(&r, both[i], &q, QSA_BLOCKS, &d);
            check_cells(&r, both[i], 0, qsa_sequence_length(both[i], 0));
            check_keys(&r, both[i], 0, qsa_sequence_length(both[i], 0) / 4);
            free_decoded(&d);
            free_queries(&q);
        }
        MUST(qsa_truncate, r.sequence, 4000); /* what is given back can be taken again */
        append_cells(&r, other, 256);
        grow(&r, r.sequence, CAPACITY - 1024);
        assert_int_equal(try_append(&r, r.sequence, 1, &error), QSA_E_CAPACITY);
        check_cells(&r, r.sequence, 0, CAPACITY - 1024);
        check_cells(&r, other, 0, 1024);
        qsa_sequence_destroy(other);
        close_rig(&r);
    }
}

static void fault_40_an_append_past_capacity_changes_nothing(void **state) {
    (void)state;
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        past_capacity(cpu);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_35_lengths_around_the_context_limit_and_a_million),
        cmocka_unit_test(fault_36_4096_rows_in_one_batch),
        cmocka_unit_test(fault_36_offsets_need_64_bits),
        cmocka_unit_test(fault_37_append_1_then_2700_then_decode),
        cmocka_unit_test(fault_37_no_valid_size_aborts),
        cmocka_unit_test(fault_38_four_row_steps_at_every_offset),
        cmocka_unit_test(fault_40_an_append_past_capacity_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
