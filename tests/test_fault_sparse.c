/* SPDX-License-Identifier: MIT */
/* Faults of other engines' sparse decode, by their rows in docs/faults.md: whole steps through a cache. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/layer_model.h"
#include "support/rig.h"

static const qsa_type kv_types[4] = {QSA_F32, QSA_F16, QSA_BF16, QSA_I8_G64};
static const qsa_contract contracts[2] = {QSA_BLOCKS, QSA_CELLS};

/* ------------------------------------------------------------------------------------------ 1 */

/* Both contracts give the dense row's bits while all cells fit into them. */
static void compare_with_dense(const rig_options *options, const int64_t *lengths, int count, uint64_t seed) {
    rng random = rng_of(seed);
    rig r = open_rig(options);
    for (int i = 0; i < count; i++) {
        grow(&r, r.sequence, lengths[i]);
        queries q = new_queries(&random, &r.shape, 1);
        decoded dense = decode(&r, &q, QSA_DENSE);
        assert_int_equal(dense.width, lengths[i]);
        for (int c = 0; c < 2; c++) {
            decoded sparse = decode(&r, &q, contracts[c]);
            assert_same_decoded(&sparse, &dense);
            free_decoded(&sparse);
        }
        free_decoded(&dense);
        free_queries(&q);
    }
    close_rig(&r);
}

static void fault_01_short_rows_equal_dense_rows(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 3, 4, 5, 100, 464, 1700, 2047, 2048, 2049, 2050, 2051}, threads[] = {1, 2, 8};
    uint64_t seed = test_seed(1);
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        for (int t = 0; t < 3; t++) {
            for (int type = 0; type < 4; type++) {
                rig_options options = {.shape = small_shape(), .kv_type = kv_types[type], .cpu = cpu, .seed = seed};
                options.threads = threads[t];
                compare_with_dense(&options, lengths, 12, seed);
            }
        }
    }
    for (int t = 0; t < 3; t++) { /* the model's own shape */
        rig_options options = {.shape = model_shape(), .threads = threads[t], .seed = seed};
        compare_with_dense(&options, lengths, 12, seed);
    }
    for (int64_t block = 2; block <= 8; block *= 2) { /* other budgets have other ends, and no cap of 2,051 */
        static const int64_t budgets[] = {1, 3, 20, 300};
        for (int b = 0; b < 4; b++) {
            rig_options options = {.shape = shape_of(4, 2, 64, 2, 32, block, budgets[b] * block), .seed = seed};
            int64_t end = options.shape.budget, ends[12] = {1, block};
            int count = end > block ? 2 : 1;
            for (int64_t n = end > block ? end - 1 : end; n < end + block; n++) {
                if (n > ends[count - 1]) {
                    ends[count++] = n;
                }
            }
            compare_with_dense(&options, ends, count, seed);
        }
    }
}

/* ------------------------------------------------------------------------------------------ 3, 5 */

/* One step again and again, for any number of threads on any level: the same ids, ascending, and the same bits. */
static void fault_03_05_ids_ascend_and_bits_repeat(void **state) {
    (void)state;
    static const int64_t threads[] = {1, 2, 3, 4, 8};
    enum { LENGTH = 131072, ROWS = 2 };
    rng random = rng_of(test_seed(5));
    rig_options options = {.shape = small_shape(), .capacity = LENGTH, .seed = 5};
    queries q = new_queries(&random, &options.shape, ROWS);
    decoded first = {0};
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        for (int t = 0; t < 5; t++) {
            options.cpu = cpu;
            options.threads = threads[t];
            rig r = open_rig(&options);
            grow(&r, r.sequence, LENGTH - 1);
            for (int run = 0; run < (cpu == QSA_CPU_C ? 5 : 20); run++) {
                decoded d = decode(&r, &q, QSA_BLOCKS);
                if (!first.rows) {
                    check_decoded(&r, r.sequence, &q, QSA_BLOCKS, &d);
                    first = d;
                    continue;
                }
                assert_same_decoded(&d, &first);
                free_decoded(&d);
            }
            close_rig(&r);
        }
    }
    for (int64_t row = 0; row < ROWS; row++) {
        for (int64_t i = 1; i < 2050; i++) {
            assert_true(first.ids[row * first.width + i] > first.ids[row * first.width + i - 1]);
        }
    }
    free_decoded(&first);
    free_queries(&q);
}

/* ------------------------------------------------------------------------------------------ 8 */

/* Appends cells of the source; where poisoned, K and V, or the raw index keys, of cell `bad` are NaN. */
static void append_poisoned(const rig *r, int64_t length, int64_t bad, int kv, int raw) {
    int64_t width = r->shape.kv_heads * r->shape.head_dim, dim = r->shape.index_dim;
    grow(r, r->sequence, bad);
    float *k = malloc((size_t)width * sizeof *k), *v = malloc((size_t)width * sizeof *v);
    float *index = malloc((size_t)dim * sizeof *index);
    source_cells(r, bad, 1, k, v, index);
    for (int64_t i = 0; i < width && kv; i++) {
        k[i] = v[i] = NAN;
    }
    for (int64_t i = 0; i < dim && raw; i++) {
        index[i] = NAN;
    }
    QSA_INIT(qsa_append_args, args);
    args.cells = 1;
    args.k = k;
    args.v = v;
    args.raw_index = index;
    MUST(qsa_append, r->sequence, &args);
    free(k), free(v), free(index);
    grow(r, r->sequence, length);
}

/* A NaN block of 40,000, and NaN in K and V of the cells that it keeps out: no trace of it in the output. */
static void fault_08_nan_cells_that_are_not_selected(void **state) {
    (void)state;
    enum { LENGTH = 160000, BAD = 5 * 4 + 2 };
    rng random = rng_of(test_seed(8));
    for (int type = 0; type < 4; type++) {
        for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
            if (kv_types[type] != QSA_I8_G64 && next_cpu(cpu)) {
                continue; /* every level in the default format, the highest in the others */
            }
            rig_options options = {.shape = small_shape(), .kv_type = kv_types[type], .capacity = LENGTH + 1};
            options.cpu = cpu;
            queries q = new_queries(&random, &options.shape, 1), other = new_queries(&random, &options.shape, 1);
            rig dirty = open_rig(&options), clean = open_rig(&options);
            append_poisoned(&dirty, LENGTH, BAD, 1, 1);
            grow(&clean, clean.sequence, LENGTH);
            decoded d = decode(&dirty, &q, QSA_BLOCKS);
            assert_int_equal(d.width, 2048);
            for (int64_t i = 0; i < d.width; i++) {
                assert_true(d.ids[i] >= 0 && d.ids[i] / 4 != 5);
            }
            for (int64_t i = 0; i < d.out_width; i++) {
                assert_true(isfinite(d.out[i]));
            }
            assert_true(att_error(&dirty, dirty.sequence, &q, 0, d.ids, d.width, d.out) <= att_bound(kv_types[type]));
            free_decoded(&d);

            /* The next clean call in the same context equals a fresh context's. */
            MUST(qsa_truncate, dirty.sequence, BAD / 4 * 4);
            grow(&dirty, dirty.sequence, LENGTH);
            d = decode(&dirty, &other, QSA_BLOCKS);
            decoded want = decode(&clean, &other, QSA_BLOCKS);
            assert_same_decoded(&d, &want);
            free_decoded(&d), free_decoded(&want);
            close_rig(&dirty), close_rig(&clean);
            free_queries(&q), free_queries(&other);
        }
    }
}

/* ------------------------------------------------------------------------------------------ 10 */

static void fault_10_ids_do_not_depend_on_the_kv_format(void **state) {
    (void)state;
    static const qsa_type key_types[2] = {QSA_F32, QSA_BF16};
    enum { LENGTH = 30001, ROWS = 4 };
    rng random = rng_of(test_seed(10));
    for (int key = 0; key < 2; key++) {
        decoded first = {0};
        rig_options options = {.shape = shape_of(4, 2, 64, 4, 64, 4, 1024), .capacity = LENGTH};
        options.key_type = key_types[key];
        queries q = new_queries(&random, &options.shape, ROWS);
        for (int type = 0; type < 4; type++) {
            options.kv_type = kv_types[type];
            rig r = open_rig(&options);
            grow(&r, r.sequence, LENGTH);
            QSA_INIT(qsa_keys, keys);
            MUST(qsa_sequence_keys, r.sequence, 0, &keys);
            assert_int_equal(keys.type, key_types[key]);
            check_keys(&r, r.sequence, 0, 200);
            decoded d = decode(&r, &q, QSA_BLOCKS);
            check_decoded(&r, r.sequence, &q, QSA_BLOCKS, &d);
            if (type == 0) {
                first = d;
            } else {
                assert_memory_equal(d.ids, first.ids, (size_t)(d.rows * d.width) * sizeof *d.ids);
                free_decoded(&d);
            }
            close_rig(&r);
        }
        free_decoded(&first);
        free_queries(&q);
    }
}

/* ------------------------------------------------------------------------------------------ 11, 13 */

/* SEL and ATT under both contracts for a shape at length n, with every K/V format. */
static void check_shape(qsa_shape shape, int64_t n, rng *random) {
    for (int type = 0; type < 4; type++) {
        rig_options options = {.shape = shape, .kv_type = kv_types[type], .capacity = n, .threads = 2};
        rig r = open_rig(&options);
        queries q = new_queries(random, &shape, 2);
        grow(&r, r.sequence, n);
        for (int c = 0; c < 2; c++) {
            decoded d = decode(&r, &q, contracts[c]);
            check_decoded(&r, r.sequence, &q, contracts[c], &d);
            free_decoded(&d);
        }
        free_queries(&q);
        close_rig(&r);
    }
}

static void fault_11_budgets_have_no_hidden_maximum(void **state) {
    (void)state;
    static const int64_t blocks[] = {1, 2, 511, 512, 513, 1024, 2048, 5000, 50000};
    rng random = rng_of(test_seed(11));
    for (int b = 0; b < 9; b++) {
        qsa_shape shape = small_shape();
        shape.budget = blocks[b] * 4;
        check_shape(shape, shape.budget < 30000 ? 30001 : shape.budget + 10002, &random);
    }
    /* As large as an int64 product must not wrap, and refused at create what is no budget. */
    static const int64_t bad[] = {0, -4, 1, 3, 6, 2047, (INT64_C(1) << 30) + 4, INT64_MIN, INT64_MAX};
    rig_options options = {.shape = small_shape()};
    options.shape.budget = INT64_C(1) << 30;
    rig r = open_rig(&options);
    queries q = new_queries(&random, &r.shape, 1);
    grow(&r, r.sequence, 4003);
    decoded d = decode(&r, &q, QSA_BLOCKS), dense = decode(&r, &q, QSA_DENSE);
    assert_same_decoded(&d, &dense);
    free_decoded(&d), free_decoded(&dense);
    for (int i = 0; i < 9; i++) {
        QSA_INIT(qsa_cache_options, cache_options);
        qsa_cache *cache = NULL;
        qsa_error error;
        cache_options.shape = r.shape;
        cache_options.shape.budget = bad[i];
        cache_options.layers = 1;
        cache_options.capacity = 4096;
        cache_options.index_norm = r.norm;
        assert_int_equal(qsa_cache_create(r.context, &cache_options, &cache, &error), QSA_E_SHAPE);
        assert_non_null(strstr(error.message, "budget"));
        assert_null(cache);
    }
    free_queries(&q);
    close_rig(&r);
}

static void fault_13_block_and_budget_are_run_time_parameters(void **state) {
    (void)state;
    rng random = rng_of(test_seed(13));
    for (int64_t block = 2; block <= 8; block *= 2) {
        qsa_shape shape = small_shape();
        shape.block = block;
        shape.budget = 2048 * block;
        check_shape(shape, 50001, &random);
    }
    /* Two caches of different geometry in one process do not disturb each other. */
    rig_options a = {.shape = shape_of(2, 1, 64, 1, 16, 2, 64), .seed = 1};
    rig_options b = {.shape = shape_of(6, 3, 128, 3, 48, 8, 512), .seed = 2};
    rig ra = open_rig(&a), rb = open_rig(&b);
    for (int64_t n = 500; n <= 4000; n += 500) {
        queries qa = new_queries(&random, &ra.shape, 3), qb = new_queries(&random, &rb.shape, 3);
        grow(&ra, ra.sequence, n + 1);
        grow(&rb, rb.sequence, n + 3);
        decoded da = decode(&ra, &qa, QSA_BLOCKS), db = decode(&rb, &qb, QSA_CELLS);
        check_decoded(&ra, ra.sequence, &qa, QSA_BLOCKS, &da);
        check_decoded(&rb, rb.sequence, &qb, QSA_CELLS, &db);
        free_decoded(&da), free_decoded(&db);
        free_queries(&qa), free_queries(&qb);
    }
    close_rig(&ra), close_rig(&rb);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_01_short_rows_equal_dense_rows),
        cmocka_unit_test(fault_03_05_ids_ascend_and_bits_repeat),
        cmocka_unit_test(fault_08_nan_cells_that_are_not_selected),
        cmocka_unit_test(fault_10_ids_do_not_depend_on_the_kv_format),
        cmocka_unit_test(fault_11_budgets_have_no_hidden_maximum),
        cmocka_unit_test(fault_13_block_and_budget_are_run_time_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
