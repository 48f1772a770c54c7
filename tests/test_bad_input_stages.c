/* SPDX-License-Identifier: MIT */
/* Bad input to the four stages and the block-key builder. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "support/refusal.h"
#include "support/sample.h"

enum { ROWS = 2, CELLS = 100, BLOCKS = CELLS / 4, IDS = 40 };

/* Parts that every stage has. */
enum { P, SHAPE, ARGS, VIEW, ROW_NUMBERS, LIST };

static qsa_context *context;
static sample cells;

static int set_up(void **state) {
    (void)state;
    qsa_shape shape = sample_shape();
    context = sample_context(QSA_CPU_AUTO, 2);
    cells = sample_make(&shape, CELLS, 51);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    sample_free(&cells);
    qsa_close(context);
    return 0;
}

/* ------------------------------------------------------------------------------------------------ score */

typedef struct score_pointers {
    qsa_context *context;
    const qsa_shape *shape;
    const qsa_score_args *args;
} score_pointers;

static qsa_status run_score(void *state, qsa_error *error) {
    const score_pointers *p = state;
    return qsa_score(p->context, p->shape, p->args, error);
}

#define A(field, value) BAD_I64(ARGS, qsa_score_args, field, value, QSA_E_ARGUMENT, #field " is")
#define K(field, value) BAD_I64(VIEW, qsa_keys, field, value, QSA_E_ARGUMENT, "keys." #field " is")

static void score_refuses(void **state) {
    (void)state;
    int64_t n[ROWS] = {CELLS - 1, CELLS};
    int32_t pages[BLOCKS] = {1, 0};
    float scores[ROWS][BLOCKS + 3];
    float *data = aligned_alloc(64, 2 * 16 * 32 * sizeof *data);
    assert_non_null(data);
    memcpy(data, cells.q, 2 * 16 * 32 * sizeof *data);
    QSA_INIT(qsa_keys, keys);
    keys.type = QSA_F32;
    keys.layout = QSA_KEYS_TILES;
    keys.data = data;
    keys.blocks = BLOCKS;
    keys.pages = pages;
    keys.page_blocks = 16;
    QSA_INIT(qsa_score_args, args);
    args.iq = cells.iq;
    args.rows = ROWS;
    args.n = n;
    args.keys = &keys;
    args.scores = scores[0];
    args.score_stride = BLOCKS + 3;
    score_pointers p = {context, &cells.shape, &args};
    const refused_call call = {
        .part = {[P] = {&p, sizeof p},
                 [SHAPE] = {&cells.shape, sizeof cells.shape},
                 [ARGS] = {&args, sizeof args},
                 [VIEW] = {&keys, sizeof keys},
                 [ROW_NUMBERS] = {n, sizeof n},
                 [LIST] = {pages, sizeof pages}},
        .result = {{scores, sizeof scores}},
        .run = run_score,
        .state = &p,
    };
    const refusal rows[] = {
        NO_PTR(P, score_pointers, context, "context is NULL"),
        NO_PTR(P, score_pointers, shape, "shape is NULL"),
        NO_PTR(P, score_pointers, args, "args is NULL"),
        BAD_SIZE(ARGS, qsa_score_args, 0, "args"),
        BAD_SIZE(ARGS, qsa_score_args, sizeof args - 8, "args"),
        NO_PTR(ARGS, qsa_score_args, iq, "iq is NULL"),
        NO_PTR(ARGS, qsa_score_args, n, "n is NULL"),
        NO_PTR(ARGS, qsa_score_args, keys, "keys is NULL"),
        NO_PTR(ARGS, qsa_score_args, scores, "scores is NULL"),
        A(rows, -1),
        A(rows, INT64_MIN),
        A(rows, INT64_MAX),
        A(rows, INT64_C(1) << 58),
        A(score_stride, 0),
        A(score_stride, BLOCKS),
        A(score_stride, -1),
        A(score_stride, INT64_MIN),
        A(score_stride, INT64_MAX),
        A(score_stride, INT64_MAX / 4),
        SPOIL_AT(int64_t, ROW_NUMBERS, 0, -1, QSA_E_ARGUMENT, "n[0] is -1"),
        SPOIL_AT(int64_t, ROW_NUMBERS, 1, INT64_MIN, QSA_E_ARGUMENT, "n[1] is"),
        SPOIL_AT(int64_t, ROW_NUMBERS, 1, CELLS + 4, QSA_E_ARGUMENT, "n[1] is 104"),
        SPOIL_AT(int64_t, ROW_NUMBERS, 0, INT64_MAX, QSA_E_ARGUMENT, "n[0] is"),
        BAD_SIZE(VIEW, qsa_keys, 0, "keys"),
        BAD_SIZE(VIEW, qsa_keys, sizeof keys + 8, "keys"),
        BAD_INT(VIEW, qsa_keys, type, 0, QSA_E_SHAPE, "keys.type is unknown"),
        BAD_INT(VIEW, qsa_keys, type, QSA_F16, QSA_E_SHAPE, "keys.type is f16"),
        BAD_INT(VIEW, qsa_keys, type, QSA_I8_G64, QSA_E_SHAPE, "keys.type is i8_g64"),
        BAD_INT(VIEW, qsa_keys, type, -1, QSA_E_SHAPE, "keys.type is unknown"),
        BAD_INT(VIEW, qsa_keys, layout, 2, QSA_E_ARGUMENT, "keys.layout is 2"),
        BAD_INT(VIEW, qsa_keys, layout, -1, QSA_E_ARGUMENT, "keys.layout is -1"),
        NO_PTR(VIEW, qsa_keys, data, "keys.data is NULL"),
        SPOIL(uintptr_t, VIEW, qsa_keys, data, 32, QSA_E_ARGUMENT, "data"),
        K(blocks, -1),
        K(blocks, INT64_MAX),
        K(blocks, INT64_C(1) << 31),
        K(blocks, INT64_MIN),
        BAD_I64(VIEW, qsa_keys, blocks, BLOCKS - 1, QSA_E_ARGUMENT, "n[1] is 100"),
        K(page_blocks, 0),
        K(page_blocks, -16),
        K(page_blocks, 24),
        K(page_blocks, 8),
        K(page_blocks, INT64_MAX),
        K(page_blocks, INT64_MIN),
        K(page_stride, 2),
        K(page_stride, -2048),
        K(page_stride, INT64_MIN),
        K(page_stride, INT64_MAX & ~INT64_C(63)),
        BAD_I64(VIEW, qsa_keys, page_stride, 2052, QSA_E_ARGUMENT, "page_stride"),
        AND_INT(VIEW, qsa_keys, layout, QSA_KEYS_ROWS),
        K(block_stride, -128),
        AND_INT(VIEW, qsa_keys, layout, QSA_KEYS_ROWS),
        K(block_stride, 130),
        AND_INT(VIEW, qsa_keys, layout, QSA_KEYS_ROWS),
        K(block_stride, INT64_MAX & ~INT64_C(3)),
        AND_INT(VIEW, qsa_keys, layout, QSA_KEYS_ROWS),
        AND_NULL(VIEW, qsa_keys, pages),
        K(block_stride, (INT64_C(1) << 60)),
        SPOIL_AT(int32_t, LIST, 1, -1, QSA_E_ARGUMENT, "keys.pages[1] is -1"),
        SPOIL_AT(int32_t, LIST, 0, INT32_MIN, QSA_E_ARGUMENT, "keys.pages[0] is"),
    };
    CHECK_REFUSALS(&call, rows);
    check_shape_refusals(&call, SHAPE);
    free(data);
}
#undef A
#undef K

/* ------------------------------------------------------------------------------------------------ select */

typedef struct select_pointers {
    qsa_context *context;
    const qsa_shape *shape;
    const qsa_select_args *args;
} select_pointers;

static qsa_status run_select(void *state, qsa_error *error) {
    const select_pointers *p = state;
    return qsa_select(p->context, p->shape, p->args, error);
}

#define A(field, value) BAD_I64(ARGS, qsa_select_args, field, value, QSA_E_ARGUMENT, #field " is")

static void select_refuses(void **state) {
    (void)state;
    int64_t n[ROWS] = {CELLS - 1, CELLS}, n_ids[ROWS];
    int32_t ids[ROWS][IDS];
    QSA_INIT(qsa_select_args, args);
    args.scores = cells.q;
    args.score_stride = BLOCKS + 3;
    args.rows = ROWS;
    args.n = n;
    args.ids = ids[0];
    args.id_stride = IDS;
    args.n_ids = n_ids;
    select_pointers p = {context, &cells.shape, &args};
    const refused_call call = {
        .part = {[P] = {&p, sizeof p},
                 [SHAPE] = {&cells.shape, sizeof cells.shape},
                 [ARGS] = {&args, sizeof args},
                 [ROW_NUMBERS] = {n, sizeof n}},
        .result = {{ids, sizeof ids}, {n_ids, sizeof n_ids}},
        .run = run_select,
        .state = &p,
    };
    const refusal rows[] = {
        NO_PTR(P, select_pointers, context, "context is NULL"),
        NO_PTR(P, select_pointers, shape, "shape is NULL"),
        NO_PTR(P, select_pointers, args, "args is NULL"),
        BAD_SIZE(ARGS, qsa_select_args, 0, "args"),
        BAD_SIZE(ARGS, qsa_select_args, SIZE_MAX, "args"),
        BAD_INT(ARGS, qsa_select_args, contract, QSA_DENSE, QSA_E_ARGUMENT, "contract is 2"),
        BAD_INT(ARGS, qsa_select_args, contract, 3, QSA_E_ARGUMENT, "contract is 3"),
        BAD_INT(ARGS, qsa_select_args, contract, -1, QSA_E_ARGUMENT, "contract is"),
        NO_PTR(ARGS, qsa_select_args, scores, "scores is NULL"),
        NO_PTR(ARGS, qsa_select_args, n, "n is NULL"),
        NO_PTR(ARGS, qsa_select_args, ids, "ids is NULL"),
        A(rows, -1),
        A(rows, INT64_MIN),
        A(rows, INT64_MAX),
        A(rows, INT64_C(1) << 58),
        A(score_stride, 0),
        A(score_stride, BLOCKS - 1),
        A(score_stride, -1),
        A(score_stride, INT64_MIN),
        A(score_stride, INT64_MAX),
        A(id_stride, 0),
        A(id_stride, 34),
        A(id_stride, -1),
        A(id_stride, INT64_MIN),
        A(id_stride, INT64_MAX),
        SPOIL_AT(int64_t, ROW_NUMBERS, 1, -1, QSA_E_ARGUMENT, "n[1] is -1"),
        SPOIL_AT(int64_t, ROW_NUMBERS, 0, INT64_C(1) << 31, QSA_E_ARGUMENT, "n[0] is 2147483648"),
        SPOIL_AT(int64_t, ROW_NUMBERS, 1, INT64_MAX, QSA_E_ARGUMENT, "n[1] is"),
        SPOIL_AT(int64_t, ROW_NUMBERS, 1, INT64_MIN, QSA_E_ARGUMENT, "n[1] is"),
        SPOIL_AT(int64_t, ROW_NUMBERS, 1, 4 * (BLOCKS + 4), QSA_E_ARGUMENT, "score_stride is"),
    };
    CHECK_REFUSALS(&call, rows);
    check_shape_refusals(&call, SHAPE);
}
#undef A

/* ------------------------------------------------------------------------------------------------ attend */

typedef struct attend_pointers {
    qsa_context *context;
    const qsa_shape *shape;
    const qsa_attend_args *args;
} attend_pointers;

static qsa_status run_attend(void *state, qsa_error *error) {
    const attend_pointers *p = state;
    return qsa_attend(p->context, p->shape, p->args, error);
}

#define A(field, value) BAD_I64(ARGS, qsa_attend_args, field, value, QSA_E_ARGUMENT, #field " is")
#define V(field, value) BAD_I64(VIEW, qsa_kv, field, value, QSA_E_ARGUMENT, "kv." #field " is")

enum { IDS_PART = LIST, PAGES_PART };

/* K/V of the cells in one of the formats, on two pages. */
static void attend_table(const refused_call *call) {
    const refusal rows[] = {
        NO_PTR(P, attend_pointers, context, "context is NULL"),
        NO_PTR(P, attend_pointers, shape, "shape is NULL"),
        NO_PTR(P, attend_pointers, args, "args is NULL"),
        BAD_SIZE(ARGS, qsa_attend_args, 0, "args"),
        BAD_SIZE(ARGS, qsa_attend_args, 1, "args"),
        NO_PTR(ARGS, qsa_attend_args, q, "q is NULL"),
        NO_PTR(ARGS, qsa_attend_args, n_ids, "n_ids is NULL"),
        NO_PTR(ARGS, qsa_attend_args, kv, "kv is NULL"),
        NO_PTR(ARGS, qsa_attend_args, partials, "partials is NULL"),
        A(rows, -1),
        A(rows, INT64_MIN),
        A(rows, INT64_MAX),
        A(rows, INT64_C(1) << 58),
        A(chunk, 1),
        A(chunk, 16),
        A(chunk, 48),
        A(chunk, 128),
        A(chunk, -32),
        A(chunk, INT64_MAX),
        A(chunk, INT64_MIN),
        A(fold, -1),
        A(fold, INT64_MIN),
        A(fold, INT64_MAX),
        A(fold, INT64_C(1) << 32),
        A(parts, -1),
        A(parts, 0),
        A(parts, 1),
        A(parts, INT64_MIN),
        A(parts, INT64_MAX),
        A(parts, INT64_C(1) << 60),
        BAD_I64(ARGS, qsa_attend_args, id_stride, -1, QSA_E_ARGUMENT, "n_ids[0] is"),
        BAD_I64(ARGS, qsa_attend_args, id_stride, 10, QSA_E_ARGUMENT, "n_ids[0] is"),
        A(id_stride, INT64_MAX),
        A(id_stride, INT64_MAX / 4),
        SPOIL_AT(int64_t, ROW_NUMBERS, 1, -1, QSA_E_ARGUMENT, "n_ids[1] is -1"),
        SPOIL_AT(int64_t, ROW_NUMBERS, 1, IDS + 1, QSA_E_ARGUMENT, "n_ids[1] is 41"),
        SPOIL_AT(int64_t, ROW_NUMBERS, 0, INT64_MAX, QSA_E_ARGUMENT, "n_ids[0] is"),
        AND_NULL(ARGS, qsa_attend_args, ids),
        SPOIL_AT(int64_t, ROW_NUMBERS, 1, CELLS + 1, QSA_E_ARGUMENT, "n_ids[1] is 101"),
        SPOIL_AT(int32_t, IDS_PART, 0, -2, QSA_E_ARGUMENT, "ids[0][0] is -2"),
        SPOIL_AT(int32_t, IDS_PART, IDS + 3, CELLS, QSA_E_ARGUMENT, "ids[1][3] is 100"),
        SPOIL_AT(int32_t, IDS_PART, IDS, INT32_MAX, QSA_E_ARGUMENT, "ids[1][0] is"),
        SPOIL_AT(int32_t, IDS_PART, IDS, INT32_MIN, QSA_E_ARGUMENT, "ids[1][0] is"),
        BAD_SIZE(VIEW, qsa_kv, 0, "kv"),
        BAD_SIZE(VIEW, qsa_kv, sizeof(qsa_kv) - 1, "kv"),
        BAD_INT(VIEW, qsa_kv, type, 0, QSA_E_SHAPE, "kv.type is unknown"),
        BAD_INT(VIEW, qsa_kv, type, QSA_Q8_0, QSA_E_SHAPE, "kv.type is q8_0"),
        BAD_INT(VIEW, qsa_kv, type, -7, QSA_E_SHAPE, "kv.type is unknown"),
        NO_PTR(VIEW, qsa_kv, k, "kv.k is NULL"),
        NO_PTR(VIEW, qsa_kv, v, "kv.v is NULL"),
        V(cells, -1),
        V(cells, INT64_MAX),
        V(cells, INT64_C(1) << 31),
        V(cells, INT64_MIN),
        BAD_I64(VIEW, qsa_kv, cells, 99, QSA_E_ARGUMENT, "ids[0][39] is 99"),
        V(cell_stride, -256),
        V(head_stride, -256),
        V(page_stride, -256),
        V(cell_stride, INT64_MIN),
        V(head_stride, INT64_MIN),
        V(page_stride, INT64_MIN),
        V(cell_stride, INT64_MAX - 255),
        V(head_stride, INT64_MAX - 255),
        V(page_stride, INT64_MAX - 255),
        V(cell_stride, INT64_C(1) << 58),
        V(head_stride, INT64_C(1) << 61),
        V(scale_cell_stride, -2),
        V(scale_head_stride, -2),
        V(scale_page_stride, -2),
        V(scale_cell_stride, 5),
        V(scale_head_stride, 3),
        V(scale_page_stride, 7),
        V(scale_cell_stride, INT64_MAX - 1),
        V(scale_head_stride, INT64_MAX - 1),
        V(scale_page_stride, INT64_MAX - 1),
        V(page_cells, 0),
        V(page_cells, 2),
        V(page_cells, 48),
        V(page_cells, -64),
        V(page_cells, INT64_MAX),
        V(page_cells, INT64_MIN),
        AND_I64(VIEW, qsa_kv, cell_stride, INT64_C(1) << 40),
        V(page_cells, INT64_C(1) << 40),
        SPOIL_AT(int32_t, PAGES_PART, 1, -1, QSA_E_ARGUMENT, "kv.pages[1] is -1"),
        SPOIL_AT(int32_t, PAGES_PART, 0, INT32_MIN, QSA_E_ARGUMENT, "kv.pages[0] is"),
    };
    CHECK_REFUSALS(call, rows);
}

static void attend_refuses(void **state) {
    (void)state;
    static const qsa_type types[] = {QSA_F32, QSA_F16, QSA_BF16, QSA_I8_G64};
    const int64_t width = 2 * 64, count = 2 * 64; /* two pages of 64 cells */
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        uint64_t seed = 9 + i;
        int64_t n_ids[ROWS] = {IDS, IDS};
        int32_t ids[ROWS][IDS], pages[2] = {1, 0};
        float partials[ROWS][2][4][66];
        float *x = sample_floats(&seed, count * width, 1.0f);
        void *kv_bytes[2] = {malloc((size_t)(count * width) * 4), malloc((size_t)(count * width) * 4)};
        uint16_t scales[2][2 * 2 * 64 * 2];
        for (int j = 0; j < 2; j++) {
            assert_int_equal(
                qsa_kv_encode(types[i], count, 2, x, kv_bytes[j], types[i] == QSA_I8_G64 ? scales[j] : NULL, NULL),
                QSA_OK);
        }
        for (int c = 0; c < IDS; c++) {
            ids[0][c] = 60 + c;
            ids[1][c] = c % 5 == 4 ? -1 : c;
        }
        QSA_INIT(qsa_kv, kv);
        kv.type = types[i];
        kv.k = kv_bytes[0];
        kv.v = kv_bytes[1];
        kv.k_scale = types[i] == QSA_I8_G64 ? scales[0] : NULL;
        kv.v_scale = types[i] == QSA_I8_G64 ? scales[1] : NULL;
        kv.pages = pages;
        kv.page_cells = 64;
        kv.cells = CELLS;
        QSA_INIT(qsa_attend_args, args);
        args.q = cells.q;
        args.rows = ROWS;
        args.ids = ids[0];
        args.id_stride = IDS;
        args.n_ids = n_ids;
        args.kv = &kv;
        args.chunk = 32;
        args.partials = partials[0][0][0];
        args.parts = 2;
        attend_pointers p = {context, &cells.shape, &args};
        const refused_call call = {
            .part = {[P] = {&p, sizeof p},
                     [SHAPE] = {&cells.shape, sizeof cells.shape},
                     [ARGS] = {&args, sizeof args},
                     [VIEW] = {&kv, sizeof kv},
                     [ROW_NUMBERS] = {n_ids, sizeof n_ids},
                     [IDS_PART] = {ids, sizeof ids},
                     [PAGES_PART] = {pages, sizeof pages}},
            .result = {{partials, sizeof partials}},
            .run = run_attend,
            .state = &p,
        };
        attend_table(&call);
        check_shape_refusals(&call, SHAPE);
        const refusal halves[] = {V(cell_stride, 257), V(head_stride, 129), V(page_stride, 16385)};
        const refusal scale_rows[] = {NO_PTR(VIEW, qsa_kv, k_scale, "kv.k_scale is NULL"),
                                      NO_PTR(VIEW, qsa_kv, v_scale, "kv.v_scale is NULL")};
        if (types[i] != QSA_I8_G64) {
            CHECK_REFUSALS(&call, halves);
        } else {
            CHECK_REFUSALS(&call, scale_rows);
        }
        free(x), free(kv_bytes[0]), free(kv_bytes[1]);
    }
}
#undef A
#undef V

/* ------------------------------------------------------------------------------------------------ merge */

typedef struct merge_pointers {
    qsa_context *context;
    const qsa_shape *shape;
    const qsa_merge_args *args;
} merge_pointers;

static qsa_status run_merge(void *state, qsa_error *error) {
    const merge_pointers *p = state;
    return qsa_merge(p->context, p->shape, p->args, error);
}

#define A(field, value) BAD_I64(ARGS, qsa_merge_args, field, value, QSA_E_ARGUMENT, #field " is")

static void merge_refuses(void **state) {
    (void)state;
    float out[ROWS][4 * 64 + 4];
    QSA_INIT(qsa_merge_args, args);
    args.partials = cells.q; /* any numbers */
    args.parts = 3;
    args.rows = ROWS;
    args.gate = cells.gate;
    args.out = out;
    args.out_type = QSA_F32;
    args.out_stride = sizeof out[0];
    merge_pointers p = {context, &cells.shape, &args};
    const refused_call call = {
        .part = {[P] = {&p, sizeof p}, [SHAPE] = {&cells.shape, sizeof cells.shape}, [ARGS] = {&args, sizeof args}},
        .result = {{out, sizeof out}},
        .run = run_merge,
        .state = &p,
    };
    const refusal rows[] = {
        NO_PTR(P, merge_pointers, context, "context is NULL"),
        NO_PTR(P, merge_pointers, shape, "shape is NULL"),
        NO_PTR(P, merge_pointers, args, "args is NULL"),
        BAD_SIZE(ARGS, qsa_merge_args, 0, "args"),
        BAD_SIZE(ARGS, qsa_merge_args, sizeof args + 1, "args"),
        NO_PTR(ARGS, qsa_merge_args, partials, "partials is NULL"),
        NO_PTR(ARGS, qsa_merge_args, out, "out is NULL"),
        A(rows, -1),
        A(rows, INT64_MIN),
        A(rows, INT64_MAX),
        A(rows, INT64_C(1) << 58),
        A(parts, -1),
        A(parts, INT64_MIN),
        A(parts, INT64_MAX),
        A(parts, INT64_C(1) << 52),
        BAD_INT(ARGS, qsa_merge_args, out_type, QSA_I8_G64, QSA_E_SHAPE, "out_type is i8_g64"),
        BAD_INT(ARGS, qsa_merge_args, out_type, 6, QSA_E_SHAPE, "out_type is unknown"),
        BAD_INT(ARGS, qsa_merge_args, out_type, -1, QSA_E_SHAPE, "out_type is unknown"),
        A(out_stride, 4),
        A(out_stride, 1020),
        A(out_stride, 1026),
        A(out_stride, -1040),
        A(out_stride, INT64_MIN),
        A(out_stride, INT64_MAX),
        A(out_stride, INT64_MAX - 3),
        AND_INT(ARGS, qsa_merge_args, out_type, QSA_F16),
        A(out_stride, 513),
        AND_INT(ARGS, qsa_merge_args, out_type, QSA_BF16),
        A(out_stride, 510),
        AND_INT(ARGS, qsa_merge_args, out_type, QSA_Q8_0),
        A(out_stride, 270),
        AND_INT(ARGS, qsa_merge_args, out_type, QSA_Q8_0),
        A(out_stride, 273),
    };
    CHECK_REFUSALS(&call, rows);
    check_shape_refusals(&call, SHAPE);
}
#undef A

/* ------------------------------------------------------------------------------------------------ block keys */

typedef struct block_keys_pointers {
    qsa_context *context;
    const qsa_shape *shape;
    const qsa_block_keys_args *args;
} block_keys_pointers;

static qsa_status run_block_keys(void *state, qsa_error *error) {
    const block_keys_pointers *p = state;
    return qsa_block_keys(p->context, p->shape, p->args, error);
}

#define A(field, value) BAD_I64(ARGS, qsa_block_keys_args, field, value, QSA_E_ARGUMENT, #field " is")

static void block_keys_refuses(void **state) {
    (void)state;
    int64_t positions[BLOCKS];
    float keys[BLOCKS][32], table[128][8][2];
    memcpy(table, cells.k, sizeof table);
    for (int b = 0; b < BLOCKS; b++) {
        positions[b] = 5 * b;
    }
    QSA_INIT(qsa_rope, rope);
    rope.dims = 16;
    rope.theta = 1e4;
    QSA_INIT(qsa_block_keys_args, args);
    args.raw = cells.raw;
    args.blocks = BLOCKS;
    args.positions = positions;
    args.norm_weight = cells.norm;
    args.eps = 1e-6f;
    args.rope = &rope;
    args.type = QSA_F32;
    args.keys = keys;
    block_keys_pointers p = {context, &cells.shape, &args};
    const refused_call call = {
        .part = {[P] = {&p, sizeof p},
                 [SHAPE] = {&cells.shape, sizeof cells.shape},
                 [ARGS] = {&args, sizeof args},
                 [VIEW] = {&rope, sizeof rope},
                 [ROW_NUMBERS] = {positions, sizeof positions}},
        .result = {{keys, sizeof keys}},
        .run = run_block_keys,
        .state = &p,
    };
    const refusal rows[] = {
        NO_PTR(P, block_keys_pointers, context, "context is NULL"),
        NO_PTR(P, block_keys_pointers, shape, "shape is NULL"),
        NO_PTR(P, block_keys_pointers, args, "args is NULL"),
        BAD_SIZE(ARGS, qsa_block_keys_args, 0, "args"),
        BAD_SIZE(ARGS, qsa_block_keys_args, 7, "args"),
        NO_PTR(ARGS, qsa_block_keys_args, raw, "raw is NULL"),
        NO_PTR(ARGS, qsa_block_keys_args, norm_weight, "norm_weight is NULL"),
        NO_PTR(ARGS, qsa_block_keys_args, keys, "keys is NULL"),
        A(blocks, -1),
        A(blocks, INT64_MIN),
        A(blocks, INT64_MAX),
        A(blocks, INT64_C(1) << 31),
        BAD_INT(ARGS, qsa_block_keys_args, type, 0, QSA_E_SHAPE, "type is unknown"),
        BAD_INT(ARGS, qsa_block_keys_args, type, QSA_F16, QSA_E_SHAPE, "type is f16"),
        BAD_INT(ARGS, qsa_block_keys_args, type, QSA_I8_G64, QSA_E_SHAPE, "type is i8_g64"),
        BAD_INT(ARGS, qsa_block_keys_args, type, 99, QSA_E_SHAPE, "type is unknown"),
        BAD_F32(ARGS, qsa_block_keys_args, eps, -1.0f, QSA_E_ARGUMENT, "eps is"),
        BAD_F32(ARGS, qsa_block_keys_args, eps, NAN, QSA_E_ARGUMENT, "eps is"),
        BAD_F32(ARGS, qsa_block_keys_args, eps, INFINITY, QSA_E_ARGUMENT, "eps is"),
        BAD_SIZE(VIEW, qsa_rope, 0, "rope"),
        BAD_SIZE(VIEW, qsa_rope, sizeof rope - 1, "rope"),
        BAD_I64(VIEW, qsa_rope, dims, -2, QSA_E_SHAPE, "rope.dims is"),
        BAD_I64(VIEW, qsa_rope, dims, 15, QSA_E_SHAPE, "rope.dims is"),
        BAD_I64(VIEW, qsa_rope, dims, 34, QSA_E_SHAPE, "rope.dims is"),
        BAD_I64(VIEW, qsa_rope, dims, 0, QSA_E_SHAPE, "rope.dims is 64"), /* the default does not fit this shape */
        BAD_I64(VIEW, qsa_rope, dims, INT64_MIN, QSA_E_SHAPE, "rope.dims is"),
        BAD_I64(VIEW, qsa_rope, dims, INT64_MAX - 1, QSA_E_SHAPE, "rope.dims is"),
        BAD_F64(VIEW, qsa_rope, theta, 1.0, QSA_E_ARGUMENT, "rope.theta is"),
        BAD_F64(VIEW, qsa_rope, theta, -1e7, QSA_E_ARGUMENT, "rope.theta is"),
        BAD_F64(VIEW, qsa_rope, theta, (double)NAN, QSA_E_ARGUMENT, "rope.theta is"),
        BAD_F64(VIEW, qsa_rope, theta, (double)INFINITY, QSA_E_ARGUMENT, "rope.theta is"),
        SPOIL_AT(int64_t, ROW_NUMBERS, 3, -1, QSA_E_ARGUMENT, "position is -1"),
        SPOIL_AT(int64_t, ROW_NUMBERS, 0, INT64_C(1) << 31, QSA_E_ARGUMENT, "position is 2147483648"),
        SPOIL_AT(int64_t, ROW_NUMBERS, BLOCKS - 1, INT64_MAX, QSA_E_ARGUMENT, "position is"),
    };
    CHECK_REFUSALS(&call, rows);
    check_shape_refusals(&call, SHAPE);
    rope.table = &table[0][0][0];
    rope.positions = 128;
    const refusal table_rows[] = {
        BAD_I64(VIEW, qsa_rope, positions, 0, QSA_E_ARGUMENT, "rope.positions is 0"),
        BAD_I64(VIEW, qsa_rope, positions, -1, QSA_E_ARGUMENT, "rope.positions is -1"),
        BAD_I64(VIEW, qsa_rope, positions, 120, QSA_E_ARGUMENT, "position is 120"),
        SPOIL_AT(int64_t, ROW_NUMBERS, 3, 128, QSA_E_ARGUMENT, "position is 128"),
    };
    CHECK_REFUSALS(&call, table_rows);
}
#undef A

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(score_refuses), cmocka_unit_test(select_refuses),     cmocka_unit_test(attend_refuses),
        cmocka_unit_test(merge_refuses), cmocka_unit_test(block_keys_refuses),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
