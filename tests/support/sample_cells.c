/* SPDX-License-Identifier: MIT */
/* Comparing what two sequences hold, and growing them beyond a sample's end. */
#include "support/sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void sample_same_cells(const qsa_sequence *a, const qsa_sequence *b, int64_t layer) {
    QSA_INIT(qsa_kv, x);
    QSA_INIT(qsa_kv, y);
    QSA_INIT(qsa_keys, i);
    QSA_INIT(qsa_keys, j);
    assert_int_equal(qsa_sequence_kv(a, layer, &x, NULL), QSA_OK);
    assert_int_equal(qsa_sequence_kv(b, layer, &y, NULL), QSA_OK);
    assert_int_equal(qsa_sequence_keys(a, layer, &i, NULL), QSA_OK);
    assert_int_equal(qsa_sequence_keys(b, layer, &j, NULL), QSA_OK);
    assert_true(x.cells == y.cells && x.type == y.type && i.blocks == j.blocks && i.type == j.type);
    size_t head = 64 * (x.type == QSA_F32 ? 4u : x.type == QSA_I8_G64 ? 1u : 2u);
    for (int64_t c = 0; c < x.cells; c++) {
        for (int64_t h = 0; h < 2; h++) {
            int64_t in = c % x.page_cells, on = c % y.page_cells;
            int64_t at = x.pages[c / x.page_cells] * x.page_stride + in * x.cell_stride + h * x.head_stride;
            int64_t to = y.pages[c / y.page_cells] * y.page_stride + on * y.cell_stride + h * y.head_stride;
            assert_memory_equal((const char *)x.k + at, (const char *)y.k + to, head);
            assert_memory_equal((const char *)x.v + at, (const char *)y.v + to, head);
            if (x.type == QSA_I8_G64) {
                at = (x.pages[c / x.page_cells] * x.scale_page_stride + in * x.scale_cell_stride + h * x.scale_head_stride) / 2;
                to = (y.pages[c / y.page_cells] * y.scale_page_stride + on * y.scale_cell_stride + h * y.scale_head_stride) / 2;
                assert_true(x.k_scale[at] == y.k_scale[to] && x.v_scale[at] == y.v_scale[to]);
            }
        }
    }
    int64_t step = i.type == QSA_F32 ? 1 : 2, unit = 4; /* channels in 4 bytes */
    for (int64_t b2 = 0; b2 < i.blocks; b2++) {
        int64_t in = b2 % i.page_blocks, on = b2 % j.page_blocks;
        for (int64_t c = 0; c < 32 / step; c++) {
            int64_t at = (in / 16 * 16 * 32 / step + c * 16 + in % 16) * unit, to = (on / 16 * 16 * 32 / step + c * 16 + on % 16) * unit;
            assert_memory_equal((const char *)i.data + i.pages[b2 / i.page_blocks] * i.page_stride + at,
                                (const char *)j.data + j.pages[b2 / j.page_blocks] * j.page_stride + to, (size_t)unit);
        }
    }
}

void sample_grow_round(qsa_sequence *sequence, const sample *s, int64_t from, int64_t length) {
    for (int64_t layer = 0; layer < SAMPLE_LAYERS; layer++) {
        for (int64_t at = qsa_sequence_length(sequence, layer); at < length;) {
            int64_t row = (from + at) % s->cells, left = length - at, cells = left < s->cells - row ? left : s->cells - row;
            sample_append(sequence, s, layer, row, cells);
            at += cells;
        }
    }
}

sample_result sample_decode_at(qsa_cache *cache, const qsa_sequence *sequence, const sample *s, int64_t layer, int64_t rows,
                               qsa_contract contract, int64_t query) {
    int64_t length = qsa_sequence_length(sequence, layer), widest = s->shape.budget + s->shape.block - 1;
    int64_t width = s->shape.q_heads * s->shape.head_dim, index_width = s->shape.index_heads * s->shape.index_dim;
    sample_result r = sample_result_make(&s->shape, rows, contract == QSA_DENSE ? length : widest);
    assert_true(query >= 0 && query + rows <= s->cells);
    qsa_item item = {.sequence = sequence,
                     .rows = rows,
                     .q = s->q + query * width,
                     .gate = s->gate + query * width,
                     .iq = s->iq + query * index_width,
                     .out = r.out,
                     .id_stride = r.id_stride,
                     .ids_out = r.ids};
    qsa_error error;
    QSA_INIT(qsa_decode_args, args);
    args.layer = layer;
    args.items = &item;
    args.item_count = 1;
    args.contract = contract;
    args.workspace = sample_workspace(cache, contract, rows, length, &args.workspace_bytes);
    sample_ok(qsa_decode(cache, &args, &error), &error);
    free(args.workspace);
    return r;
}
