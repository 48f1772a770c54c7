/* SPDX-License-Identifier: MIT */
/* The stages by hand on the caller's own arrays: layouts, strides, pages, output formats, rows and parts without cells.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "support/sample.h"

enum {
    CELLS = 515,
    BLOCKS = CELLS / 4,
    ROWS = 11,
    STRIDE = BLOCKS + 5,
    IDS = 36,
    KV_HEADS = 2,
    DIM = 64,
    Q_HEADS = 4,
    INDEX_DIM = 32
};

static const qsa_type kv_types[] = {QSA_F32, QSA_F16, QSA_BF16, QSA_I8_G64};

static qsa_context *context;
static sample cells;

static int set_up(void **state) {
    (void)state;
    qsa_shape shape = sample_shape();
    context = sample_context(QSA_CPU_AUTO, 2);
    cells = sample_make(&shape, CELLS, 81);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    sample_free(&cells);
    qsa_close(context);
    return 0;
}

static void *zeroed(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(memory);
    memset(memory, 0, bytes);
    return memory;
}

/* ------------------------------------------------------------------------------------------------ score */

static size_t key_bytes(qsa_type type) {
    return type == QSA_F32 ? 4 : 2;
}

/* Keys [BLOCKS][INDEX_DIM] of the type, from the raw keys. */
static void *packed_keys(qsa_type type) {
    QSA_INIT(qsa_block_keys_args, args);
    QSA_INIT(qsa_rope, rope);
    qsa_error error;
    rope.dims = 16;
    args.raw = cells.raw;
    args.blocks = BLOCKS;
    args.norm_weight = cells.norm;
    args.eps = 1e-6f;
    args.rope = &rope;
    args.type = type;
    args.keys = zeroed(BLOCKS * INDEX_DIM * key_bytes(type));
    sample_ok(qsa_block_keys(context, &cells.shape, &args, &error), &error);
    return args.keys;
}

/* Element c of block b within tiles, counted from the words of qsa_key_layout. */
static size_t tile_index(qsa_type type, size_t b, size_t c) {
    size_t tile = b / 16, lane = b % 16;
    if (type == QSA_BF16) {
        return tile * 16 * INDEX_DIM + (c / 2) * 32 + lane * 2 + c % 2;
    }
    return tile * 16 * INDEX_DIM + c * 16 + lane;
}

/* The rows see 0, 1, ..., and all cells; scores [ROWS][STRIDE]. */
static float *scores_of(const qsa_keys *keys, int64_t *n) {
    QSA_INIT(qsa_score_args, args);
    qsa_error error;
    for (int t = 0; t < ROWS; t++) {
        n[t] = t == 0 ? 0 : t == 1 ? 3 : t == 2 ? CELLS : (int64_t)t * 50 + t;
    }
    args.iq = cells.iq;
    args.rows = ROWS;
    args.n = n;
    args.keys = keys;
    args.scores = zeroed(ROWS * STRIDE * sizeof(float));
    args.score_stride = STRIDE;
    sample_ok(qsa_score(context, &cells.shape, &args, &error), &error);
    return args.scores;
}

static void same_scores(const qsa_keys *keys, const float *expected) {
    int64_t n[ROWS];
    float *scores = scores_of(keys, n);
    assert_memory_equal(scores, expected, ROWS * STRIDE * sizeof(float));
    free(scores);
}

static void key_layouts_give_the_same_scores(void **state) {
    (void)state;
    static const qsa_type types[] = {QSA_F32, QSA_BF16};
    for (int i = 0; i < 2; i++) {
        size_t bytes = key_bytes(types[i]), row = INDEX_DIM * bytes;
        const char *packed = packed_keys(types[i]);
        char *padded = zeroed(BLOCKS * (row + 3 * bytes)), *rows_paged = zeroed(20 * 16 * row);
        char *tiles = zeroed((BLOCKS + 15) / 16 * 16 * row), *tiles_paged = zeroed(16 * (32 * row + 64));
        int32_t row_pages[(BLOCKS + 7) / 8], tile_pages[(BLOCKS + 31) / 32];
        for (int32_t p = 0; p < (BLOCKS + 7) / 8; p++) {
            row_pages[p] = (BLOCKS + 7) / 8 - 1 - p;
        }
        for (int32_t p = 0; p < (BLOCKS + 31) / 32; p++) {
            tile_pages[p] = p * 7 % 16;
        }
        for (size_t b = 0; b < BLOCKS; b++) {
            memcpy(padded + b * (row + 3 * bytes), packed + b * row, row);
            memcpy(rows_paged + (size_t)row_pages[b / 8] * (8 * row + bytes) + b % 8 * row, packed + b * row, row);
            for (size_t c = 0; c < INDEX_DIM; c++) {
                memcpy(tiles + tile_index(types[i], b, c) * bytes, packed + b * row + c * bytes, bytes);
                memcpy(tiles_paged + (size_t)tile_pages[b / 32] * (32 * row + 64) +
                           tile_index(types[i], b % 32, c) * bytes,
                       packed + b * row + c * bytes, bytes);
            }
        }
        QSA_INIT(qsa_keys, keys);
        keys.type = types[i];
        keys.data = packed;
        keys.blocks = BLOCKS;
        int64_t n[ROWS];
        float *expected = scores_of(&keys, n);
        for (int t = 0; t < ROWS; t++) { /* only visible blocks are written, and the tail's place */
            assert_true(isinf(expected[t * STRIDE + n[t] / 4]));
            for (int64_t b = n[t] / 4 + 1; b < STRIDE; b++) {
                assert_true(expected[t * STRIDE + b] == 0.0f);
            }
        }
        assert_true(expected[2 * STRIDE + 7] > 0.0f || expected[2 * STRIDE + 8] > 0.0f);
        qsa_keys view = keys;
        view.data = padded, view.block_stride = (int64_t)(row + 3 * bytes);
        same_scores(&view, expected);
        view = keys;
        view.data = rows_paged, view.pages = row_pages, view.page_blocks = 8,
        view.page_stride = (int64_t)(8 * row + bytes);
        same_scores(&view, expected);
        view = keys;
        view.layout = QSA_KEYS_TILES, view.data = tiles;
        same_scores(&view, expected);
        view.data = tiles_paged, view.pages = tile_pages, view.page_blocks = 32,
        view.page_stride = (int64_t)(32 * row + 64);
        same_scores(&view, expected);
        free((void *)(uintptr_t)packed), free(padded), free(rows_paged), free(tiles), free(tiles_paged), free(expected);
    }
}

/* ------------------------------------------------------------------------------------------------ attend */

/* Packed K/V of the cells and two more that no id names. */
typedef struct packed_kv {
    qsa_kv view;
    char *k, *v;
    uint16_t *k_scale, *v_scale;
} packed_kv;

static size_t element(qsa_type type) {
    return type == QSA_F32 ? 4 : type == QSA_I8_G64 ? 1 : 2;
}

static packed_kv pack(qsa_type type) {
    packed_kv p = {.view = {.size = sizeof p.view}};
    size_t bytes = CELLS * KV_HEADS * DIM * element(type);
    p.k = zeroed(bytes), p.v = zeroed(bytes);
    if (type == QSA_I8_G64) {
        p.k_scale = zeroed(CELLS * KV_HEADS * 2), p.v_scale = zeroed(CELLS * KV_HEADS * 2);
    }
    qsa_error error;
    sample_ok(qsa_kv_encode(type, CELLS, KV_HEADS, cells.k, p.k, p.k_scale, &error), &error);
    sample_ok(qsa_kv_encode(type, CELLS, KV_HEADS, cells.v, p.v, p.v_scale, &error), &error);
    p.view.type = type;
    p.view.k = p.k, p.view.v = p.v, p.view.k_scale = p.k_scale, p.view.v_scale = p.v_scale;
    p.view.cells = CELLS;
    return p;
}

static void unpack(packed_kv *p) {
    free(p->k), free(p->v), free(p->k_scale), free(p->v_scale);
}

/* A copy with other strides; every plane a copy into `bytes` zeroed bytes. */
static packed_kv relayout(const packed_kv *from, qsa_kv view, size_t bytes) {
    packed_kv p = {.view = view};
    size_t head = DIM * element(view.type), scale_bytes = view.type == QSA_I8_G64 ? bytes : 0;
    p.k = zeroed(bytes), p.v = zeroed(bytes);
    if (scale_bytes) {
        p.k_scale = zeroed(scale_bytes), p.v_scale = zeroed(scale_bytes);
    }
    for (size_t c = 0; c < CELLS; c++) {
        for (size_t h = 0; h < KV_HEADS; h++) {
            size_t page = view.pages ? (size_t)view.pages[c / (size_t)view.page_cells] : 0;
            size_t in_page = view.pages ? c % (size_t)view.page_cells : c, packed = c * KV_HEADS + h;
            size_t at =
                page * (size_t)view.page_stride + in_page * (size_t)view.cell_stride + h * (size_t)view.head_stride;
            size_t scale_at = page * (size_t)view.scale_page_stride + in_page * (size_t)view.scale_cell_stride +
                              h * (size_t)view.scale_head_stride;
            assert_true(at + head <= bytes);
            memcpy(p.k + at, from->k + packed * head, head);
            memcpy(p.v + at, from->v + packed * head, head);
            if (scale_bytes) {
                assert_true(scale_at + 2 <= scale_bytes);
                p.k_scale[scale_at / 2] = from->k_scale[packed];
                p.v_scale[scale_at / 2] = from->v_scale[packed];
            }
        }
    }
    p.view.k = p.k, p.view.v = p.v, p.view.k_scale = p.k_scale, p.view.v_scale = p.v_scale;
    return p;
}

enum { PARTS = 17, PART = Q_HEADS * (DIM + 2) };

/* ids NULL: the first n_ids[t]. Partials [ROWS][PARTS][Q_HEADS][DIM + 2], from malloc. */
static float *attend(const qsa_kv *kv, const int32_t *ids, int64_t id_stride, const int64_t *n_ids, int64_t chunk,
                     int64_t fold) {
    QSA_INIT(qsa_attend_args, args);
    qsa_error error;
    args.q = cells.q;
    args.rows = ROWS;
    args.ids = ids;
    args.id_stride = id_stride;
    args.n_ids = n_ids;
    args.kv = kv;
    args.chunk = chunk;
    args.fold = fold;
    args.parts = PARTS;
    args.partials = zeroed(ROWS * PARTS * PART * sizeof(float));
    memset(args.partials, 0x7b, ROWS * PARTS * PART * sizeof(float));
    sample_ok(qsa_attend(context, &cells.shape, &args, &error), &error);
    return args.partials;
}

static void same_partials(const float *a, const float *b) {
    assert_memory_equal(a, b, ROWS * PARTS * PART * sizeof(float));
}

/* Ascending ids of each row, and how many. */
static void some_ids(int32_t ids[ROWS][CELLS], int64_t n_ids[ROWS]) {
    for (int t = 0; t < ROWS; t++) {
        n_ids[t] = 0;
        for (int32_t c = t; c < CELLS; c += 1 + t) {
            ids[t][n_ids[t]++] = c;
        }
    }
}

static void kv_layouts_give_the_same_partials(void **state) {
    (void)state;
    static int32_t ids[ROWS][CELLS];
    int64_t n_ids[ROWS];
    some_ids(ids, n_ids);
    for (size_t i = 0; i < sizeof kv_types / sizeof *kv_types; i++) {
        packed_kv p = pack(kv_types[i]);
        int64_t e = (int64_t)element(kv_types[i]), head = DIM * e;
        float *expected = attend(&p.view, ids[0], CELLS, n_ids, 32, 1);
        enum { CELL_PADDED, HEAD_MAJOR, PAGED, PAGED_HEAD_MAJOR, LAYOUTS };
        int32_t pages[(CELLS + 15) / 16];
        for (int32_t j = 0; j < (CELLS + 15) / 16; j++) {
            pages[j] = j * 5 % 33; /* 33 pages, shuffled */
        }
        for (int layout = 0; layout < LAYOUTS; layout++) {
            qsa_kv view = p.view;
            switch (layout) {
            case CELL_PADDED:
                view.head_stride = head + e, view.cell_stride = 3 * head + 5 * e;
                view.scale_head_stride = 4, view.scale_cell_stride = 18;
                break;
            case HEAD_MAJOR:
                view.cell_stride = head, view.head_stride = head * CELLS;
                view.scale_cell_stride = 2, view.scale_head_stride = 2 * CELLS;
                break;
            case PAGED:
                view.cell_stride = 2 * head, view.head_stride = head, view.page_stride = 32 * head + e;
                view.scale_cell_stride = 4, view.scale_head_stride = 2, view.scale_page_stride = 66;
                break;
            default:
                view.cell_stride = head, view.head_stride = 16 * head, view.page_stride = 32 * head;
                view.scale_cell_stride = 2, view.scale_head_stride = 32, view.scale_page_stride = 64;
            }
            if (layout >= PAGED) {
                view.pages = pages, view.page_cells = 16;
            }
            packed_kv other = relayout(&p, view, (size_t)(4 * head * 33 * 16));
            float *partials = attend(&other.view, ids[0], CELLS, n_ids, 32, 1);
            same_partials(partials, expected);
            free(partials);
            unpack(&other);
        }
        free(expected);
        unpack(&p);
    }
}

static void is_empty_part(const float *part) {
    for (int h = 0; h < Q_HEADS; h++, part += DIM + 2) {
        for (int d = 0; d < DIM; d++) {
            assert_true(part[d] == 0.0f);
        }
        assert_true(isinf(part[DIM]) && part[DIM] < 0 && part[DIM + 1] == 0.0f);
    }
}

/* Ids 0..n-1 given or implied are the same, and nothing behind n_ids is read. */
static void implied_ids(void **state) {
    (void)state;
    static int32_t ids[ROWS][CELLS];
    int64_t n_ids[ROWS];
    for (int t = 0; t < ROWS; t++) {
        n_ids[t] = t == 0 ? 0 : 45 * t + 3;
        for (int32_t c = 0; c < CELLS; c++) {
            ids[t][c] = c < n_ids[t] ? c : INT32_MIN;
        }
    }
    for (size_t i = 0; i < sizeof kv_types / sizeof *kv_types; i++) {
        packed_kv p = pack(kv_types[i]);
        float *given = attend(&p.view, ids[0], CELLS, n_ids, 64, 2), *implied = attend(&p.view, NULL, 0, n_ids, 64, 2);
        same_partials(given, implied);
        for (int j = 0; j < PARTS; j++) {
            is_empty_part(given + j * PART);
        }
        free(given), free(implied);
        unpack(&p);
    }
}

/* 16 cells with a hole behind each are the part that the 16 cells alone are; a chunk of holes is an empty part. */
static void holes_are_skipped(void **state) {
    (void)state;
    int32_t alone[ROWS][16], holed[ROWS][96];
    int64_t n_alone[ROWS], n_holed[ROWS];
    for (int t = 0; t < ROWS; t++) {
        n_alone[t] = 16;
        n_holed[t] = 96;
        memset(holed[t], 0xff, sizeof holed[t]);
        for (int j = 0; j < 16; j++) {
            alone[t][j] = holed[t][2 * j] = 30 * j + t; /* ids 32..95: holes */
        }
    }
    for (size_t i = 0; i < sizeof kv_types / sizeof *kv_types; i++) {
        packed_kv p = pack(kv_types[i]);
        float *with = attend(&p.view, holed[0], 96, n_holed, 32, 1),
              *without = attend(&p.view, alone[0], 16, n_alone, 32, 1);
        assert_true(with[DIM + 1] >= 1.0f);
        is_empty_part(with + PART), is_empty_part(with + 2 * PART);
        same_partials(with, without);
        float *folded =
            attend(&p.view, holed[0], 96, n_holed, 32, 3); /* the same cells, then chunks that are passed over */
        same_partials(folded, without);
        free(with), free(without), free(folded);
        unpack(&p);
    }
}

/* ------------------------------------------------------------------------------------------------ merge */

static void merge(const float *partials, int64_t rows, int64_t parts, const float *gate, qsa_type type, int64_t stride,
                  void *out) {
    QSA_INIT(qsa_merge_args, args);
    qsa_error error;
    args.partials = partials;
    args.parts = parts;
    args.rows = rows;
    args.gate = gate;
    args.out = out;
    args.out_type = type;
    args.out_stride = stride;
    sample_ok(qsa_merge(context, &cells.shape, &args, &error), &error);
}

/* A binary16 as a number. */
static double half_value(uint16_t h) {
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double x = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return h & 0x8000 ? -x : x;
}

/* Nothing is nearer to x than h, and of two equally near the even one was taken. Neighbours in magnitude: h - 1, h + 1.
 */
static void is_nearest(double x, double value, double below, double above, int odd) {
    double error = fabs(x - value);
    assert_true(error <= fabs(x - below) && error <= fabs(x - above));
    if (odd) {
        assert_true(error < fabs(x - below) && error < fabs(x - above));
    }
}

static void is_half_of(float x, uint16_t h) {
    assert_true((h & 0x7fff) < 0x7bff);
    uint16_t down = (h & 0x7fff) ? (uint16_t)(h - 1) : h;
    is_nearest((double)x, half_value(h), half_value(down), half_value((uint16_t)(h + 1)), (h & 1) && down != h);
}

static double bf16_value(uint16_t h) {
    uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

static void is_bf16_of(float x, uint16_t h) {
    uint16_t down = (h & 0x7fff) ? (uint16_t)(h - 1) : h;
    is_nearest((double)x, bf16_value(h), bf16_value(down), bf16_value((uint16_t)(h + 1)), (h & 1) && down != h);
}

static void is_q8_0_of(const float *x, const unsigned char *block) {
    float absmax = 0.0f;
    uint16_t d;
    memcpy(&d, block, sizeof d);
    for (int i = 0; i < 32; i++) {
        absmax = fabsf(x[i]) > absmax ? fabsf(x[i]) : absmax;
    }
    is_half_of(absmax / 127.0f, d);
    for (int i = 0; i < 32; i++) {
        float scaled = absmax > 0.0f ? x[i] * (127.0f / absmax) : 0.0f;
        assert_int_equal((int8_t)block[2 + i], (int)lrintf(scaled));
    }
}

static void merged_formats_are_roundings_of_the_f32_output(void **state) {
    (void)state;
    static int32_t ids[ROWS][CELLS];
    int64_t n_ids[ROWS];
    enum { VALUES = Q_HEADS * DIM };
    static float out[ROWS][VALUES], padded[ROWS][VALUES + 3];
    static uint16_t halves[ROWS][VALUES + 1];
    static unsigned char blocks[ROWS][VALUES / 32 * 34 + 6];
    some_ids(ids, n_ids);
    n_ids[4] = 0; /* zeros: a block of q8_0 of nothing */
    packed_kv p = pack(QSA_I8_G64);
    float *partials = attend(&p.view, ids[0], CELLS, n_ids, 32, 1);
    for (int gated = 0; gated < 2; gated++) {
        const float *gate = gated ? cells.gate : NULL;
        merge(partials, ROWS, PARTS, gate, QSA_F32, 0, out);
        memset(padded, 0x11, sizeof padded), memset(halves, 0x11, sizeof halves), memset(blocks, 0x11, sizeof blocks);
        merge(partials, ROWS, PARTS, gate, QSA_F32, sizeof padded[0], padded);
        merge(partials, ROWS, PARTS, gate, QSA_F16, sizeof halves[0], halves);
        for (int t = 0; t < ROWS; t++) {
            uint32_t rest[3] = {0x11111111u, 0x11111111u, 0x11111111u};
            assert_memory_equal(padded[t], out[t], sizeof out[t]);
            assert_memory_equal(padded[t] + VALUES, rest, sizeof rest);
            assert_int_equal(halves[t][VALUES], 0x1111);
            for (int i = 0; i < VALUES; i++) {
                is_half_of(out[t][i], halves[t][i]);
            }
        }
        merge(partials, ROWS, PARTS, gate, QSA_BF16, sizeof halves[0], halves);
        merge(partials, ROWS, PARTS, gate, QSA_Q8_0, sizeof blocks[0], blocks);
        for (int t = 0; t < ROWS; t++) {
            for (int i = 0; i < VALUES; i++) {
                is_bf16_of(out[t][i], halves[t][i]);
            }
            for (int b = 0; b < VALUES / 32; b++) {
                is_q8_0_of(out[t] + b * 32, blocks[t] + b * 34);
            }
            for (int i = VALUES / 32 * 34; i < VALUES / 32 * 34 + 6; i++) {
                assert_int_equal(blocks[t][i], 0x11);
            }
        }
        for (int i = 0; i < VALUES; i++) {
            assert_true(out[4][i] == 0.0f);
        }
        assert_true(fabsf(out[3][5]) > 0.0f);
    }
    free(partials);
    unpack(&p);
}

/* gate NULL is no gate; a gate of 0 halves, exactly; of +-200 lets all or nothing through. */
static void gates(void **state) {
    (void)state;
    static int32_t ids[ROWS][CELLS];
    static float out[ROWS][Q_HEADS * DIM], gated[ROWS][Q_HEADS * DIM], gate[ROWS][Q_HEADS * DIM];
    int64_t n_ids[ROWS];
    some_ids(ids, n_ids);
    packed_kv p = pack(QSA_F32);
    float *partials = attend(&p.view, ids[0], CELLS, n_ids, 64, 1);
    merge(partials, ROWS, PARTS, NULL, QSA_F32, 0, out);
    for (int i = 0; i < ROWS * Q_HEADS * DIM; i++) {
        (&gate[0][0])[i] = i % 3 == 0 ? 0.0f : i % 3 == 1 ? 200.0f : -200.0f;
    }
    merge(partials, ROWS, PARTS, gate[0], QSA_F32, 0, gated);
    for (int i = 0; i < ROWS * Q_HEADS * DIM; i++) {
        float x = (&out[0][0])[i], y = (&gated[0][0])[i];
        assert_true(i % 3 == 0 ? y == x * 0.5f : i % 3 == 1 ? y == x : y == 0.0f);
    }
    free(partials);
    unpack(&p);
}

/* Parts without cells between the others, and behind them, change nothing; no parts at all give zeros. */
static void empty_parts_are_skipped(void **state) {
    (void)state;
    static int32_t ids[ROWS][CELLS];
    static float out[ROWS][Q_HEADS * DIM], other[ROWS][Q_HEADS * DIM];
    static float spread[ROWS][2 * PARTS + 1][PART];
    int64_t n_ids[ROWS];
    some_ids(ids, n_ids);
    packed_kv p = pack(QSA_I8_G64);
    float *partials = attend(&p.view, ids[0], CELLS, n_ids, 32, 1);
    for (int t = 0; t < ROWS; t++) {
        for (int j = 0; j < 2 * PARTS + 1; j++) {
            for (int i = 0; i < PART; i++) {
                int column = i % (DIM + 2);
                spread[t][j][i] = column == DIM ? -INFINITY : 0.0f;
            }
            if (j % 2) {
                memcpy(spread[t][j], partials + (t * PARTS + j / 2) * PART, sizeof spread[t][j]);
            }
        }
    }
    merge(partials, ROWS, PARTS, cells.gate, QSA_F32, 0, out);
    merge(&spread[0][0][0], ROWS, 2 * PARTS + 1, cells.gate, QSA_F32, 0, other);
    assert_memory_equal(out, other, sizeof out);
    memset(other, 0x7b, sizeof other);
    merge(NULL, ROWS, 0, cells.gate, QSA_F32, 0, other);
    memset(out, 0, sizeof out);
    assert_memory_equal(out, other, sizeof out);
    free(partials);
    unpack(&p);
}

/* ------------------------------------------------------------------------------------------------ all four */

static void rows_without_cells_give_zeros(void **state) {
    (void)state;
    qsa_error error;
    int64_t n[ROWS] = {0}, n_ids[ROWS];
    int32_t ids[ROWS][IDS];
    float scores[ROWS], out[ROWS][Q_HEADS * DIM], zeros[ROWS][Q_HEADS * DIM];
    QSA_INIT(qsa_keys, keys);
    keys.type = QSA_BF16;
    QSA_INIT(qsa_score_args, score);
    score.iq = cells.iq, score.rows = ROWS, score.n = n, score.keys = &keys, score.scores = scores,
    score.score_stride = 1;
    sample_ok(qsa_score(context, &cells.shape, &score, &error), &error);
    QSA_INIT(qsa_select_args, select);
    select.scores = scores, select.score_stride = 1, select.rows = ROWS, select.n = n;
    select.ids = ids[0], select.id_stride = IDS, select.n_ids = n_ids;
    sample_ok(qsa_select(context, &cells.shape, &select, &error), &error);
    for (int t = 0; t < ROWS; t++) {
        assert_int_equal(n_ids[t], 0);
        for (int i = 0; i < IDS; i++) {
            assert_int_equal(ids[t][i], -1);
        }
    }
    QSA_INIT(qsa_kv, kv);
    kv.type = QSA_I8_G64; /* and nothing else: a view of no cells */
    float *partials = attend(&kv, ids[0], IDS, n_ids, 64, 1);
    memset(out, 0x7b, sizeof out);
    merge(partials, ROWS, PARTS, cells.gate, QSA_F32, 0, out);
    memset(zeros, 0, sizeof zeros);
    assert_memory_equal(out, zeros, sizeof out);
    free(partials);
}

/* rows = 0 reads and writes nothing, whatever else is NULL. */
static void no_rows_are_no_work(void **state) {
    (void)state;
    QSA_INIT(qsa_keys, keys);
    QSA_INIT(qsa_kv, kv);
    QSA_INIT(qsa_score_args, score);
    QSA_INIT(qsa_select_args, select);
    QSA_INIT(qsa_attend_args, attend_args);
    QSA_INIT(qsa_merge_args, merge_args);
    keys.type = QSA_F32;
    kv.type = QSA_F16;
    score.keys = &keys;
    attend_args.kv = &kv;
    assert_int_equal(qsa_score(context, &cells.shape, &score, NULL), QSA_OK);
    assert_int_equal(qsa_select(context, &cells.shape, &select, NULL), QSA_OK);
    assert_int_equal(qsa_attend(context, &cells.shape, &attend_args, NULL), QSA_OK);
    assert_int_equal(qsa_merge(context, &cells.shape, &merge_args, NULL), QSA_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_layouts_give_the_same_scores),
        cmocka_unit_test(kv_layouts_give_the_same_partials),
        cmocka_unit_test(implied_ids),
        cmocka_unit_test(holes_are_skipped),
        cmocka_unit_test(merged_formats_are_roundings_of_the_f32_output),
        cmocka_unit_test(gates),
        cmocka_unit_test(empty_parts_are_skipped),
        cmocka_unit_test(rows_without_cells_give_zeros),
        cmocka_unit_test(no_rows_are_no_work),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
