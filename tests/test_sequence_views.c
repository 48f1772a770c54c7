/* SPDX-License-Identifier: MIT */
/* What a cache holds, seen from outside: its views under the stages, its keys against the builder, its K/V against the
 * codec. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "support/sample.h"

enum { CELLS = 333, ROWS = 5, BLOCKS = CELLS / 4, WIDEST = 35 };

static const qsa_type kv_types[] = {QSA_F32, QSA_F16, QSA_BF16, QSA_I8_G64};

static qsa_context *context;
static sample cells;

static int set_up(void **state) {
    (void)state;
    qsa_shape shape = sample_shape();
    context = sample_context(QSA_CPU_AUTO, 2);
    cells = sample_make(&shape, CELLS, 111);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    sample_free(&cells);
    qsa_close(context);
    return 0;
}

/* A sequence of all cells whose pages are neither ascending nor contiguous. */
static qsa_sequence *scattered(qsa_cache *cache) {
    qsa_sequence *other = sample_sequence(cache), *s = sample_sequence(cache);
    for (int64_t length = 50; length <= CELLS; length += 70) {
        sample_grow(other, &cells, length);
        sample_grow(s, &cells, length);
    }
    sample_grow(s, &cells, CELLS);
    qsa_sequence_destroy(other);
    return s;
}

/* ------------------------------------------------------------------------------------------------ stages on views */

/* The whole step by hand, as qsa_decode() does it: chunks of 64, one a part. */
static sample_result by_hand(const qsa_sequence *s, int64_t layer, qsa_contract contract) {
    const qsa_shape *shape = &cells.shape;
    sample_result r = sample_result_make(shape, ROWS, contract == QSA_DENSE ? CELLS : WIDEST);
    qsa_item rows = sample_item(s, &cells, layer, &r);
    qsa_error error;
    int64_t n[ROWS], n_ids[ROWS], parts = (r.id_stride + 63) / 64;
    float *scores = malloc(ROWS * (BLOCKS + 1) * sizeof *scores);
    float *partials = malloc((size_t)(ROWS * parts * 4 * 66) * sizeof *partials);
    for (int t = 0; t < ROWS; t++) {
        n_ids[t] = n[t] = CELLS - ROWS + t + 1;
    }
    QSA_INIT(qsa_kv, kv);
    QSA_INIT(qsa_keys, keys);
    sample_ok(qsa_sequence_kv(s, layer, &kv, &error), &error);
    sample_ok(qsa_sequence_keys(s, layer, &keys, &error), &error);
    QSA_INIT(qsa_score_args, score);
    score.iq = rows.iq, score.rows = ROWS, score.n = n, score.keys = &keys, score.scores = scores,
    score.score_stride = BLOCKS + 1;
    sample_ok(qsa_score(context, shape, &score, &error), &error);
    if (contract != QSA_DENSE) {
        QSA_INIT(qsa_select_args, select);
        select.contract = contract, select.scores = scores, select.score_stride = BLOCKS + 1, select.rows = ROWS,
        select.n = n;
        select.ids = r.ids, select.id_stride = r.id_stride, select.n_ids = n_ids;
        sample_ok(qsa_select(context, shape, &select, &error), &error);
    } else {
        for (int64_t i = 0; i < ROWS * r.id_stride; i++) {
            r.ids[i] = i % r.id_stride < n[i / r.id_stride] ? (int32_t)(i % r.id_stride) : -1;
        }
    }
    QSA_INIT(qsa_attend_args, attend);
    attend.q = rows.q, attend.rows = ROWS, attend.ids = r.ids, attend.id_stride = r.id_stride, attend.n_ids = n_ids;
    attend.kv = &kv, attend.partials = partials, attend.parts = parts;
    sample_ok(qsa_attend(context, shape, &attend, &error), &error);
    QSA_INIT(qsa_merge_args, merge);
    merge.partials = partials, merge.parts = parts, merge.rows = ROWS, merge.gate = rows.gate, merge.out = r.out;
    sample_ok(qsa_merge(context, shape, &merge, &error), &error);
    free(scores), free(partials);
    return r;
}

static void stages_on_views_are_the_decode(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        qsa_cache_options options = sample_options(&cells, kv_types[i], i % 2 ? QSA_BF16 : QSA_F32, 3 * CELLS);
        qsa_cache *cache = sample_cache(context, &options);
        qsa_sequence *s = scattered(cache);
        for (int layer = 0; layer < SAMPLE_LAYERS; layer++) {
            for (int contract = QSA_BLOCKS; contract <= QSA_DENSE; contract++) {
                sample_result hand = by_hand(s, layer, (qsa_contract)contract);
                sample_result whole = sample_decode(cache, s, &cells, layer, ROWS, (qsa_contract)contract);
                sample_same_bits(&hand, &whole);
                sample_result_free(&hand), sample_result_free(&whole);
            }
        }
        qsa_sequence_destroy(s);
        qsa_cache_destroy(cache);
    }
}

/* Its own ids handed back give the output again. */
static void given_ids_are_the_selected_ones(void **state) {
    (void)state;
    qsa_cache_options options = sample_options(&cells, QSA_I8_G64, QSA_BF16, 3 * CELLS);
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *s = scattered(cache);
    sample_result first = sample_decode(cache, s, &cells, 1, ROWS, QSA_CELLS);
    sample_result again = sample_result_make(&cells.shape, ROWS, WIDEST);
    qsa_error error;
    for (int with_counts = 0; with_counts < 2; with_counts++) { /* without: -1 behind the last are holes */
        int64_t counts[ROWS];
        qsa_item item = sample_item(s, &cells, 1, &again);
        QSA_INIT(qsa_decode_args, args);
        for (int t = 0; t < ROWS; t++) {
            counts[t] = WIDEST;
        }
        item.iq = NULL;
        item.ids = first.ids;
        item.n_ids = with_counts ? counts : NULL;
        args.layer = 1;
        args.items = &item;
        args.item_count = 1;
        args.contract = QSA_CELLS;
        args.workspace = sample_workspace(cache, QSA_CELLS, ROWS, CELLS, &args.workspace_bytes);
        memset(again.out, 0x7b, again.out_bytes), memset(again.ids, 0x7b, again.id_bytes);
        sample_ok(qsa_decode(cache, &args, &error), &error);
        sample_same_bits(&first, &again);
        free(args.workspace);
    }
    sample_result_free(&first), sample_result_free(&again);
    qsa_sequence_destroy(s);
    qsa_cache_destroy(cache);
}

/* ------------------------------------------------------------------------------------------------ contents */

static void the_cache_holds_what_the_codec_makes(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        qsa_type type = kv_types[i];
        size_t head = 64 * (type == QSA_F32 ? 4u : type == QSA_I8_G64 ? 1u : 2u);
        qsa_cache_options options = sample_options(&cells, type, QSA_F32, 3 * CELLS);
        qsa_cache *cache = sample_cache(context, &options);
        qsa_sequence *s = scattered(cache);
        for (int plane = 0; plane < 2; plane++) {
            char *encoded = malloc(CELLS * 2 * head);
            uint16_t scales[CELLS * 2];
            assert_int_equal(qsa_kv_encode(type, CELLS, 2, plane ? cells.v : cells.k, encoded,
                                           type == QSA_I8_G64 ? scales : NULL, NULL),
                             QSA_OK);
            QSA_INIT(qsa_kv, kv);
            assert_int_equal(qsa_sequence_kv(s, 1, &kv, NULL), QSA_OK);
            assert_int_equal(kv.cells, CELLS);
            for (int64_t c = 0; c < CELLS * 2; c++) { /* cell c / 2, KV head c % 2 */
                int64_t page = kv.pages[c / 2 / kv.page_cells], in = c / 2 % kv.page_cells, h = c % 2;
                const char *at = (const char *)(plane ? kv.v : kv.k) + page * kv.page_stride + in * kv.cell_stride +
                                 h * kv.head_stride;
                assert_memory_equal(at, encoded + (size_t)c * head, head);
                if (type == QSA_I8_G64) {
                    const uint16_t *scale = plane ? kv.v_scale : kv.k_scale;
                    int64_t byte = page * kv.scale_page_stride + in * kv.scale_cell_stride + h * kv.scale_head_stride;
                    assert_int_equal(scale[byte / 2], scales[c]);
                }
            }
            free(encoded);
        }
        qsa_sequence_destroy(s);
        qsa_cache_destroy(cache);
    }
}

/* However the cells came, the keys are those of qsa_block_keys(), layer by layer with the layer's norm. */
static void the_cache_holds_the_builders_keys(void **state) {
    (void)state;
    static const qsa_type types[] = {QSA_F32, QSA_BF16};
    for (int i = 0; i < 2; i++) {
        size_t bytes = types[i] == QSA_F32 ? 4 : 2, step = types[i] == QSA_F32 ? 1 : 2;
        qsa_cache_options options = sample_options(&cells, QSA_I8_G64, types[i], 3 * CELLS);
        options.rope.theta = 500.0;
        options.eps = 1e-3f;
        qsa_cache *cache = sample_cache(context, &options);
        qsa_sequence *s = scattered(cache);
        for (int layer = 0; layer < SAMPLE_LAYERS; layer++) {
            char *expected = malloc(BLOCKS * 32 * bytes);
            qsa_error error;
            QSA_INIT(qsa_block_keys_args, args);
            args.raw = cells.raw;
            args.blocks = BLOCKS;
            args.norm_weight = cells.norm + layer * 32;
            args.eps = options.eps;
            args.rope = &options.rope;
            args.type = types[i];
            args.keys = expected;
            sample_ok(qsa_block_keys(context, &cells.shape, &args, &error), &error);
            QSA_INIT(qsa_keys, keys);
            assert_int_equal(qsa_sequence_keys(s, layer, &keys, NULL), QSA_OK);
            assert_true(keys.blocks == BLOCKS && keys.layout == QSA_KEYS_TILES && keys.type == types[i]);
            for (size_t b = 0; b < BLOCKS; b++) {
                size_t in = b % (size_t)keys.page_blocks;
                const char *page =
                    (const char *)keys.data + keys.pages[b / (size_t)keys.page_blocks] * keys.page_stride;
                for (size_t c = 0; c < 32; c++) {
                    size_t element = in / 16 * 16 * 32 + c / step * 16 * step + in % 16 * step + c % step;
                    assert_memory_equal(page + element * bytes, expected + (b * 32 + c) * bytes, bytes);
                }
            }
            free(expected);
        }
        qsa_sequence_destroy(s);
        qsa_cache_destroy(cache);
    }
}

/* Cells are by rank, whatever positions the builder is told: equal positions make equal keys of equal cells. */
static void positions_of_blocks_are_the_callers(void **state) {
    (void)state;
    float raw[8 * 32], keys[2][32], moved[2][32];
    int64_t same[] = {40, 40}, apart[] = {40, 44};
    QSA_INIT(qsa_rope, rope);
    rope.dims = 16;
    memcpy(raw, cells.raw, sizeof raw / 2);
    memcpy(raw + 4 * 32, cells.raw, sizeof raw / 2);
    QSA_INIT(qsa_block_keys_args, args);
    args.raw = raw, args.blocks = 2, args.positions = same, args.norm_weight = cells.norm, args.rope = &rope;
    args.type = QSA_F32, args.keys = keys;
    assert_int_equal(qsa_block_keys(context, &cells.shape, &args, NULL), QSA_OK);
    assert_memory_equal(keys[0], keys[1], sizeof keys[0]);
    args.positions = apart, args.keys = moved;
    assert_int_equal(qsa_block_keys(context, &cells.shape, &args, NULL), QSA_OK);
    assert_memory_equal(keys[0], moved[0], sizeof keys[0]);
    assert_memory_not_equal(keys[1], moved[1], 16 * sizeof(float));
    assert_memory_equal(keys[1] + 16, moved[1] + 16, 16 * sizeof(float)); /* only rope.dims channels turn */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_on_views_are_the_decode),       cmocka_unit_test(given_ids_are_the_selected_ones),
        cmocka_unit_test(the_cache_holds_what_the_codec_makes), cmocka_unit_test(the_cache_holds_the_builders_keys),
        cmocka_unit_test(positions_of_blocks_are_the_callers),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
