/* SPDX-License-Identifier: MIT */
/* Properties of whole steps on random shapes, formats, chunks, pages and histories. Every seed is printed. */
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
#include "support/random_shape.h"
#include "support/rig.h"
#include "support/views.h"

static const qsa_contract contracts[3] = {QSA_BLOCKS, QSA_CELLS, QSA_DENSE};

/* A shape, formats and a page size; capacity for one sequence of `cells` and some more. */
static rig_options random_options(rng *r, int64_t cells) {
    rig_options o = {.shape = random_shape(r, 2048)};
    o.kv_type = (qsa_type)rng_range(r, QSA_F32, QSA_I8_G64);
    o.key_type = rng_range(r, 0, 1) ? QSA_F32 : QSA_BF16;
    o.page_cells = (16 * o.shape.block) << rng_range(r, 0, 3);
    o.capacity = cells + 4 * o.page_cells;
    o.threads = rng_range(r, 1, 4);
    o.seed = rng_next(r);
    return o;
}

/* A length around which selection does something: up to a few budgets, at most 3,000. */
static int64_t random_length(rng *r, const qsa_shape *s) {
    int64_t most = 3 * s->budget + 64;
    return rng_range(r, 1, most < 3000 ? most : 3000);
}

static void describe(int round, const rig_options *o, int64_t n) {
    char text[160];
    printf("  %d: %s, %s, keys %s, page %d, n %d\n", round, shape_text(&o->shape, text), qsa_type_name(o->kv_type),
           qsa_type_name(o->key_type), (int)o->page_cells, (int)n);
}

/* ------------------------------------------------------------------------------------------ float64 */

static void steps_agree_with_float64(void **state) {
    (void)state;
    rng random = rng_of(test_seed(101));
    for (int round = 0; round < 60; round++) {
        rig_options options = random_options(&random, 3000);
        int64_t n = random_length(&random, &options.shape);
        rig r = open_rig(&options);
        describe(round, &options, n);
        grow(&r, r.sequence, n);
        check_keys(&r, r.sequence, 0, n / r.shape.block);
        check_cells(&r, r.sequence, n / 2, n - n / 2);
        queries q = new_queries(&random, &r.shape, rng_range(&random, 1, n < 4 ? n : 4));
        if (round % 3 == 0) {
            free(q.gate);
            q.gate = NULL;
        }
        qsa_contract contract = contracts[round % 2];
        decoded d = decode_rows(&r, r.sequence, &q, contract, rng_range(&random, 0, 2) * 32, rng_range(&random, 0, 3));
        check_decoded(&r, r.sequence, &q, contract, &d);
        free_decoded(&d);
        free_queries(&q);
        close_rig(&r);
    }
}

/* ------------------------------------------------------------------------------------------ stages */

/* score, select, attend and merge on the cache's views, as qsa_decode() has to do them. */
static decoded decode_by_stages(const rig *r, const queries *q, qsa_contract contract, int64_t chunk, int64_t fold) {
    const qsa_shape *s = &r->shape;
    int64_t length = qsa_sequence_length(r->sequence, 0), n[4], n_ids[4], stride = 0;
    decoded d = {.rows = q->rows, .out_width = s->q_heads * s->head_dim};
    for (int64_t t = 0; t < q->rows; t++) {
        n[t] = n_ids[t] = length - q->rows + t + 1;
        int64_t width = qsa_width(s, contract, n[t]);
        d.width = width > d.width ? width : d.width;
    }
    d.ids = malloc((size_t)(d.rows * d.width) * sizeof *d.ids);
    d.out = malloc((size_t)(d.rows * d.out_width) * sizeof *d.out);
    QSA_INIT(qsa_kv, kv);
    MUST(qsa_sequence_kv, r->sequence, 0, &kv);
    if (contract == QSA_DENSE) {
        for (int64_t t = 0; t < d.rows; t++) {
            for (int64_t i = 0; i < d.width; i++) {
                d.ids[t * d.width + i] = i < n[t] ? (int32_t)i : -1;
            }
        }
    } else {
        QSA_INIT(qsa_select_args, select);
        float *scores = row_scores(r, r->sequence, q, &stride);
        select.contract = contract;
        select.scores = scores;
        select.score_stride = stride;
        select.rows = d.rows;
        select.n = n;
        select.ids = d.ids;
        select.id_stride = d.width;
        select.n_ids = n_ids;
        MUST(qsa_select, r->context, s, &select);
        free(scores);
    }
    QSA_INIT(qsa_attend_args, attend);
    attend.q = q->q;
    attend.rows = d.rows;
    attend.ids = contract == QSA_DENSE ? NULL : d.ids;
    attend.id_stride = d.width;
    attend.n_ids = n_ids;
    attend.kv = &kv;
    attend.chunk = chunk;
    attend.fold = fold;
    attend.parts = (d.width + chunk * fold - 1) / (chunk * fold);
    attend.partials = malloc((size_t)(d.rows * attend.parts * s->q_heads * (s->head_dim + 2)) * sizeof(float));
    MUST(qsa_attend, r->context, s, &attend);
    QSA_INIT(qsa_merge_args, merge);
    merge.partials = attend.partials;
    merge.parts = attend.parts;
    merge.rows = d.rows;
    merge.gate = q->gate;
    merge.out = d.out;
    MUST(qsa_merge, r->context, s, &merge);
    free(attend.partials);
    return d;
}

static void stages_give_the_bits_of_decode(void **state) {
    (void)state;
    rng random = rng_of(test_seed(102));
    for (int round = 0; round < 60; round++) {
        rig_options options = random_options(&random, 3000);
        int64_t n = random_length(&random, &options.shape), chunk = 32 << rng_range(&random, 0, 1);
        int64_t fold = rng_range(&random, 1, 3);
        rig r = open_rig(&options);
        describe(round, &options, n);
        grow(&r, r.sequence, n);
        queries q = new_queries(&random, &r.shape, rng_range(&random, 1, n < 4 ? n : 4));
        qsa_contract contract = contracts[round % 3];
        decoded whole = decode_rows(&r, r.sequence, &q, contract, chunk, fold);
        decoded staged = decode_by_stages(&r, &q, contract, chunk, fold);
        assert_same_decoded(&whole, &staged);
        free_decoded(&whole), free_decoded(&staged);
        free_queries(&q);
        close_rig(&r);
    }
}

/* ------------------------------------------------------------------------------------------ histories */

static void assert_same_cache(const rig *a, qsa_sequence *in_a, const rig *b, qsa_sequence *in_b) {
    cell_reader ra = {.kv = {.size = sizeof ra.kv}, .shape = a->shape};
    cell_reader rb = {.kv = {.size = sizeof rb.kv}, .shape = b->shape};
    QSA_INIT(qsa_keys, ka);
    QSA_INIT(qsa_keys, kb);
    MUST(qsa_sequence_kv, in_a, 0, &ra.kv);
    MUST(qsa_sequence_kv, in_b, 0, &rb.kv);
    MUST(qsa_sequence_keys, in_a, 0, &ka);
    MUST(qsa_sequence_keys, in_b, 0, &kb);
    assert_int_equal(ra.kv.cells, rb.kv.cells);
    assert_int_equal(ka.blocks, kb.blocks);
    double x[2][512], y[2][512];
    size_t bytes = (size_t)a->shape.head_dim * sizeof(double);
    for (int64_t c = 0; c < ra.kv.cells; c++) {
        for (int64_t g = 0; g < a->shape.kv_heads; g++) {
            read_cell(&ra, c, g, x[0], x[1]);
            read_cell(&rb, c, g, y[0], y[1]);
            assert_memory_equal(x[0], y[0], bytes);
            assert_memory_equal(x[1], y[1], bytes);
        }
    }
    for (int64_t i = 0; i < ka.blocks; i++) {
        read_key(&ka, a->shape.index_dim, i, x[0]);
        read_key(&kb, a->shape.index_dim, i, y[0]);
        assert_memory_equal(x[0], y[0], (size_t)a->shape.index_dim * sizeof(double));
    }
}

static void assert_same_step(const rig *a, qsa_sequence *in_a, const rig *b, qsa_sequence *in_b, rng *random) {
    int64_t n = qsa_sequence_length(in_a, 0);
    queries q = new_queries(random, &a->shape, n < 3 ? n : 3);
    qsa_contract contract = contracts[rng_range(random, 0, 1)];
    decoded da = decode_rows(a, in_a, &q, contract, 0, 0), db = decode_rows(b, in_b, &q, contract, 0, 0);
    assert_same_decoded(&da, &db);
    free_decoded(&da), free_decoded(&db);
    free_queries(&q);
}

static void appending_in_pieces_changes_no_bit(void **state) {
    (void)state;
    rng random = rng_of(test_seed(103));
    for (int round = 0; round < 30; round++) {
        rig_options options = random_options(&random, 3000);
        int64_t n = random_length(&random, &options.shape), most = rng_range(&random, 1, 300);
        rig pieces = open_rig(&options);
        options.threads = options.threads % 4 + 1;
        options.page_cells = 16 * options.shape.block;
        rig at_once = open_rig(&options);
        describe(round, &options, n);
        append_cells(&at_once, at_once.sequence, n);
        for (int64_t at = 0; at < n; at = qsa_sequence_length(pieces.sequence, 0)) {
            int64_t cells = rng_range(&random, 0, most);
            append_cells(&pieces, pieces.sequence, cells < n - at ? cells : n - at);
        }
        assert_same_cache(&pieces, pieces.sequence, &at_once, at_once.sequence);
        assert_same_step(&pieces, pieces.sequence, &at_once, at_once.sequence, &random);
        close_rig(&pieces), close_rig(&at_once);
    }
}

/* longest[c]: the longest the layer has been since cell c was written. */
static void note_append(int64_t *longest, int64_t from, int64_t to) {
    for (int64_t c = 0; c < to; c++) {
        longest[c] = c >= from || longest[c] < to ? to : longest[c];
    }
}

/* `at`, or the start of its block where the promise of qsa_truncate() does not reach. */
static int64_t allowed_length(const int64_t *longest, int64_t at, int64_t block) {
    int64_t start = at / block * block, most = 0;
    for (int64_t c = start; c < at; c++) {
        most = longest[c] > most ? longest[c] : most;
    }
    return at >= most - 64 + block ? at : start; /* 64: the default rollback */
}

/* Drafts: other cells are appended and taken back, to any length within the rollback, then the true ones come. */
static void truncated_cells_leave_no_bit(void **state) {
    (void)state;
    rng random = rng_of(test_seed(104));
    for (int round = 0; round < 30; round++) {
        rig_options options = random_options(&random, 3000);
        rig drafted = open_rig(&options), never = open_rig(&options), foreign = open_rig(&options);
        int64_t n = random_length(&random, &options.shape), block = options.shape.block;
        describe(round, &options, n);
        for (int64_t i = 0; i < 1021 * options.shape.kv_heads * options.shape.head_dim; i++) {
            foreign.k[i] = 3.0f - foreign.k[i]; /* the draft's cells, unlike the true ones */
            foreign.v[i] = -2.0f * foreign.v[i];
        }
        for (int64_t i = 0; i < 4099 * options.shape.index_dim; i++) {
            foreign.raw[i] = 1.0f - foreign.raw[i];
        }
        int64_t longest[3100] = {0};
        grow(&drafted, drafted.sequence, n);
        grow(&never, never.sequence, n);
        note_append(longest, 0, n);
        for (int step = 0; step < 12; step++) {
            int64_t draft = rng_range(&random, 1, 16), back = rng_range(&random, 0, 40), at = n - back;
            append_cells(&foreign, drafted.sequence, draft); /* foreign cells into the drafted sequence */
            queries q = new_queries(&random, &options.shape, 1);
            decoded d = decode(&drafted, &q, QSA_BLOCKS); /* a decode of rejected rows leaves nothing either */
            free_decoded(&d);
            free_queries(&q);
            note_append(longest, n, n + draft);
            at = allowed_length(longest, at < 0 ? 0 : at, block);
            MUST(qsa_truncate, drafted.sequence, at);
            MUST(qsa_truncate, never.sequence, at);
            n = at + rng_range(&random, 1, 60);
            n = n < 3000 ? n : 3000;
            grow(&drafted, drafted.sequence, n);
            grow(&never, never.sequence, n);
            note_append(longest, at, n);
            assert_same_step(&drafted, drafted.sequence, &never, never.sequence, &random);
        }
        rig fresh = open_rig(&options);
        grow(&fresh, fresh.sequence, n);
        assert_same_cache(&drafted, drafted.sequence, &fresh, fresh.sequence);
        assert_same_step(&drafted, drafted.sequence, &fresh, fresh.sequence, &random);
        close_rig(&drafted), close_rig(&never), close_rig(&foreign), close_rig(&fresh);
    }
}

/* ------------------------------------------------------------------------------------------ bits */

static void bits_do_not_depend_on_threads_levels_pages_or_rows(void **state) {
    (void)state;
    rng random = rng_of(test_seed(105));
    for (int round = 0; round < 30; round++) {
        rig_options options = random_options(&random, 2 * (3000 + 1024));
        int64_t n = random_length(&random, &options.shape);
        queries q = new_queries(&random, &options.shape, rng_range(&random, 1, n < 6 ? n : 6));
        qsa_contract contract = contracts[round % 3];
        decoded first = {0};
        describe(round, &options, n);
        for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
            options.cpu = cpu;
            options.threads = rng_range(&random, 1, 8);
            options.page_cells = (16 * options.shape.block) << rng_range(&random, 0, 3);
            rig r = open_rig(&options);
            grow(&r, r.sequence, n);
            decoded d = decode(&r, &q, contract);
            for (int64_t t = 0; t < q.rows; t++) { /* each row as the last of a shorter sequence */
                qsa_sequence *shorter;
                MUST(qsa_sequence_create, r.cache, &shorter);
                grow(&r, shorter, n - q.rows + t + 1);
                queries one = queries_at(&r, &q, t, 1);
                decoded solo = decode_rows(&r, shorter, &one, contract, 0, 0);
                assert_memory_equal(solo.ids, d.ids + t * d.width, (size_t)solo.width * sizeof *solo.ids);
                assert_memory_equal(solo.out, d.out + t * d.out_width, (size_t)solo.out_width * sizeof *solo.out);
                free_decoded(&solo);
                qsa_sequence_destroy(shorter);
            }
            if (!first.rows) {
                first = d;
            } else {
                assert_same_decoded(&d, &first);
                free_decoded(&d);
            }
            close_rig(&r);
        }
        free_decoded(&first);
        free_queries(&q);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_agree_with_float64),
        cmocka_unit_test(stages_give_the_bits_of_decode),
        cmocka_unit_test(appending_in_pieces_changes_no_bit),
        cmocka_unit_test(truncated_cells_leave_no_bit),
        cmocka_unit_test(bits_do_not_depend_on_threads_levels_pages_or_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
