/* SPDX-License-Identifier: MIT */
/* The intervals of docs/numerics.md, "Screening", against float64 and against the exact kernels; and how wide they are.
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

#include "runtime/fpenv.h"
#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "score/screen.h"
#include "select/select.h"
#include "support/keys.h"
#include "support/rig.h"

enum { DIM_MAX = 512, BLOCKS = 2048 + 5, PADDED = 2064 };

/* Keys as rows and as copies, a query, and what the kernels of a level make of them. */
typedef struct bench {
    int64_t dim, heads;
    float scale;
    float *keys; /* [PADDED][dim] */
    char *tiles;
    float *iq;
    void *memory;
    qsa_screen_query query;
    float low[PADDED], high[PADDED], score[PADDED];
} bench;

static void open_bench(bench *b, rng *r, int64_t dim, int64_t heads, float scale, key_kind kind) {
    *b = (bench){.dim = dim, .heads = heads, .scale = scale};
    b->keys = calloc((size_t)(PADDED * dim), sizeof *b->keys);
    b->tiles = aligned_alloc(64, (size_t)(PADDED / QSA_TILE * qsa_screen_tile_bytes(dim)));
    b->iq = rng_floats(r, heads * dim, 1.0f);
    b->memory = aligned_alloc(64, (size_t)qsa_screen_query_bytes(heads, dim));
    key_source source = key_source_of(r, kind, dim);
    for (int64_t i = 0; i < PADDED; i++) {
        float *key = b->keys + i * dim;
        if (i < BLOCKS) {
            key_next(&source, i, key);
        }
        qsa_screen_store(key, dim, b->tiles + i / QSA_TILE * qsa_screen_tile_bytes(dim), i % QSA_TILE);
    }
}

static void close_bench(bench *b) {
    free(b->keys), free(b->tiles), free(b->iq), free(b->memory);
}

static int screen(bench *b, qsa_cpu cpu) {
    qsa_screen_kernels screens;
    qsa_score_kernels scores;
    qsa_screen_init(&screens, cpu);
    qsa_score_init(&scores, cpu);
    if (!qsa_screen_prepare(b->iq, b->heads, b->dim, b->scale, b->memory, &b->query)) {
        return 0;
    }
    qsa_screen_job job = {.tiles = b->tiles, .count = BLOCKS, .query = &b->query, .low = b->low, .high = b->high};
    qsa_score_job exact = {
        .keys = b->keys, .block_stride = b->dim * 4, .heads = b->heads, .dim = b->dim, .scale = b->scale};
    exact.rows = 1, exact.iq[0] = b->iq, exact.scores[0] = b->score, exact.count[0] = BLOCKS;
    uint64_t saved = qsa_fpenv_enter();
    screens.run(&job);
    scores.run[QSA_KEYS_ROWS][0](&exact);
    qsa_fpenv_leave(saved);
    return 1;
}

static double exact_score(const bench *b, int64_t block) {
    double score = 0;
    for (int64_t h = 0; h < b->heads; h++) {
        double dot = 0;
        for (int64_t c = 0; c < b->dim; c++) {
            dot += (double)b->iq[h * b->dim + c] * (double)b->keys[block * b->dim + c];
        }
        score += dot > 0 ? dot : 0;
    }
    return score * (double)b->scale;
}

/* Scores of both kinds lie inside; a score that is no number has a block that cannot be ruled out. */
static void check_intervals(const bench *b) {
    for (int64_t i = 0; i < BLOCKS; i++) {
        double exact = exact_score(b, i);
        assert_false(b->low[i] != b->low[i] || b->high[i] != b->high[i]);
        if (b->score[i] - b->score[i] == 0) {
            assert_true(b->low[i] <= b->score[i] && b->score[i] <= b->high[i]);
            assert_true((double)b->low[i] <= exact && exact <= (double)b->high[i]);
        } else {
            assert_true(b->low[i] == -QSA_INFINITY && b->high[i] == QSA_INFINITY);
        }
    }
}

static void intervals_hold_the_scores(void **state) {
    (void)state;
    rng r = rng_of(test_seed(71));
    static const int64_t heads[] = {1, 2, 4, 4, 5, 6, 7, 12, 64};
    int64_t prepared = 0;
    bench *b = malloc(sizeof *b);
    for (int kind = KEYS_PLAIN; kind < KEY_KINDS; kind++) {
        for (int i = 0; i < 9; i++) {
            int64_t dim = 16 * rng_range(&r, 1, i == 8 ? 4 : 10);
            open_bench(b, &r, i == 3 ? 512 : dim, heads[i], i % 2 ? 0.0883883476f : 1.0f, (key_kind)kind);
            if (i == 5) { /* queries like the keys: dot products far from those of independent vectors */
                memcpy(b->iq, b->keys, (size_t)(b->heads * b->dim) * sizeof *b->iq);
            }
            for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
                if (screen(b, cpu)) {
                    check_intervals(b);
                    prepared++;
                }
            }
            close_bench(b);
        }
    }
    free(b);
    assert_true(prepared > 8 * (KEY_KINDS - KEYS_PLAIN)); /* all but the queries of strange kinds */
}

/* A key whose copy is off along the query, by 0.4 of a step in every channel; heads are multiples of one query. */
static void plant_off_copies(bench *b, rng *r, const float *multiple) {
    for (int64_t i = 0; i < b->heads * b->dim; i++) {
        float sign = b->iq[i % b->dim] < 0 ? -1.0f : 1.0f;
        b->iq[i] = i % b->dim ? multiple[i / b->dim] * sign : 0.0f;
    }
    for (int64_t i = 0; i < BLOCKS; i++) {
        float *key = b->keys + i * b->dim;
        key[0] = 127.0f;
        for (int64_t c = 1; c < b->dim; c++) {
            key[c] = (float)rng_range(r, -100, 100) + (b->iq[c] < 0 ? -0.4f : 0.4f);
        }
        qsa_screen_store(key, b->dim, b->tiles + i / QSA_TILE * qsa_screen_tile_bytes(b->dim), i % QSA_TILE);
    }
}

/* The worst case of the bound, for some sets of heads: the interval holds, and is not wider than it has to be. */
static void intervals_are_tight(void **state) {
    (void)state;
    rng r = rng_of(test_seed(72));
    static const struct {
        int64_t heads;
        float multiple[8];
    } sets[] = {{1, {1}},
                {2, {1, 1}},
                {2, {1, -0.5f}},
                {3, {1, 1, -1}},
                {4, {1, -1, 1, -0.5f}},
                {6, {1, 1, 1, 1, 1, 1}},
                {8, {1, 1, 1, 1, 1, 1, 1, 1}}};
    bench *b = malloc(sizeof *b);
    for (size_t set = 0; set < sizeof sets / sizeof *sets; set++) {
        double closest = 0;
        open_bench(b, &r, 64, sets[set].heads, 1.0f, KEYS_PLAIN);
        plant_off_copies(b, &r, sets[set].multiple);
        assert_true(screen(b, QSA_CPU_C));
        check_intervals(b);
        for (int64_t i = 0; i < BLOCKS; i++) {
            double middle = ((double)b->low[i] + (double)b->high[i]) / 2,
                   half = ((double)b->high[i] - (double)b->low[i]) / 2;
            if (exact_score(b, i) > 0 && middle > half) {
                closest = fmax(closest, fabs(exact_score(b, i) - middle) / half);
            }
        }
        print_message("%lld heads: a score came within %.4f of the end of its interval\n", (long long)b->heads,
                      1 - closest);
        assert_true(closest > 0.95 && closest <= 1.0);
        close_bench(b);
    }
    free(b);
}

static void errors_of_copies(void **state) {
    (void)state;
    rng r = rng_of(test_seed(73));
    for (int kind = KEYS_PLAIN; kind < KEY_KINDS; kind++) {
        key_source source = key_source_of(&r, (key_kind)kind, 128);
        for (int64_t i = 0; i < 300; i++) {
            _Alignas(64) char tile[128 * QSA_TILE + QSA_SCREEN_TAIL] = {0};
            float key[128], step, error;
            double squares = 0, size = 0;
            int64_t lane = i % QSA_TILE;
            key_next(&source, i, key);
            qsa_screen_store(key, 128, tile, lane);
            memcpy(&step, tile + 128 * QSA_TILE + lane * 4, sizeof step);
            memcpy(&error, tile + 128 * QSA_TILE + (QSA_TILE + lane) * 4, sizeof error);
            for (int64_t c = 0; c < 128; c++) {
                int integer = (unsigned char)tile[(c / 4 * QSA_TILE + lane) * 4 + c % 4] - 128;
                double off = (double)key[c] - (double)step * integer;
                assert_in_range(integer + 127, 0, 254);
                squares += off * off;
                size += (double)key[c] * (double)key[c];
            }
            if (isfinite(error)) {
                assert_true((double)error >= sqrt(squares) && (double)error <= sqrt(squares) * 1.00001 + 1.1e-35);
                assert_true(size == 0 || (double)error < 0.2 * sqrt(size) || sqrt(size) < 1e-8);
            } else {
                assert_true(!isfinite(size) || size > 1e18);
            }
        }
    }
}

static int descending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* No candidate is missing, and on plain keys they are few. */
static void candidates_are_few_and_enough(void **state) {
    (void)state;
    rng r = rng_of(test_seed(74));
    bench *b = malloc(sizeof *b);
    for (int trial = 0; trial < 30; trial++) {
        int64_t k = trial ? rng_range(&r, 1, 256) : 32;
        static int32_t list[PADDED + 2 * QSA_SELECT_WORD];
        static float sorted[BLOCKS];
        open_bench(b, &r, 128, 4, 0.0883883476f,
                   trial % 3 ? KEYS_PLAIN : (key_kind)rng_range(&r, KEYS_PLAIN, KEYS_TINY));
        for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
            _Alignas(64) float lows[3 * 256];
            qsa_select_kernels selects;
            qsa_select_init(&selects, cpu);
            assert_true(screen(b, cpu));
            for (int64_t i = 0; i < BLOCKS; i += QSA_SCORE_ITEM) {
                selects.maxima(b->low + i, qsa_min(BLOCKS - i, QSA_SCORE_ITEM), 256, lows + i / 4);
            }
            qsa_candidates_job job = {
                .low = lows, .lows = 3 * 256, .high = b->high, .blocks = BLOCKS, .k = k, .list = list};
            job.most = BLOCKS;
            int64_t count = selects.candidates(&job), next = 0;
            memcpy(sorted, b->score, sizeof sorted);
            qsort(sorted, BLOCKS, sizeof *sorted, descending);
            for (int64_t i = 0; i < BLOCKS; i++) {
                int listed = next < count && list[next] == i;
                next += listed;
                assert_true(listed || b->score[i] < sorted[k - 1]);
            }
            assert_int_equal(next, count); /* ascending, nothing else */
            assert_true(count >= k);
            if (trial % 3 && k <= 128) {
                assert_true(count < 2 * k + 40);
            }
            if (trial == 1) {
                print_message("%s: %lld candidates for %lld of %d\n", qsa_cpu_name(cpu), (long long)count, (long long)k,
                              BLOCKS);
            }
            job.most = count - 1;
            assert_int_equal(selects.candidates(&job), -1);
        }
        close_bench(b);
    }
    free(b);
}

/* What cannot be prepared is refused, and nothing else. */
static void queries_out_of_range(void **state) {
    (void)state;
    rng r = rng_of(test_seed(75));
    bench *b = malloc(sizeof *b);
    open_bench(b, &r, 64, 2, 1.0f, KEYS_PLAIN);
    assert_true(screen(b, QSA_CPU_C));
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f, 1e10f};
    for (int i = 0; i < 5; i++) {
        float kept = b->iq[77];
        b->iq[77] = bad[i];
        assert_false(screen(b, QSA_CPU_C));
        b->iq[77] = kept;
    }
    b->scale = 1e-30f;
    assert_false(screen(b, QSA_CPU_C));
    b->scale = 1e30f;
    assert_false(screen(b, QSA_CPU_C));
    b->scale = 1.0f;
    memset(b->iq, 0, 64 * sizeof *b->iq); /* one head of zeros is fine; all heads have nothing to select by */
    assert_true(screen(b, QSA_CPU_C));
    check_intervals(b);
    memset(b->iq, 0, 128 * sizeof *b->iq);
    assert_false(screen(b, QSA_CPU_C));
    close_bench(b);
    free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intervals_hold_the_scores), cmocka_unit_test(intervals_are_tight),
        cmocka_unit_test(errors_of_copies),          cmocka_unit_test(candidates_are_few_and_enough),
        cmocka_unit_test(queries_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
