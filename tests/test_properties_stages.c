/* SPDX-License-Identifier: MIT */
/* Properties of the stages on the caller's own arrays, of the codecs, and of the original's kernels. Every seed is
 * printed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attend/attend.h"
#include "merge/merge.h"
#include "oracle/oracle.h"
#include "support/layer_model.h"
#include "support/random_shape.h"
#include "support/rig.h"
#include "support/views.h"

static void *zeroed(int64_t bytes) { /* aligned to 64 */
    size_t rounded = (size_t)(bytes + 64) / 64 * 64;
    void *memory = aligned_alloc(64, rounded);
    assert_non_null(memory);
    memset(memory, 0, rounded);
    return memory;
}

/* ------------------------------------------------------------------------------------------ codecs */

/* Any float, all exponents, with NaN, infinities, zeros and halves of a step among them. */
static float any_float(rng *r) {
    uint32_t bits = (uint32_t)rng_next(r);
    float x;
    switch (rng_range(r, 0, 9)) {
    case 0:
        return 0.0f;
    case 1:
        return -0.0f;
    case 2:
        return (float)rng_range(r, -254, 254) * 0.5f; /* with 127 in the group: exact ties */
    case 3:
        bits &= 0xffffe000u;
        break; /* near what a half can hold */
    case 4:
        bits = (bits & 0x8fffffffu) | 0x30000000u;
        break;
    default:
        break;
    }
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void codecs_agree_with_float64_in_every_bit(void **state) {
    (void)state;
    enum { COUNT = 64 * 8 };
    rng random = rng_of(test_seed(201));
    float x[COUNT], back[COUNT];
    uint16_t halves[COUNT], scales[8], want_scales[8];
    int8_t bytes[COUNT], want_bytes[COUNT];
    double decoded_want[COUNT];
    for (int round = 0; round < 3000; round++) {
        int kind = round % 3;
        float size = ldexpf(1.0f, (int)rng_range(&random, -40, 30));
        for (int i = 0; i < COUNT; i++) {
            x[i] = kind == 0   ? any_float(&random)
                   : kind == 1 ? rng_float(&random) * size
                               : (float)rng_range(&random, -254, 254) * 0.5f;
        }
        for (int type = QSA_F16; type <= QSA_BF16; type++) {
            MUST(qsa_kv_encode, (qsa_type)type, 2, 4, x, halves, NULL);
            for (int i = 0; i < COUNT; i++) {
                uint16_t want = type == QSA_F16 ? oracle_to_f16((double)x[i]) : oracle_to_bf16((double)x[i]);
                int mask = type == QSA_F16 ? 0x7c00 : 0x7f80;
                if (isnan(x[i])) { /* which NaN is nobody's business */
                    assert_true((halves[i] & mask) == mask && (halves[i] & (0x7fff ^ mask)));
                } else {
                    assert_int_equal(halves[i], want);
                }
            }
        }
        MUST(qsa_kv_encode, QSA_I8_G64, 2, 4, x, bytes, scales);
        oracle_i8_encode(8, x, want_bytes, want_scales);
        assert_memory_equal(scales, want_scales, sizeof scales);
        assert_memory_equal(bytes, want_bytes, sizeof bytes);
        MUST(qsa_kv_decode, QSA_I8_G64, 2, 4, bytes, scales, back);
        oracle_i8_decode(8, bytes, scales, decoded_want);
        for (int i = 0; i < COUNT; i++) {
            assert_true((double)back[i] == decoded_want[i]);
        }
    }
    for (int64_t first = 0; first < 65536; first += 64) { /* every half and every bf16 */
        for (int i = 0; i < 64; i++) {
            halves[i] = (uint16_t)(first + i);
        }
        for (int type = QSA_F16; type <= QSA_BF16; type++) {
            MUST(qsa_kv_decode, (qsa_type)type, 1, 1, halves, NULL, back);
            for (int i = 0; i < 64; i++) {
                double want = type == QSA_F16 ? oracle_from_f16(halves[i]) : oracle_from_bf16(halves[i]);
                int same_sign = !signbit(back[i]) == !signbit(want);
                assert_true(isnan(want) ? isnan(back[i]) : (double)back[i] == want && same_sign);
            }
        }
    }
}

/* ------------------------------------------------------------------------------------------ score */

/* The same keys as rows, strided rows, pages and tiles: one set of bits, near float64. */
static void scores_do_not_depend_on_the_layout_of_keys(void **state) {
    (void)state;
    rng random = rng_of(test_seed(202));
    for (int round = 0; round < 40; round++) {
        qsa_shape s = random_shape(&random, 4096);
        int64_t blocks = rng_range(&random, 1, 300), rows = rng_range(&random, 1, 4), dim = s.index_dim, n[4];
        qsa_type type = round % 2 ? QSA_F32 : QSA_BF16;
        int64_t element = element_bytes(type), page_blocks = INT64_C(16) << rng_range(&random, 0, 3);
        int64_t pages = (blocks + page_blocks - 1) / page_blocks, stride = (dim + rng_range(&random, 0, 9)) * element;
        int32_t table[32];
        for (int64_t p = 0; p < pages; p++) {
            table[p] = (int32_t)(pages - 1 - p);
        }
        float *x = rng_floats(&random, blocks * dim, 1.0f), *iq = rng_floats(&random, rows * s.index_heads * dim, 1.0f);
        char *packed = zeroed(blocks * dim * element), *strided = zeroed(blocks * stride);
        char *paged = zeroed(pages * page_blocks * stride), *tiles = zeroed(pages * page_blocks * dim * element);
        for (int64_t b = 0; b < blocks; b++) {
            int64_t cell = table[b / page_blocks] * page_blocks + b % page_blocks;
            for (int64_t i = 0; i < dim; i++) {
                uint16_t half = oracle_to_bf16((double)x[b * dim + i]);
                const void *from = type == QSA_F32 ? (const void *)(x + b * dim + i) : &half;
                int64_t tile = cell / 16 * 16 * dim * element, in_tile = (i * 16 + cell % 16) * 4;
                if (type == QSA_BF16) {
                    in_tile = ((i / 2 * 16 + cell % 16) * 2 + i % 2) * 2;
                }
                memcpy(packed + (b * dim + i) * element, from, (size_t)element);
                memcpy(strided + b * stride + i * element, from, (size_t)element);
                memcpy(paged + cell * stride + i * element, from, (size_t)element);
                memcpy(tiles + tile + in_tile, from, (size_t)element);
            }
        }
        qsa_keys views[4];
        for (int v = 0; v < 4; v++) {
            views[v] = (qsa_keys){.size = sizeof views[v], .type = type, .blocks = blocks};
            views[v].data = v == 0 ? packed : v == 1 ? strided : v == 2 ? paged : tiles;
            views[v].block_stride = v == 1 || v == 2 ? stride : 0;
            views[v].pages = v >= 2 ? table : NULL;
            views[v].page_blocks = v >= 2 ? page_blocks : 0;
            views[v].layout = v == 3 ? QSA_KEYS_TILES : QSA_KEYS_ROWS;
        }
        for (int64_t t = 0; t < rows; t++) {
            n[t] = rng_range(&random, 0, blocks * s.block + s.block - 1);
        }
        float *first = zeroed(rows * (blocks + 1) * 4), *scores = zeroed(rows * (blocks + 1) * 4);
        for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
            qsa_context *context = open_context(cpu, rng_range(&random, 1, 3));
            for (int v = 0; v < 4; v++) {
                QSA_INIT(qsa_score_args, args);
                args.iq = iq;
                args.rows = rows;
                args.n = n;
                args.keys = &views[v];
                args.scores = cpu == QSA_CPU_C && v == 0 ? first : scores;
                args.score_stride = blocks + 1;
                MUST(qsa_score, context, &s, &args);
                for (int64_t t = 0; t < rows; t++) { /* behind n / block nothing is said about the row */
                    assert_memory_equal(args.scores + t * (blocks + 1), first + t * (blocks + 1),
                                        (size_t)(n[t] / s.block + 1) * 4);
                }
            }
            qsa_close(context);
        }
        double *key = zeroed(dim * 8);
        for (int64_t t = 0; t < rows; t++) {
            for (int64_t b = 0; b < n[t] / s.block; b++) {
                double weight;
                read_key(&views[b % 4], dim, b, key);
                double want = oracle_score(&s, iq + t * s.index_heads * dim, key, &weight);
                assert_true(fabs((double)first[t * (blocks + 1) + b] - want) <= score_bound(&s) * weight);
            }
            assert_true(isinf(first[t * (blocks + 1) + n[t] / s.block]));
        }
        free(key), free(first), free(scores), free(x), free(iq), free(packed), free(strided), free(paged), free(tiles);
    }
}

/* ------------------------------------------------------------------------------------------ attend, merge */

/* K/V in memory of a test's own: packed, and the same scattered over pages with gaps between, all gaps NaN. */
typedef struct own_kv {
    qsa_kv packed, scattered;
    int32_t *table;
    void *memory[8];
} own_kv;

/* Copies [cells][heads] items of `bytes` into pages of random strides. */
static void *scatter(rng *r, const own_kv *kv, const void *from, int64_t cells, int64_t heads, int64_t bytes,
                     int64_t unit, int64_t *cell_stride, int64_t *head_stride, int64_t *page_stride) {
    int64_t page_cells = kv->scattered.page_cells, pages = (cells + page_cells - 1) / page_cells;
    *head_stride = bytes + unit * rng_range(r, 0, 5);
    *cell_stride = heads * *head_stride + unit * rng_range(r, 0, 5);
    *page_stride = page_cells * *cell_stride + unit * rng_range(r, 0, 9);
    char *to = zeroed(pages * *page_stride);
    memset(to, 0xff, (size_t)(pages * *page_stride));
    for (int64_t c = 0; c < cells; c++) {
        for (int64_t g = 0; g < heads; g++) {
            memcpy(to + kv->table[c / page_cells] * *page_stride + c % page_cells * *cell_stride + g * *head_stride,
                   (const char *)from + (c * heads + g) * bytes, (size_t)bytes);
        }
    }
    return to;
}

static own_kv make_kv(rng *r, const qsa_shape *s, qsa_type type, int64_t cells) {
    own_kv kv = {.packed = {.size = sizeof kv.packed, .type = type, .cells = cells}};
    int64_t groups = s->head_dim / 64, count = cells * s->kv_heads, bytes = s->head_dim * element_bytes(type);
    for (int i = 0; i < 2; i++) {
        float *x = rng_floats(r, count * s->head_dim, 1.0f + 4.0f * (float)i);
        kv.memory[i] = zeroed(count * bytes);
        kv.memory[2 + i] = type == QSA_I8_G64 ? zeroed(count * groups * 2) : NULL;
        MUST(qsa_kv_encode, type, count, groups, x, kv.memory[i], kv.memory[2 + i]);
        free(x);
    }
    kv.packed.k = kv.memory[0];
    kv.packed.v = kv.memory[1];
    kv.packed.k_scale = kv.memory[2];
    kv.packed.v_scale = kv.memory[3];
    kv.scattered = kv.packed;
    kv.scattered.page_cells = s->block << rng_range(r, 0, 5);
    int64_t pages = (cells + kv.scattered.page_cells - 1) / kv.scattered.page_cells;
    kv.table = zeroed(pages * 4);
    for (int64_t p = 0; p < pages; p++) {
        kv.table[p] = (int32_t)(pages - 1 - p);
    }
    kv.scattered.pages = kv.table;
    rng strides = *r; /* K and V share their strides, and so do their scales: the same draws */
    for (int i = 0; i < 2; i++) {
        rng same = strides;
        kv.memory[4 + i] = scatter(&same, &kv, kv.memory[i], cells, s->kv_heads, bytes, element_bytes(type),
                                   &kv.scattered.cell_stride, &kv.scattered.head_stride, &kv.scattered.page_stride);
        if (type == QSA_I8_G64) {
            kv.memory[6 + i] = scatter(&same, &kv, kv.memory[2 + i], cells, s->kv_heads, groups * 2, 2,
                                       &kv.scattered.scale_cell_stride, &kv.scattered.scale_head_stride,
                                       &kv.scattered.scale_page_stride);
        }
    }
    rng_next(r);
    kv.scattered.k = kv.memory[4];
    kv.scattered.v = kv.memory[5];
    kv.scattered.k_scale = kv.memory[6];
    kv.scattered.v_scale = kv.memory[7];
    return kv;
}

static void free_own_kv(own_kv *kv) {
    for (int i = 0; i < 8; i++) {
        free(kv->memory[i]);
    }
    free(kv->table);
}

static void attend(qsa_context *context, const qsa_shape *s, const float *q, const int32_t *ids, int64_t n_ids,
                   const qsa_kv *kv, int64_t chunk, int64_t fold, float *partials) {
    QSA_INIT(qsa_attend_args, args);
    args.q = q;
    args.rows = 1;
    args.ids = ids;
    args.id_stride = n_ids;
    args.n_ids = &n_ids;
    args.kv = kv;
    args.chunk = chunk;
    args.fold = fold;
    args.partials = partials;
    args.parts = (n_ids + chunk * fold - 1) / (chunk * fold);
    MUST(qsa_attend, context, s, &args);
}

/* One part: log sum exp and acc / l against float64 on the part's ids. */
static void check_part(const qsa_shape *s, const cell_reader *reader, const float *q, const int32_t *ids, int64_t n_ids,
                       const float *part) {
    int64_t dim = s->head_dim;
    double *want = zeroed(s->q_heads * dim * 8), *lse = zeroed(s->q_heads * 8);
    double bound = att_bound(reader->kv.type), size = 0;
    oracle_attend(s, q, NULL, ids, n_ids, read_cell, reader, want, lse);
    for (int64_t i = 0; i < s->q_heads * dim; i++) {
        size = fmax(size, fabs(want[i]));
    }
    for (int64_t h = 0; h < s->q_heads; h++) {
        const float *of = part + h * (dim + 2);
        double sum = (double)of[dim + 1];
        if (isinf(lse[h])) {
            assert_true(isinf(of[dim]) && of[dim] < 0 && sum == 0);
        } else {
            assert_true(fabs((double)of[dim] + log(sum) - lse[h]) <= bound * fmax(1, fabs(lse[h])));
        }
        for (int64_t i = 0; i < dim; i++) {
            double got = sum > 0 ? (double)of[i] / sum : (double)of[i];
            if (!(fabs(got - want[h * dim + i]) <= bound * size)) {
                fail_msg("head %d, channel %d: %.9g, in float64 %.9g", (int)h, (int)i, got, want[h * dim + i]);
            }
        }
    }
    free(want), free(lse);
}

/* Ids in any order, with holes and repeats: every part against float64, one set of bits for all layouts and levels. */
static void parts_agree_with_float64(void **state) {
    (void)state;
    rng random = rng_of(test_seed(203));
    for (int round = 0; round < 48; round++) {
        qsa_shape s = random_shape(&random, 2048);
        qsa_type type = (qsa_type)(QSA_F32 + round % 4);
        int64_t cells = rng_range(&random, 1, 600), n_ids = rng_range(&random, 0, 400);
        int64_t chunk = 32 << rng_range(&random, 0, 1), fold = rng_range(&random, 1, 4), each = chunk * fold;
        int64_t parts = (n_ids + each - 1) / each, floats = s.q_heads * (s.head_dim + 2);
        own_kv kv = make_kv(&random, &s, type, cells);
        cell_reader readers[2] = {{kv.packed, s}, {kv.scattered, s}};
        float *q = rng_floats(&random, s.q_heads * s.head_dim, 4.0f);
        float *first = zeroed(parts * floats * 4), *got = zeroed(parts * floats * 4);
        int32_t *ids = zeroed(n_ids * 4);
        int64_t holes = rng_range(&random, 0, 3); /* none, some, many, all but few */
        for (int64_t i = 0; i < n_ids; i++) {
            ids[i] = rng_range(&random, 0, 3) < holes ? -1 : (int32_t)rng_range(&random, 0, cells - 1);
        }
        for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
            qsa_context *context = open_context(cpu, rng_range(&random, 1, 3));
            for (int view = 0; view < 2; view++) {
                float *to = cpu == QSA_CPU_C && view == 0 ? first : got;
                memset(to, 0xa5, (size_t)(parts * floats) * 4);
                attend(context, &s, q, ids, n_ids, &readers[view].kv, chunk, fold, to);
                assert_memory_equal(to, first, (size_t)(parts * floats) * 4);
            }
            qsa_close(context);
        }
        for (int64_t p = 0; p < parts; p++) {
            int64_t count = n_ids - p * each < each ? n_ids - p * each : each;
            check_part(&s, &readers[p % 2], q, ids + p * each, count, first + p * floats);
        }
        free(q), free(first), free(got), free(ids);
        free_own_kv(&kv);
    }
}

/* A list cut anywhere, each piece attended in a call of its own: merged, it is the attention over the whole list. */
static void any_split_merges_to_the_whole(void **state) {
    (void)state;
    rng random = rng_of(test_seed(204));
    for (int round = 0; round < 48; round++) {
        qsa_shape s = random_shape(&random, 2048);
        qsa_type type = (qsa_type)(QSA_F32 + round % 4);
        int64_t cells = rng_range(&random, 1, 600), n_ids = rng_range(&random, 1, 500), parts = 0;
        int64_t floats = s.q_heads * (s.head_dim + 2), width = s.q_heads * s.head_dim;
        own_kv kv = make_kv(&random, &s, type, cells);
        cell_reader reader = {kv.scattered, s};
        float *q = rng_floats(&random, width, 4.0f), *gate = round % 3 ? rng_floats(&random, width, 6.0f) : NULL;
        float *partials = zeroed((n_ids + 1) * floats * 4), *out = zeroed(width * 4);
        double *want = zeroed(width * 8), *merged = zeroed(width * 8), size = 0;
        int32_t *ids = zeroed(n_ids * 4);
        for (int64_t i = 0; i < n_ids; i++) {
            ids[i] = rng_range(&random, 0, 9) ? (int32_t)rng_range(&random, 0, cells - 1) : -1;
        }
        ids[rng_range(&random, 0, n_ids - 1)] = 0; /* not holes alone */
        qsa_context *context = open_context(QSA_CPU_AUTO, 2);
        for (int64_t at = 0; at < n_ids; parts++) {
            int64_t left = n_ids - at, count = rng_range(&random, 1, left < 150 ? left : 150);
            attend(context, &s, q, ids + at, count, &reader.kv, 64, 3, partials + parts * floats);
            at += count;
        }
        QSA_INIT(qsa_merge_args, args);
        args.partials = partials;
        args.parts = parts;
        args.rows = 1;
        args.gate = gate;
        args.out = out;
        MUST(qsa_merge, context, &s, &args);
        oracle_attend(&s, q, gate, ids, n_ids, read_cell, &reader, want, NULL);
        oracle_merge(&s, partials, parts, gate, merged);
        for (int64_t i = 0; i < width; i++) {
            size = fmax(size, fabs(want[i]));
        }
        for (int64_t i = 0; i < width; i++) {
            assert_true(fabs((double)out[i] - want[i]) <= att_bound(type) * size);
            assert_true(fabs((double)out[i] - merged[i]) <= QSA_F32_BOUND * size);
        }
        free(q), free(gate), free(partials), free(out), free(want), free(merged), free(ids);
        free_own_kv(&kv);
        qsa_close(context);
    }
}

static void q8_0_of(const float *x, unsigned char *out) {
    float largest = 0;
    for (int i = 0; i < 32; i++) {
        largest = fmaxf(largest, fabsf(x[i]));
    }
    float up = largest > 0 ? 127.0f / largest : 0.0f;
    uint16_t d = oracle_to_f16((double)(largest / 127.0f));
    memcpy(out, &d, 2);
    for (int i = 0; i < 32; i++) {
        out[2 + i] = (unsigned char)(int8_t)rintf(x[i] * up);
    }
}

/* Each output format is the f32 output, rounded; strides between rows change nothing. */
static void output_formats_round_the_f32_output(void **state) {
    (void)state;
    rng random = rng_of(test_seed(205));
    for (int round = 0; round < 40; round++) {
        qsa_shape s = random_shape(&random, 4096);
        int64_t parts = rng_range(&random, 0, 6), rows = rng_range(&random, 1, 3), dim = s.head_dim,
                width = s.q_heads * dim;
        float *partials = rng_floats(&random, rows * parts * s.q_heads * (dim + 2), 3.0f);
        float *gate = rng_floats(&random, rows * width, 5.0f), *out = zeroed(rows * width * 4);
        for (int64_t i = 0; i < rows * parts * s.q_heads; i++) {
            float *part = partials + i * (dim + 2);
            part[dim] *= 10.0f;
            part[dim + 1] = 1.0f + fabsf(part[dim + 1]);
            if (rng_range(&random, 0, 4) == 0) {
                memset(part, 0, (size_t)(dim + 2) * 4);
                part[dim] = -INFINITY;
            }
        }
        for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
            qsa_context *context = open_context(cpu, 2);
            QSA_INIT(qsa_merge_args, args);
            args.partials = partials;
            args.parts = parts;
            args.rows = rows;
            args.gate = gate;
            args.out = out;
            MUST(qsa_merge, context, &s, &args);
            for (int type = QSA_F16; type <= QSA_Q8_0; type++) {
                if (type == QSA_I8_G64) {
                    continue;
                }
                int64_t bytes = type == QSA_Q8_0 ? width / 32 * 34 : width * 2, stride = bytes + 64;
                unsigned char *small = zeroed(rows * stride), block[34];
                args.out = small;
                args.out_type = (qsa_type)type;
                args.out_stride = stride;
                MUST(qsa_merge, context, &s, &args);
                for (int64_t t = 0; t < rows; t++) {
                    for (int64_t i = 0; i < width && type != QSA_Q8_0; i++) {
                        uint16_t got;
                        double x = (double)out[t * width + i];
                        memcpy(&got, small + t * stride + i * 2, 2);
                        assert_int_equal(got, type == QSA_F16 ? oracle_to_f16(x) : oracle_to_bf16(x));
                    }
                    for (int64_t i = 0; i < width && type == QSA_Q8_0; i += 32) {
                        q8_0_of(out + t * width + i, block);
                        assert_memory_equal(small + t * stride + i / 32 * 34, block, 34);
                    }
                    for (int64_t i = bytes; i < stride; i++) {
                        assert_int_equal(small[t * stride + i], 0);
                    }
                }
                free(small);
            }
            double *want = zeroed(width * 8), size = 1e-30;
            for (int64_t t = 0; t < rows; t++) {
                oracle_merge(&s, partials + t * parts * s.q_heads * (dim + 2), parts, gate + t * width, want);
                for (int64_t i = 0; i < width; i++) {
                    size = fmax(size, fabs(want[i]));
                }
                for (int64_t i = 0; i < width; i++) {
                    assert_true(fabs((double)out[t * width + i] - want[i]) <= QSA_F32_BOUND * size);
                }
            }
            free(want);
            qsa_close(context);
        }
        free(partials), free(gate), free(out);
    }
}

/* ------------------------------------------------------------------------------------------ the original's kernels */

/* attn and attn3 on chunks of 64, attn2 on chunks of 32: the bits of qsa_attend(), a chunk a part. */
static void original_attention_kernels_give_the_same_bits(void **state) {
    (void)state;
    static qsa_attend_fn *const kernels[3] = {qsa_attend_attn, qsa_attend_attn2, qsa_attend_attn3};
    rng random = rng_of(test_seed(206));
    for (int round = 0; round < 45; round++) {
        qsa_shape s = round == 0 ? model_shape() : random_shape(&random, 2048);
        int64_t cells = rng_range(&random, 1, 600), n_ids = rng_range(&random, 0, 300),
                chunk = round % 3 == 1 ? 32 : 64;
        int64_t parts = (n_ids + chunk - 1) / chunk, dim = s.head_dim, heads = s.q_heads / s.kv_heads;
        own_kv kv = make_kv(&random, &s, QSA_I8_G64, cells);
        float *q = rng_floats(&random, s.q_heads * dim, 4.0f);
        float *want = zeroed(parts * s.q_heads * (dim + 2) * 4), *got = zeroed(heads * (dim + 2) * 4);
        void *prepared = zeroed((int64_t)qsa_prepared_bytes(heads, dim));
        int32_t *ids = zeroed(n_ids * 4);
        for (int64_t i = 0; i < n_ids; i++) {
            ids[i] = rng_range(&random, 0, 5) ? (int32_t)rng_range(&random, 0, cells - 1) : -1;
        }
        qsa_context *context = open_context(QSA_CPU_AUTO, 1);
        attend(context, &s, q, ids, n_ids, &kv.scattered, chunk, 1, want);
        qsa_close(context);
        for (int64_t p = 0; p < parts; p++) {
            for (int64_t g = 0; g < s.kv_heads; g++) {
                qsa_attend_prepare_c(q + g * heads * dim, heads, dim, s.scale, prepared);
                qsa_attend_unit unit = {.kv = &kv.scattered, .kv_head = g, .heads = heads, .head_dim = dim};
                unit.scale = s.scale;
                unit.ids = ids + p * chunk;
                unit.n_ids = n_ids - p * chunk < chunk ? n_ids - p * chunk : chunk;
                unit.chunk = chunk;
                unit.q = q + g * heads * dim;
                unit.prepared = prepared;
                unit.part = got;
                memset(got, 0xa5, (size_t)(heads * (dim + 2)) * 4);
                kernels[round % 3](&unit);
                assert_memory_equal(got, want + (p * s.q_heads + g * heads) * (dim + 2),
                                    (size_t)(heads * (dim + 2)) * 4);
            }
        }
        free(q), free(want), free(got), free(prepared), free(ids);
        free_own_kv(&kv);
    }
}

static void the_original_merge_gives_the_same_bits(void **state) {
    (void)state;
    rng random = rng_of(test_seed(207));
    for (int round = 0; round < 60; round++) {
        qsa_shape s = random_shape(&random, 4096);
        int64_t parts = rng_range(&random, 0, 70), dim = s.head_dim, width = s.q_heads * dim;
        float *partials = rng_floats(&random, parts * s.q_heads * (dim + 2), 3.0f);
        float *gate = round % 3 ? rng_floats(&random, width, 20.0f) : NULL, *want = zeroed(width * 4),
              *got = zeroed(dim * 4);
        for (int64_t i = 0; i < parts * s.q_heads; i++) {
            float *part = partials + i * (dim + 2);
            part[dim] *= 20.0f;
            part[dim + 1] = fabsf(part[dim + 1]) + 0.5f;
            if (rng_range(&random, 0, 5) == 0) {
                memset(part, 0, (size_t)(dim + 2) * 4);
                part[dim] = -INFINITY;
            }
        }
        qsa_context *context = open_context(QSA_CPU_AUTO, 2);
        QSA_INIT(qsa_merge_args, args);
        args.partials = partials;
        args.parts = parts;
        args.rows = 1;
        args.gate = gate;
        args.out = want;
        MUST(qsa_merge, context, &s, &args);
        qsa_close(context);
        for (int64_t h = 0; h < s.q_heads; h++) {
            qsa_merge_job job = {
                .partials = partials + h * (dim + 2), .part_stride = s.q_heads * (dim + 2), .parts = parts};
            job.head_dim = dim;
            job.gate = gate ? gate + h * dim : NULL;
            job.out = got;
            qsa_merge_first(&job);
            assert_memory_equal(got, want + h * dim, (size_t)dim * 4);
        }
        free(partials), free(gate), free(want), free(got);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codecs_agree_with_float64_in_every_bit),
        cmocka_unit_test(scores_do_not_depend_on_the_layout_of_keys),
        cmocka_unit_test(parts_agree_with_float64),
        cmocka_unit_test(any_split_merges_to_the_whole),
        cmocka_unit_test(output_formats_round_the_f32_output),
        cmocka_unit_test(original_attention_kernels_give_the_same_bits),
        cmocka_unit_test(the_original_merge_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
