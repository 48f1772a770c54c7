/* SPDX-License-Identifier: MIT */
/* Faults of other engines' numerics, by their rows in docs/faults.md. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "oracle/oracle.h"
#include "support/layer_model.h"
#include "support/rig.h"
#include "support/views.h"

static const qsa_type kv_types[4] = {QSA_F32, QSA_F16, QSA_BF16, QSA_I8_G64};

/* ------------------------------------------------------------------------------------------ 28 */

typedef struct packed_kv {
    qsa_kv view;
    void *memory[4]; /* k, v, and their scales */
} packed_kv;

/* k, v [cells][kv_heads][head_dim] in a format, packed. */
static packed_kv encode(const qsa_shape *s, qsa_type type, int64_t cells, const float *k, const float *v) {
    packed_kv kv = {.view = {.size = sizeof kv.view, .type = type, .cells = cells}};
    int64_t count = cells * s->kv_heads, groups = s->head_dim / 64;
    const float *x[2] = {k, v};
    for (int i = 0; i < 2; i++) {
        kv.memory[i] = malloc((size_t)(count * s->head_dim * element_bytes(type)));
        kv.memory[2 + i] = type == QSA_I8_G64 ? malloc((size_t)(count * groups) * 2) : NULL;
        MUST(qsa_kv_encode, type, count, groups, x[i], kv.memory[i], kv.memory[2 + i]);
    }
    kv.view.k = kv.memory[0];
    kv.view.v = kv.memory[1];
    kv.view.k_scale = kv.memory[2];
    kv.view.v_scale = kv.memory[3];
    return kv;
}

static void free_kv(packed_kv *kv) {
    for (int i = 0; i < 4; i++) {
        free(kv->memory[i]);
    }
}

/* Parts of `fold` chunks of 64 of one row; partials to be freed. */
static float *attend(qsa_context *context, const qsa_shape *s, const float *q, const int32_t *ids, int64_t n_ids,
                     const qsa_kv *kv, int64_t fold, int64_t *parts) {
    *parts = (n_ids + 64 * fold - 1) / (64 * fold);
    float *partials = malloc((size_t)(*parts * s->q_heads * (s->head_dim + 2) + 1) * sizeof *partials);
    QSA_INIT(qsa_attend_args, args);
    args.q = q;
    args.rows = 1;
    args.ids = ids;
    args.id_stride = n_ids;
    args.n_ids = &n_ids;
    args.kv = kv;
    args.fold = fold;
    args.partials = partials;
    args.parts = *parts;
    MUST(qsa_attend, context, s, &args);
    return partials;
}

static void merge(qsa_context *context, const qsa_shape *s, const float *partials, int64_t parts, float *out) {
    QSA_INIT(qsa_merge_args, args);
    args.partials = partials;
    args.parts = parts;
    args.rows = 1;
    args.out = out;
    MUST(qsa_merge, context, s, &args);
}

/* All logits near `logit`, all values 127/128, exact in every format: so is the output, if the weights sum to 1. */
static void fault_28_softmax_of_huge_logits_sums_to_one(void **state) {
    (void)state;
    static const float logits[] = {-1e5f, 1e5f, -1.5e6f, 1.5e6f, -3e4f, 0.0f};
    enum { CELLS = 1000, WIDTH = 64 };
    rng random = rng_of(test_seed(28));
    qsa_shape s = shape_of(3, 1, 64, 1, 16, 4, 64);
    float *k = malloc(CELLS * WIDTH * sizeof *k), *v = malloc(CELLS * WIDTH * sizeof *v), q[3 * WIDTH], out[3 * WIDTH];
    for (int i = 0; i < CELLS * WIDTH; i++) {
        v[i] = 127.0f / 128.0f;
    }
    for (int l = 0; l < 6; l++) {
        for (int i = 0; i < 3 * WIDTH; i++) {
            q[i] = 100.0f + rng_float(&random);
        }
        for (int i = 0; i < CELLS * WIDTH; i++) {
            k[i] = logits[l] * 8.0f / (100.0f * 64.0f) * (1.0f + 1e-4f * rng_float(&random));
        }
        for (int type = 0; type < 4; type++) {
            packed_kv kv = encode(&s, kv_types[type], CELLS, k, v);
            for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
                qsa_context *context = open_context(cpu, 2);
                for (int64_t fold = 1; fold <= 16; fold *= 4) {
                    int64_t parts;
                    float *partials = attend(context, &s, q, NULL, CELLS, &kv.view, fold, &parts);
                    merge(context, &s, partials, parts, out);
                    for (int i = 0; i < 3 * WIDTH; i++) {
                        if (!(fabs((double)out[i] * 128 / 127 - 1) <= att_bound(kv_types[type]))) {
                            fail_msg("logit %g, %s: weights sum to %.9g", (double)logits[l],
                                     qsa_type_name(kv_types[type]), (double)out[i] * 128 / 127);
                        }
                    }
                    free(partials);
                }
                qsa_close(context);
            }
            free_kv(&kv);
        }
    }
    free(k), free(v);
}

/* A chunk of holes anywhere is {0, -infinity, 0} and changes no bit; also inside a part of several chunks. */
static void fault_28_a_chunk_without_cells_is_ignored(void **state) {
    (void)state;
    enum { CELLS = 192, WIDTH = 128, HEADS = 2 };
    rng random = rng_of(test_seed(280));
    qsa_shape s = shape_of(HEADS, 1, WIDTH, 1, 16, 4, 64);
    float *k = rng_floats(&random, CELLS * WIDTH, 1.0f), *v = rng_floats(&random, CELLS * WIDTH, 1.0f);
    float *q = rng_floats(&random, HEADS * WIDTH, 1e4f); /* logits far from 0, so that a zero would be the maximum */
    for (int i = 0; i < CELLS * WIDTH; i++) {
        k[i] -= 20.0f;
    }
    for (int i = 0; i < HEADS * WIDTH; i++) {
        q[i] = fabsf(q[i]);
    }
    for (int type = 0; type < 4; type++) {
        packed_kv kv = encode(&s, kv_types[type], CELLS, k, v);
        for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
            qsa_context *context = open_context(cpu, 1);
            int32_t ids[CELLS], holed[CELLS + 64];
            float want[HEADS * WIDTH], got[HEADS * WIDTH];
            int64_t parts;
            for (int i = 0; i < CELLS; i++) {
                ids[i] = i;
            }
            float *partials = attend(context, &s, q, ids, CELLS, &kv.view, 1, &parts);
            merge(context, &s, partials, parts, want);
            free(partials);
            for (int at = 0; at <= 3; at++) { /* before the first chunk, between, behind the last */
                for (int i = 0; i < CELLS + 64; i++) {
                    holed[i] = i < at * 64 ? i : i < at * 64 + 64 ? -1 : i - 64;
                }
                partials = attend(context, &s, q, holed, CELLS + 64, &kv.view, 1, &parts);
                merge(context, &s, partials, parts, got);
                assert_memory_equal(got, want, sizeof got);
                for (int h = 0; h < HEADS; h++) {
                    const float *part = partials + (at * HEADS + h) * (WIDTH + 2);
                    for (int i = 0; i < WIDTH; i++) {
                        assert_true(part[i] == 0.0f);
                    }
                    assert_true(isinf(part[WIDTH]) && part[WIDTH] < 0 && part[WIDTH + 1] == 0.0f);
                }
                free(partials);
            }
            float folded[2][HEADS * (WIDTH + 2)]; /* all in one part: with the holes between, and without */
            for (int i = 0; i < CELLS + 64; i++) {
                holed[i] = i < 64 ? i : i < 128 ? -1 : i - 64;
            }
            for (int with = 0; with < 2; with++) {
                partials = attend(context, &s, q, with ? holed : ids, with ? CELLS + 64 : CELLS, &kv.view, 4, &parts);
                assert_int_equal(parts, 1);
                memcpy(folded[with], partials, sizeof folded[with]);
                free(partials);
            }
            assert_memory_equal(folded[0], folded[1], sizeof folded[0]);
            for (int i = 0; i < CELLS; i++) {
                holed[i] = -1;
            }
            partials = attend(context, &s, q, holed, CELLS, &kv.view, 1, &parts); /* nothing but holes: zeros */
            merge(context, &s, partials, parts, got);
            for (int i = 0; i < HEADS * WIDTH; i++) {
                assert_true(got[i] == 0.0f);
            }
            free(partials);
            qsa_close(context);
        }
        free_kv(&kv);
    }
    free(k), free(v), free(q);
}

/* ------------------------------------------------------------------------------------------ 29 */

static void fault_29_more_threads_than_cells(void **state) {
    (void)state;
    static const int64_t threads[] = {1, 2, 3, 8, 16, 33};
    rng random = rng_of(test_seed(29));
    qsa_shape shapes[2] = {small_shape(), model_shape()};
    for (int shape = 0; shape < 2; shape++) {
        queries q = new_queries(&random, &shapes[shape], 1);
        decoded first[10] = {{0}};
        for (int t = 0; t < 6; t++) {
            rig_options options = {.shape = shapes[shape], .threads = threads[t], .seed = 29};
            rig r = open_rig(&options);
            for (int64_t n = 1; n < 10; n++) {
                grow(&r, r.sequence, n);
                decoded d = decode(&r, &q, QSA_BLOCKS);
                if (t == 0) {
                    check_decoded(&r, r.sequence, &q, QSA_BLOCKS, &d);
                    first[n] = d;
                } else {
                    assert_same_decoded(&d, &first[n]);
                    free_decoded(&d);
                }
            }
            close_rig(&r);
        }
        for (int n = 1; n < 10; n++) {
            free_decoded(&first[n]);
        }
        free_queries(&q);
    }
}

/* ------------------------------------------------------------------------------------------ 30, 42 */

/* Up to three looks, since another program may disturb one. */
static int holds_in_one_of_three(const rig *small, const rig *large, const queries *q, const int32_t *ids,
                                 int64_t n_ids, const int stages[4], double most) {
    for (int look = 0; look < 3; look++) {
        int64_t a[4], b[4], sum_a = 0, sum_b = 0;
        stage_medians(small, q, QSA_BLOCKS, ids, n_ids, 31, a);
        stage_medians(large, q, QSA_BLOCKS, ids, n_ids, 31, b);
        for (int s = 0; s < 4; s++) {
            sum_a += stages[s] ? a[s] : 0;
            sum_b += stages[s] ? b[s] : 0;
        }
        printf("%lld ns against %lld ns\n", (long long)sum_a, (long long)sum_b);
        if ((double)sum_a < most * (double)sum_b) {
            return 1;
        }
    }
    return 0;
}

static void short_rows_cost_less(qsa_cpu cpu) {
    static const int attention[4] = {0, 0, 1, 0};
    rng random = rng_of(test_seed(30));
    for (int type = 0; type < 4; type += 3) {
        rig_options options = {.shape = model_shape(), .kv_type = kv_types[type], .cpu = cpu};
        rig shorter = open_rig(&options), longer = open_rig(&options);
        queries q = new_queries(&random, &options.shape, 1);
        grow(&shorter, shorter.sequence, 300);
        grow(&longer, longer.sequence, 2051);
        assert_true(holds_in_one_of_three(&shorter, &longer, &q, NULL, 0, attention, 0.25));
        free_queries(&q);
        close_rig(&shorter), close_rig(&longer);
    }
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Nanoseconds of appending one cell, the median of 101. */
static int64_t append_time(const rig *r) {
    int64_t times[101];
    for (int i = 0; i < 101; i++) {
        int64_t start = now_ns();
        append_cells(r, r->sequence, 1);
        int64_t took = now_ns() - start, at = i;
        for (; at > 0 && times[at - 1] > took; at--) {
            times[at] = times[at - 1];
        }
        times[at] = took;
    }
    return times[50];
}

static void fault_30_short_rows_cost_less(void **state) {
    (void)state;
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        short_rows_cost_less(cpu);
    }
}

/* n grows 64-fold: attention, merge and append take the same time, selected cells lying further apart aside. */
static void nothing_but_the_index_grows_with_n(qsa_cpu cpu) {
    enum { SHORT = 4096, LONG = 262144, WIDTH = 2048 };
    static const int attention_and_merge[4] = {0, 0, 1, 1};
    rng random = rng_of(test_seed(42));
    rig_options options = {.shape = shape_of(8, 1, 128, 1, 16, 4, 2048), .capacity = LONG + 1000, .cpu = cpu};
    rig shorter = open_rig(&options), longer = open_rig(&options);
    queries q = new_queries(&random, &options.shape, 1);
    grow(&shorter, shorter.sequence, SHORT);
    grow(&longer, longer.sequence, LONG);
    int32_t ids[WIDTH];
    for (int i = 0; i < WIDTH; i++) {
        ids[i] = 2 * i;
    }
    assert_true(holds_in_one_of_three(&longer, &shorter, &q, ids, WIDTH, attention_and_merge, 1.5));
    assert_true(holds_in_one_of_three(&longer, &shorter, &q, NULL, 0, attention_and_merge, 4.0));
    int quick = 0;
    for (int look = 0; look < 3 && !quick; look++) {
        int64_t a = append_time(&shorter), b = append_time(&longer);
        printf("append: %lld ns at 4,096 cells, %lld ns at 262,144\n", (long long)a, (long long)b);
        quick = b < 4 * a;
    }
    assert_true(quick);
    free_queries(&q);
    close_rig(&shorter), close_rig(&longer);
}

static void fault_42_nothing_but_the_index_grows_with_n(void **state) {
    (void)state;
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        nothing_but_the_index_grows_with_n(cpu);
    }
}

/* ------------------------------------------------------------------------------------------ 32 */

static void fault_32_wrong_pairs_of_types_are_refused_at_create(void **state) {
    (void)state;
    rig_options options = {.shape = small_shape()};
    rig r = open_rig(&options);
    QSA_INIT(qsa_cache_options, o);
    o.shape = r.shape;
    o.layers = 1;
    o.capacity = 4096;
    o.index_norm = r.norm;
    o.rope.size = sizeof o.rope;
    o.rope.dims = 16;
    for (int kv = -1; kv <= 9; kv++) {
        for (int key = -1; key <= 9; key++) {
            qsa_cache *cache = NULL;
            qsa_error error;
            int good_kv = kv == 0 || (kv >= QSA_F32 && kv <= QSA_I8_G64);
            int good_key = key == 0 || key == QSA_F32 || key == QSA_BF16;
            o.kv_type = (qsa_type)kv;
            o.key_type = (qsa_type)key;
            qsa_status status = qsa_cache_create(r.context, &o, &cache, &error);
            if (good_kv && good_key) {
                assert_int_equal(status, QSA_OK);
                qsa_cache_destroy(cache);
                continue;
            }
            assert_int_equal(status, QSA_E_SHAPE);
            assert_null(cache);
            assert_non_null(strstr(error.message, good_kv ? "key_type" : "kv_type"));
        }
    }
    close_rig(&r);
}

static void fault_32_decode_after_45000_quantised_appends(void **state) {
    (void)state;
    enum { LENGTH = 45000 };
    rng random = rng_of(test_seed(32));
    rig_options options = {.shape = small_shape(), .capacity = LENGTH, .seed = 32};
    rig r = open_rig(&options);
    for (int i = 0; i < LENGTH; i++) {
        append_cells(&r, r.sequence, 1);
    }
    queries q = new_queries(&random, &r.shape, 8);
    decoded d = decode(&r, &q, QSA_BLOCKS);
    check_decoded(&r, r.sequence, &q, QSA_BLOCKS, &d);
    check_cells(&r, r.sequence, 0, LENGTH);
    check_keys(&r, r.sequence, 0, LENGTH / 4);
    free_decoded(&d);
    free_queries(&q);
    close_rig(&r);
}

/* ------------------------------------------------------------------------------------------ 33 */

/* One query alone, in a batch of 4 and of 16, among other sequences and among its own copies: the same bits. */
static void fault_33_a_query_in_any_batch(void **state) {
    (void)state;
    enum { SEQUENCES = 16 };
    rng random = rng_of(test_seed(33));
    for (int type = 0; type < 4; type++) {
        for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
            rig_options options = {.shape = shape_of(4, 2, 64, 2, 32, 4, 512), .kv_type = kv_types[type], .cpu = cpu};
            options.capacity = 65536;
            options.threads = 3;
            rig r = open_rig(&options);
            qsa_sequence *sequences[SEQUENCES], *copies[SEQUENCES];
            queries q = new_queries(&random, &r.shape, SEQUENCES), same = new_queries(&random, &r.shape, SEQUENCES);
            for (int i = 0; i < SEQUENCES; i++) {
                MUST(qsa_sequence_create, r.cache, &sequences[i]);
                grow(&r, sequences[i], rng_range(&random, 1, 3000));
                copies[i] = sequences[0];
                if (i > 0) {
                    int64_t width = r.shape.q_heads * r.shape.head_dim, iq = r.shape.index_heads * r.shape.index_dim;
                    memcpy(same.q + i * width, same.q, (size_t)width * sizeof(float));
                    memcpy(same.gate + i * width, same.gate, (size_t)width * sizeof(float));
                    memcpy(same.iq + i * iq, same.iq, (size_t)iq * sizeof(float));
                }
            }
            for (int64_t batch = 4; batch <= SEQUENCES; batch += 12) {
                for (int copied = 0; copied < 2; copied++) {
                    queries part = queries_at(&r, copied ? &same : &q, 0, batch);
                    decoded all = decode_batch(&r, copied ? copies : sequences, &part, QSA_BLOCKS);
                    for (int64_t i = 0; i < batch; i++) {
                        queries one = queries_at(&r, &part, i, 1);
                        decoded solo = decode_batch(&r, (copied ? copies : sequences) + i, &one, QSA_BLOCKS);
                        assert_memory_equal(solo.ids, all.ids + i * all.width, (size_t)solo.width * sizeof *solo.ids);
                        assert_memory_equal(solo.out, all.out + i * all.out_width,
                                            (size_t)solo.out_width * sizeof *solo.out);
                        free_decoded(&solo);
                    }
                    free_decoded(&all);
                }
            }
            for (int i = 0; i < SEQUENCES; i++) {
                qsa_sequence_destroy(sequences[i]);
            }
            free_queries(&q), free_queries(&same);
            close_rig(&r);
        }
    }
}

static void fault_33_every_length_around_a_chunk(void **state) {
    (void)state;
    static const int64_t ranges[3][2] = {{1, 130}, {2048 - 34, 2048 + 34}, {4096 - 34, 4096 + 34}};
    rng random = rng_of(test_seed(330));
    for (int type = 0; type < 4; type++) {
        rig_options options = {.shape = small_shape(), .kv_type = kv_types[type], .capacity = 4352, .threads = 2};
        options.seed = 33;
        rig r = open_rig(&options);
        for (int range = 0; range < 3; range++) {
            for (int64_t n = ranges[range][0]; n <= ranges[range][1]; n++) {
                grow(&r, r.sequence, n);
                queries q = new_queries(&random, &r.shape, 1);
                decoded d = decode_rows(&r, r.sequence, &q, n % 2 ? QSA_BLOCKS : QSA_CELLS, n % 3 ? 64 : 32, n % 4);
                check_decoded(&r, r.sequence, &q, n % 2 ? QSA_BLOCKS : QSA_CELLS, &d);
                free_decoded(&d);
                free_queries(&q);
            }
        }
        close_rig(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_28_softmax_of_huge_logits_sums_to_one),
        cmocka_unit_test(fault_28_a_chunk_without_cells_is_ignored),
        cmocka_unit_test(fault_29_more_threads_than_cells),
        cmocka_unit_test(fault_30_short_rows_cost_less),
        cmocka_unit_test(fault_32_wrong_pairs_of_types_are_refused_at_create),
        cmocka_unit_test(fault_32_decode_after_45000_quantised_appends),
        cmocka_unit_test(fault_33_a_query_in_any_batch),
        cmocka_unit_test(fault_33_every_length_around_a_chunk),
        cmocka_unit_test(fault_42_nothing_but_the_index_grows_with_n),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
