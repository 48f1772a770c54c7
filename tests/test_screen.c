/* SPDX-License-Identifier: MIT */
/*
 * Screening: a cache with int8 copies of its block keys selects what one without them selects, whatever the keys are;
 * the intervals hold the scores; and most keys are not read, or there would be nothing to test.
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

#include "cache/cache.h"
#include "runtime/fpenv.h"
#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "score/screen.h"
#include "step/step.h"
#include "support/counted.h"
#include "support/keys.h"
#include "support/rig.h"

enum { DIM_MAX = 512, CANARY = 4096 };

/* ------------------------------------------------------------------------------------------------ twins */

/* The same cells in a cache without copies (0) and one with them (1). */
typedef struct twins {
    qsa_shape shape;
    qsa_context *context;
    qsa_cache *cache[2];
    qsa_sequence *sequence[2];
    float *norm;
    counter count;
} twins;

static void open_twins(twins *t, const qsa_shape *shape, qsa_type key_type, int64_t capacity, qsa_cpu cpu,
                       int64_t threads) {
    *t = (twins){.shape = *shape, .norm = calloc((size_t)shape->index_dim, sizeof(float))};
    QSA_INIT(qsa_options, options);
    options.cpu = cpu, options.threads = threads, options.allocator = counted(&t->count);
    MUST(qsa_open, &options, &t->context);
    for (int i = 0; i < 2; i++) {
        QSA_INIT(qsa_cache_options, o);
        o.shape = *shape, o.layers = 1, o.kv_type = QSA_F16, o.key_type = key_type, o.capacity = capacity;
        o.page_cells = 16 * shape->block * (1 << capacity % 4), o.index_norm = t->norm, o.screen = i;
        o.rope = (qsa_rope){.size = sizeof o.rope, .dims = 16};
        MUST(qsa_cache_create, t->context, &o, &t->cache[i]);
        MUST(qsa_sequence_create, t->cache[i], &t->sequence[i]);
    }
}

static void close_twins(twins *t) {
    for (int i = 0; i < 2; i++) {
        qsa_sequence_destroy(t->sequence[i]);
        qsa_cache_destroy(t->cache[i]);
    }
    qsa_close(t->context);
    assert_int_equal(t->count.bytes, 0);
    free(t->norm);
}

static void append_random(const twins *t, rng *r, int64_t cells) {
    int64_t kv = t->shape.kv_heads * t->shape.head_dim;
    QSA_INIT(qsa_append_args, a);
    float *k = rng_floats(r, cells * kv, 1.0f), *raw = rng_floats(r, cells * t->shape.index_dim, 1.0f);
    a.cells = cells, a.k = k, a.v = k, a.raw_index = raw;
    for (int i = 0; i < 2; i++) {
        MUST(qsa_append, t->sequence[i], &a);
    }
    free(k), free(raw);
}

/* Element c of the stored key of block b; *bytes of it. */
static char *stored(const qsa_sequence *s, int64_t b, int64_t c) {
    const qsa_cache *cache = s->cache;
    int64_t page = s->pages[b / cache->page_blocks], in_page = b % cache->page_blocks, dim = cache->shape.index_dim;
    int64_t at = cache->page.screen ? (in_page * dim + c) * (cache->key_type == QSA_F32 ? 4 : 2)
                                    : qsa_tile_offset(cache->key_type, dim, in_page, c);
    return qsa_cache_plane(cache, 0, QSA_PLANE_KEYS) + page * cache->page.keys + at;
}

static float read_stored(const qsa_sequence *s, int64_t b, int64_t c) {
    if (s->cache->key_type == QSA_F32) {
        float x;
        memcpy(&x, stored(s, b, c), sizeof x);
        return x;
    }
    uint16_t half;
    memcpy(&half, stored(s, b, c), sizeof half);
    return qsa_bf16_to_f32(half);
}

static void write_stored(const qsa_sequence *s, int64_t b, const float *key) {
    for (int64_t c = 0; c < s->cache->shape.index_dim; c++) {
        uint16_t half = qsa_f32_to_bf16(key[c]);
        memcpy(stored(s, b, c), s->cache->key_type == QSA_F32 ? (const void *)&key[c] : &half,
               s->cache->key_type == QSA_F32 ? sizeof *key : sizeof half);
    }
}

static char *tile_of(const qsa_sequence *s, int64_t b) {
    const qsa_cache *cache = s->cache;
    int64_t in_page = b % cache->page_blocks;
    return qsa_cache_plane(cache, 0, QSA_PLANE_SCREEN) + s->pages[b / cache->page_blocks] * cache->page.screen +
           in_page / QSA_TILE * qsa_screen_tile_bytes(cache->shape.index_dim);
}

/* Keys that no norm has made, in the place of those of block b; bf16 rounds them. */
static void plant(const twins *t, int64_t b, float *key) {
    for (int64_t c = 0; c < t->shape.index_dim && t->cache[0]->key_type == QSA_BF16; c++) {
        key[c] = qsa_bf16_to_f32(qsa_f32_to_bf16(key[c]));
    }
    write_stored(t->sequence[0], b, key);
    write_stored(t->sequence[1], b, key);
    qsa_screen_store(key, t->shape.index_dim, tile_of(t->sequence[1], b), b % QSA_TILE);
}

typedef struct answer {
    int32_t *ids;
    float *out;
    size_t id_bytes, out_bytes;
} answer;

static answer decode_twin(const twins *t, int i, const queries *q, int64_t stride, qsa_contract contract) {
    answer a = {.id_bytes = (size_t)(q->rows * stride) * 4,
                .out_bytes = (size_t)(q->rows * t->shape.q_heads * t->shape.head_dim) * 4};
    a.ids = malloc(a.id_bytes), a.out = malloc(a.out_bytes);
    size_t bytes;
    int64_t n = qsa_sequence_length(t->sequence[i], 0);
    MUST(qsa_plan, t->cache[i], contract, q->rows, n, 0, 0, &bytes);
    if (q->rows == 1) { /* just what this row takes: a plan allows for lists of ids as well */
        bytes = qsa_slice_of(t->cache[i], contract, n, qsa_width(&t->shape, contract, n), 0, QSA_CHUNK_MAX, 0).end;
    }
    char *workspace = aligned_alloc(64, bytes + CANARY);
    memset(workspace, 0xa5, bytes + CANARY);
    qsa_item item = {
        .sequence = t->sequence[i], .rows = q->rows, .q = q->q, .gate = q->gate, .iq = q->iq, .out = a.out};
    item.ids_out = a.ids, item.id_stride = stride;
    QSA_INIT(qsa_decode_args, args);
    args.items = &item, args.item_count = 1, args.contract = contract;
    args.workspace = workspace, args.workspace_bytes = bytes;
    int64_t calls = t->count.calls;
    MUST(qsa_decode, t->cache[i], &args);
    assert_int_equal(t->count.calls, calls);
    for (size_t at = bytes; at < bytes + CANARY; at++) {
        assert_int_equal((unsigned char)workspace[at], 0xa5);
    }
    free(workspace);
    return a;
}

static void free_answer(answer *a) {
    free(a->ids), free(a->out);
}

static void same_answers(const twins *t, const queries *q, qsa_contract contract) {
    int64_t stride = contract == QSA_DENSE ? qsa_sequence_length(t->sequence[0], 0) : t->shape.budget + t->shape.block;
    answer plain = decode_twin(t, 0, q, stride, contract), screened = decode_twin(t, 1, q, stride, contract);
    assert_memory_equal(plain.ids, screened.ids, plain.id_bytes);
    assert_memory_equal(plain.out, screened.out, plain.out_bytes);
    free_answer(&plain), free_answer(&screened);
}

/* ------------------------------------------------------------------------------------------------ the same cells */

static qsa_cpu some_cpu(rng *r) {
    qsa_cpu levels[8], cpu;
    int64_t count = 0;
    for (cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        levels[count++] = cpu;
    }
    return levels[rng_range(r, 0, count - 1)];
}

static qsa_shape some_shape(rng *r, int64_t blocks) {
    static const int64_t heads[] = {1, 2, 3, 4, 4, 4, 6, 7, 11};
    int64_t block = 2 << rng_range(r, 0, 2), dim = rng_range(r, 0, 2) ? 128 : 16 * rng_range(r, 1, 12);
    int64_t most = blocks / 8,
            take = rng_range(r, 0, 3) ? rng_range(r, 1, most < 64 ? most : 64) : rng_range(r, 1, most + 4);
    return shape_of(2, 1, 64, heads[rng_range(r, 0, 8)], dim, block, take * block);
}

/* One random shape, length and kind of keys, all kinds of queries. */
static void try_kind(rng *r, key_kind kind, qsa_cpu cpu, int64_t threads) {
    int64_t blocks = rng_range(r, 0, 3) ? rng_range(r, 1024, 2600) : rng_range(r, 2600, 5000);
    qsa_shape shape = some_shape(r, blocks);
    int64_t length = blocks * shape.block + rng_range(r, 0, shape.block - 1);
    length = length < 40000 ? length : 40000;
    twins t;
    open_twins(&t, &shape, rng_range(r, 0, 1) ? QSA_BF16 : QSA_F32, length, cpu, threads);
    append_random(&t, r, length);
    key_source source = key_source_of(r, kind, shape.index_dim);
    float key[DIM_MAX];
    for (int64_t b = 0; b < length / shape.block && kind != KEYS_AS_BUILT; b++) {
        key_next(&source, b, key);
        plant(&t, b, key);
    }
    for (int i = 0; i < 4; i++) {
        queries q = new_queries(r, &shape, i == 0 ? 3 : 1);
        key_kind of_query = i < 2 ? KEYS_PLAIN : (key_kind)rng_range(r, 0, KEY_KINDS - 1);
        key_source from = key_source_of(r, of_query, shape.index_dim);
        for (int64_t h = 0; h < q.rows * shape.index_heads && of_query != KEYS_AS_BUILT; h++) {
            key_next(&from, h, q.iq + h * shape.index_dim);
        }
        same_answers(&t, &q, i % 2 ? QSA_CELLS : QSA_BLOCKS);
        free_queries(&q);
    }
    close_twins(&t);
}

static void the_same_cells_are_selected(void **state) {
    (void)state;
    rng r = rng_of(test_seed(61));
    for (int kind = 0; kind < KEY_KINDS; kind++) {
        int64_t threads = 1;
        for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu), threads = threads % 3 + 1) {
            try_kind(&r, (key_kind)kind, cpu, threads);
        }
        for (int i = 0; i < 3; i++) {
            try_kind(&r, (key_kind)kind, some_cpu(&r), i + 1);
        }
    }
}

/* The model's own shape, as long as 40,000 cells. */
static void the_models_shape(void **state) {
    (void)state;
    rng r = rng_of(test_seed(62));
    qsa_shape shape = model_shape();
    shape.q_heads = 2, shape.kv_heads = 1, shape.head_dim = 64;
    for (int i = 0; i < 3; i++) {
        twins t;
        int64_t length = rng_range(&r, 33000, 40000);
        shape.budget = i ? 4 * rng_range(&r, 1, 512) : 2048;
        open_twins(&t, &shape, QSA_BF16, length, QSA_CPU_AUTO, i + 1);
        append_random(&t, &r, length);
        queries q = new_queries(&r, &shape, 2);
        same_answers(&t, &q, QSA_BLOCKS);
        same_answers(&t, &q, QSA_CELLS);
        free_queries(&q);
        close_twins(&t);
    }
}

/* Dense rows, short rows and rows with lists of their own need no scores: nothing is screened there. */
static void other_rows_are_as_without(void **state) {
    (void)state;
    rng r = rng_of(test_seed(63));
    qsa_shape shape = shape_of(2, 1, 64, 4, 64, 4, 64);
    twins t;
    open_twins(&t, &shape, QSA_BF16, 3000, QSA_CPU_AUTO, 2);
    static const int64_t steps[] = {1, 3, 60, 1, 500, 2435};
    for (int i = 0; i < 6; i++) {
        append_random(&t, &r, steps[i]);
        queries q = new_queries(&r, &shape, 1);
        for (int contract = QSA_BLOCKS; contract <= QSA_DENSE; contract++) {
            same_answers(&t, &q, (qsa_contract)contract);
        }
        free_queries(&q);
    }
    close_twins(&t);
}

/* ------------------------------------------------------------------------------------------------ what is read */

/* Keys of low scores become ones that would win: who reads them selects them. Without copies they are read. */
static void keys_that_are_ruled_out_are_not_read(void **state) {
    (void)state;
    rng r = rng_of(test_seed(64));
    qsa_shape shape = shape_of(2, 1, 64, 4, 128, 4, 128);
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        twins t;
        int64_t length = 6000, stride = shape.budget + shape.block, planted = 0;
        open_twins(&t, &shape, QSA_BF16, length, cpu, 1);
        append_random(&t, &r, length);
        queries q = new_queries(&r, &shape, 1);
        rig as_rig = {.shape = shape, .context = t.context};
        float *scores = row_scores(&as_rig, t.sequence[0], &q, &stride), top = 0;
        stride = shape.budget + shape.block;
        answer before = decode_twin(&t, 1, &q, stride, QSA_BLOCKS);
        for (int64_t b = 0; b < length / 4; b++) {
            top = fmaxf(top, scores[b]);
        }
        for (int64_t b = 0; b < length / 4; b++) {
            if (scores[b] < top / 3) {
                write_stored(t.sequence[0], b, q.iq);
                write_stored(t.sequence[1], b, q.iq);
                planted++;
            }
        }
        assert_true(planted > length / 4 / 3);
        answer after = decode_twin(&t, 1, &q, stride, QSA_BLOCKS), plain = decode_twin(&t, 0, &q, stride, QSA_BLOCKS);
        assert_memory_equal(before.ids, after.ids, before.id_bytes);
        assert_memory_not_equal(before.ids, plain.ids, before.id_bytes);
        free_answer(&before), free_answer(&after), free_answer(&plain);
        free(scores);
        free_queries(&q);
        close_twins(&t);
    }
}

/* Appends of any size, back and forth: every complete block has the copy of its stored key. */
static void copies_follow_the_keys(void **state) {
    (void)state;
    rng r = rng_of(test_seed(65));
    qsa_shape shape = shape_of(2, 1, 64, 2, 48, 4, 32);
    static const qsa_type types[] = {QSA_BF16, QSA_F32};
    for (int i = 0; i < 2; i++) {
        twins t;
        open_twins(&t, &shape, types[i], 2000, QSA_CPU_AUTO, 3);
        for (int step = 0; step < 40; step++) {
            int64_t length = qsa_sequence_length(t.sequence[1], 0);
            if (rng_range(&r, 0, 2) == 0) {
                int64_t to = qsa_max(0, length - rng_range(&r, 0, 40));
                if (qsa_truncate(t.sequence[0], to, NULL) != QSA_OK) { /* raw keys are gone: whole blocks still work */
                    to -= to % 4;
                    MUST(qsa_truncate, t.sequence[0], to);
                }
                MUST(qsa_truncate, t.sequence[1], to);
            } else {
                append_random(&t, &r, qsa_min(2000 - length, rng_range(&r, 1, rng_range(&r, 0, 1) ? 5 : 150)));
            }
            for (int64_t b = 0; b < qsa_sequence_length(t.sequence[1], 0) / 4; b++) {
                _Alignas(64) char tile[DIM_MAX * QSA_TILE + QSA_SCREEN_TAIL];
                float key[DIM_MAX];
                memcpy(tile, tile_of(t.sequence[1], b), (size_t)qsa_screen_tile_bytes(48));
                for (int64_t c = 0; c < 48; c++) {
                    key[c] = read_stored(t.sequence[1], b, c);
                    assert_true(key[c] == read_stored(t.sequence[0], b, c));
                }
                qsa_screen_store(key, 48, tile, b % QSA_TILE);
                assert_memory_equal(tile, tile_of(t.sequence[1], b), (size_t)qsa_screen_tile_bytes(48));
            }
        }
        close_twins(&t);
    }
}

static void the_cache_says_what_it_takes(void **state) {
    (void)state;
    qsa_shape shape = shape_of(2, 1, 64, 2, 48, 4, 32);
    twins t;
    open_twins(&t, &shape, QSA_BF16, 2000, QSA_CPU_AUTO, 1);
    QSA_INIT(qsa_cache_stats, plain);
    QSA_INIT(qsa_cache_stats, screened);
    MUST(qsa_cache_get_stats, t.cache[0], &plain);
    MUST(qsa_cache_get_stats, t.cache[1], &screened);
    int64_t of_cell = (48 + 8) / 4;
    assert_int_equal(plain.bytes_per_cell, qsa_bytes_per_cell(&shape, QSA_F16, QSA_BF16));
    assert_int_equal(screened.bytes_per_cell, plain.bytes_per_cell + of_cell);
    assert_int_equal(screened.bytes_held - plain.bytes_held, of_cell * screened.pages * screened.page_cells);
    QSA_INIT(qsa_keys, keys);
    MUST(qsa_sequence_keys, t.sequence[1], 0, &keys);
    assert_int_equal(keys.layout, QSA_KEYS_ROWS);
    MUST(qsa_sequence_keys, t.sequence[0], 0, &keys);
    assert_int_equal(keys.layout, QSA_KEYS_TILES);
    close_twins(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_cells_are_selected), cmocka_unit_test(the_models_shape),
        cmocka_unit_test(other_rows_are_as_without),   cmocka_unit_test(keys_that_are_ruled_out_are_not_read),
        cmocka_unit_test(copies_follow_the_keys),      cmocka_unit_test(the_cache_says_what_it_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
