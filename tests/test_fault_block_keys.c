/* SPDX-License-Identifier: MIT */
/* Faults of other engines' block keys, by their rows in docs/faults.md. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oracle/oracle.h"
#include "support/layer_model.h"
#include "support/rig.h"
#include "support/views.h"

static const qsa_type key_types[2] = {QSA_F32, QSA_BF16};

static void build_keys(qsa_context *context, const qsa_shape *shape, qsa_type type, const float *raw, int64_t blocks,
                       const int64_t *positions, const float *weight, void *keys) {
    QSA_INIT(qsa_block_keys_args, args);
    args.raw = raw;
    args.blocks = blocks;
    args.positions = positions;
    args.norm_weight = weight;
    args.eps = 1e-6f;
    args.type = type;
    args.keys = keys;
    MUST(qsa_block_keys, context, shape, &args);
}

static qsa_keys packed_keys(qsa_type type, const void *data, int64_t blocks) {
    QSA_INIT(qsa_keys, keys);
    keys.type = type;
    keys.data = data;
    keys.blocks = blocks;
    return keys;
}

/* ------------------------------------------------------------------------------------------ 9 */

/* The cells of the best 512 blocks. Float64 on the same keys has to agree but for blocks whose scores are nearer to the
 * cut than float32 can tell. cells [2048]. */
static void rank_row(const qsa_shape *s, const qsa_keys *keys, int64_t blocks, const float *iq, const float *scores,
                     int check, int32_t *cells) {
    int64_t n = blocks * s->block, count = oracle_select(s, QSA_BLOCKS, n, scores, cells);
    assert_int_equal(count, 2048);
    if (!check) {
        return;
    }
    float cut = INFINITY;
    for (int64_t i = 0; i < count; i += 4) {
        cut = fminf(cut, scores[cells[i] / 4]);
    }
    double *key = malloc((size_t)s->index_dim * sizeof *key), weight;
    int64_t next = 0;
    for (int64_t b = 0; b < blocks; b++) {
        read_key(keys, s->index_dim, b, key);
        double want = oracle_score(s, iq, key, &weight);
        int taken = next < count && cells[next] / 4 == b;
        next += taken ? 4 : 0;
        double bound = score_bound(s) * weight;
        assert_true(fabs(want - (double)scores[b]) <= bound);
        assert_true(taken ? want >= (double)cut - bound : want <= (double)cut + bound);
    }
    free(key);
}

static int64_t common_cells(const int32_t *a, const int32_t *b, int64_t count) {
    int64_t common = 0;
    for (int64_t i = 0, j = 0; i < count && j < count;) {
        common += a[i] == b[j];
        int step = a[i] <= b[j];
        j += b[j] <= a[i];
        i += step;
    }
    return common;
}

static void report_overlap(int64_t n, int64_t rows, int64_t checked, uint64_t seed) {
    enum { AT_ONCE = 8 };
    qsa_shape s = model_shape();
    int64_t blocks = n / s.block, piece = 4096, lengths[AT_ONCE];
    rng random = rng_of(seed);
    qsa_context *context = open_context(QSA_CPU_AUTO, 2);
    float *weight = rng_floats(&random, 128, 0.5f), *scores[2];
    char *data[2];
    for (int type = 0; type < 2; type++) {
        data[type] = malloc((size_t)(blocks * 128 * element_bytes(key_types[type])));
        scores[type] = malloc((size_t)(AT_ONCE * (blocks + 1)) * sizeof(float));
    }
    for (int64_t b = 0; b < blocks; b += piece) {
        int64_t count = blocks - b < piece ? blocks - b : piece, *positions = malloc((size_t)count * sizeof *positions);
        float *raw = rng_floats(&random, count * 4 * 128, 1.0f);
        for (int64_t i = 0; i < count; i++) {
            positions[i] = (b + i) * 4;
        }
        for (int type = 0; type < 2; type++) {
            build_keys(context, &s, key_types[type], raw, count, positions, weight,
                       data[type] + b * 128 * element_bytes(key_types[type]));
        }
        free(raw), free(positions);
    }
    int32_t cells[2][2048];
    int64_t common = 0, least = 2048;
    for (int64_t row = 0; row < rows; row += AT_ONCE) {
        float *iq = rng_floats(&random, AT_ONCE * 4 * 128, 1.0f);
        for (int type = 0; type < 2; type++) {
            qsa_keys keys = packed_keys(key_types[type], data[type], blocks);
            QSA_INIT(qsa_score_args, args);
            for (int i = 0; i < AT_ONCE; i++) {
                lengths[i] = n;
            }
            args.iq = iq;
            args.rows = AT_ONCE;
            args.n = lengths;
            args.keys = &keys;
            args.scores = scores[type];
            args.score_stride = blocks + 1;
            MUST(qsa_score, context, &s, &args);
        }
        for (int i = 0; i < AT_ONCE; i++) {
            for (int type = 0; type < 2; type++) {
                qsa_keys keys = packed_keys(key_types[type], data[type], blocks);
                rank_row(&s, &keys, blocks, iq + i * 4 * 128, scores[type] + i * (blocks + 1), row + i < checked,
                         cells[type]);
            }
            int64_t same = common_cells(cells[0], cells[1], 2048);
            common += same;
            least = same < least ? same : least;
        }
        free(iq);
    }
    printf("n %lld, %lld rows: bf16 keys take %.3f %% of the cells that f32 keys take, at least %.3f %% in a row\n",
           (long long)n, (long long)rows, 100.0 * (double)common / (double)(rows * 2048), 100.0 * (double)least / 2048);
    assert_true(common >= rows * 2048 * 97 / 100);
    for (int type = 0; type < 2; type++) {
        free(data[type]), free(scores[type]);
    }
    free(weight);
    qsa_close(context);
}

static void fault_09_overlap_of_key_types_and_selection_on_rounded_keys(void **state) {
    (void)state;
    uint64_t seed = test_seed(9);
    report_overlap(4096, 1000, 40, seed);
    report_overlap(262144, 104, 2, seed);
}

/* ------------------------------------------------------------------------------------------ 17 */

static int64_t keys_built(const rig *r) {
    QSA_INIT(qsa_cache_stats, stats);
    MUST(qsa_cache_get_stats, r->cache, &stats);
    return stats.block_keys_built;
}

static void steps_build_no_key_twice(qsa_cpu cpu) {
    rng random = rng_of(test_seed(17));
    for (int64_t block = 2; block <= 8; block *= 2) {
        rig_options options = {.shape = shape_of(2, 1, 64, 1, 16, block, 64 * block), .cpu = cpu, .capacity = 9000};
        rig r = open_rig(&options);
        for (int step = 0; step < 200; step++) {
            int64_t cells = rng_range(&random, 0, 1) ? rng_range(&random, 0, 9) : rng_range(&random, 0, 60);
            int64_t before = keys_built(&r), length = qsa_sequence_length(r.sequence, 0);
            append_cells(&r, r.sequence, cells);
            int64_t built = keys_built(&r) - before;
            assert_true(built <= (cells + block - 1) / block + 1);
            assert_int_equal(built, (length + cells) / block - length / block);
            queries q = new_queries(&random, &r.shape, length + cells > 2 ? 2 : 0);
            decoded d = decode(&r, &q, QSA_BLOCKS);
            assert_int_equal(keys_built(&r), before + built); /* decoding builds none */
            free_decoded(&d);
            free_queries(&q);
            if (step % 5 == 4) { /* a rejected draft costs none either, until its cells come again */
                int64_t back = length + cells - rng_range(&random, 0, length + cells < 16 ? 0 : 16);
                MUST(qsa_truncate, r.sequence, back);
                assert_int_equal(keys_built(&r), before + built);
            }
        }
        close_rig(&r);
    }
}

static void fault_17_a_step_builds_no_key_twice(void **state) {
    (void)state;
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        steps_build_no_key_twice(cpu);
    }
}

/* ------------------------------------------------------------------------------------------ 20 */

static qsa_cache_stats stats_of(const rig *r) {
    QSA_INIT(qsa_cache_stats, stats);
    MUST(qsa_cache_get_stats, r->cache, &stats);
    return stats;
}

static void fault_20_memory_per_cell_is_stated_and_only_a_ring_of_raw_keys_is_kept(void **state) {
    (void)state;
    qsa_shape s = model_shape();
    /* K/V, scales, and a quarter of a key of 128. */
    assert_int_equal(qsa_bytes_per_cell(&s, QSA_I8_G64, QSA_BF16), 1056 + 64);
    assert_int_equal(qsa_bytes_per_cell(&s, QSA_I8_G64, QSA_F32), 1056 + 128);
    assert_int_equal(qsa_bytes_per_cell(&s, QSA_F16, QSA_BF16), 2048 + 64);
    assert_int_equal(qsa_bytes_per_cell(&s, QSA_BF16, QSA_F32), 2048 + 128);
    assert_int_equal(qsa_bytes_per_cell(&s, QSA_F32, QSA_F32), 4096 + 128);
    rig_options options = {.shape = s, .capacity = 4096, .layers = 3};
    rig small = open_rig(&options);
    options.capacity = 4 * 4096;
    rig large = open_rig(&options);
    qsa_cache_stats before = stats_of(&small), more = stats_of(&large);
    assert_int_equal(before.bytes_per_cell, 1120);
    /* What a cell adds is its stated bytes in each layer and its share of the page bookkeeping. Raw keys would be 512.
     */
    double per_cell = (double)(more.bytes_held - before.bytes_held) / (3.0 * 4096 * 3);
    assert_true(per_cell >= 1120 && per_cell < 1120 * 1.01);
    printf("%.2f bytes a cell and layer held, %lld stated\n", per_cell, (long long)before.bytes_per_cell);
    grow(&large, large.sequence, 4 * 4096); /* a full history takes nothing more from the allocator */
    qsa_cache_stats full = stats_of(&large);
    assert_int_equal(full.bytes_held, more.bytes_held);
    assert_int_equal(full.bytes_used, INT64_C(3) * 4 * 4096 * 1120);
    assert_int_equal(full.pages_free, 0);
    /* The ring: a sequence more costs its raw keys of `rollback` cells and a page table, whatever the capacity. */
    qsa_sequence *other;
    MUST(qsa_sequence_create, large.cache, &other);
    int64_t ring = stats_of(&large).bytes_held - full.bytes_held;
    assert_true(ring >= 0 && ring <= 3 * 64 * 128 * 4 * 2 + 65536);
    qsa_sequence_destroy(other);
    assert_int_equal(stats_of(&large).bytes_held, full.bytes_held);
    close_rig(&small), close_rig(&large);
}

/* ------------------------------------------------------------------------------------------ 21 */

typedef struct golden_key {
    qsa_type type;
    int64_t position;
    float channel[9]; /* 0, 1, 17, 31, 32, 33, 63, 64, 127 */
} golden_key;

/* Computed with 40 digits (mpmath) from the formulas of docs/spec.md for the raw keys and weights of golden_input(). */
static const golden_key golden_keys[] = {
    {QSA_F32,
     0,
     {-1.24297822f, -1.26098275f, 0.792420805f, -1.38634741f, -0.741519153f, -0.613264799f, 1.14428675f, 1.09894204f,
      -1.15895712f}},
    {QSA_F32,
     4,
     {0.251281202f, 1.3507458f, 0.79396385f, -1.38634825f, 1.42537832f, -0.376373172f, 1.14428592f, 1.09894204f,
      -1.15895712f}},
    {QSA_F32,
     1000000,
     {-1.4238894f, -0.672749758f, 0.36231491f, -1.55590415f, -0.259585381f, 1.23027599f, 0.900285304f, 1.09894204f,
      -1.15895712f}},
    {QSA_BF16,
     0,
     {-1.2421875f, -1.2578125f, 0.79296875f, -1.3828125f, -0.7421875f, -0.61328125f, 1.140625f, 1.1015625f, -1.15625f}},
    {QSA_BF16,
     4,
     {0.251953125f, 1.3515625f, 0.79296875f, -1.3828125f, 1.421875f, -0.376953125f, 1.140625f, 1.1015625f, -1.15625f}},
    {QSA_BF16,
     1000000,
     {-1.421875f, -0.671875f, 0.359375f, -1.5546875f, -0.259765625f, 1.2265625f, 0.8984375f, 1.1015625f, -1.15625f}},
};

static void golden_input(float raw[4][128], float weight[128]) {
    for (int i = 0; i < 128; i++) {
        for (int c = 0; c < 4; c++) {
            raw[c][i] = (float)((c * c * 37 + i * (11 + c)) % 251 - 125) / 64.0f;
        }
        weight[i] = (float)(i * 7 % 16 - 8) / 32.0f;
    }
}

static void fault_21_block_key_goldens(void **state) {
    (void)state;
    static const int channels[9] = {0, 1, 17, 31, 32, 33, 63, 64, 127};
    float raw[4][128], weight[128];
    golden_input(raw, weight);
    qsa_shape s = model_shape();
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        qsa_context *context = open_context(cpu, 1);
        for (size_t g = 0; g < sizeof golden_keys / sizeof golden_keys[0]; g++) {
            const golden_key *golden = golden_keys + g;
            float data[128];
            double key[128], step = golden->type == QSA_BF16 ? 0.0 : 4e-7;
            build_keys(context, &s, golden->type, raw[0], 1, &golden->position, weight, data);
            qsa_keys keys = packed_keys(golden->type, data, 1);
            read_key(&keys, 128, 0, key);
            for (int i = 0; i < 9; i++) {
                if (!(fabs(key[channels[i]] - (double)golden->channel[i]) <= step)) {
                    fail_msg("%s, position %lld, channel %d: %.9g, golden %.9g", qsa_type_name(golden->type),
                             (long long)golden->position, channels[i], key[channels[i]], (double)golden->channel[i]);
                }
            }
        }
        qsa_close(context);
    }
}

static void fault_21_only_64_dims_rotate_and_the_norm_comes_first(void **state) {
    (void)state;
    static const int64_t positions[4] = {0, 4, 1000000, (INT64_C(1) << 31) - 1};
    rng random = rng_of(test_seed(21));
    qsa_context *context = open_context(QSA_CPU_AUTO, 1);
    for (int64_t dim = 64; dim <= 256; dim *= 2) {
        qsa_shape s = shape_of(2, 1, 64, 1, dim, 4, 64);
        float *one = rng_floats(&random, 4 * dim, 1.0f), *weight = rng_floats(&random, dim, 0.9f);
        float *raw = malloc((size_t)(16 * dim) * sizeof *raw), *keys = malloc((size_t)(4 * dim) * sizeof *keys);
        double *want = malloc((size_t)dim * sizeof *want), *wrong = malloc((size_t)dim * sizeof *wrong);
        for (int b = 0; b < 4; b++) {
            memcpy(raw + b * 4 * dim, one, (size_t)(4 * dim) * sizeof *raw);
        }
        build_keys(context, &s, QSA_F32, raw, 4, positions, weight, keys);
        oracle_key_rule rule = {4, dim, weight, 1e-6, 64, 1e7, QSA_F32};
        for (int b = 0; b < 4; b++) {
            assert_memory_equal(keys + b * dim + 64, keys + 64, (size_t)(dim - 64) * sizeof *keys);
            oracle_block_key(&rule, one, positions[b], want);
            /* RoPE before the norm's weights would be this: the unrotated key turned before its (1 + w). */
            oracle_block_key(&rule, one, 0, wrong);
            for (int64_t i = 0; i < dim; i++) {
                wrong[i] /= 1.0 + (double)weight[i];
            }
            oracle_rotate(wrong, 64, 1e7, positions[b]);
            double off = 0;
            for (int64_t i = 0; i < dim; i++) {
                assert_true(fabs((double)keys[b * dim + i] - want[i]) <= 2e-6);
                off = fmax(off, fabs(wrong[i] * (1.0 + (double)weight[i]) - want[i]));
            }
            assert_true(b == 0 ? off < 1e-6 : off > 0.1); /* so that the comparison above can tell them apart */
        }
        free(one), free(weight), free(raw), free(keys), free(want), free(wrong);
    }
    qsa_close(context);
}

/* K and V lie in the cache as they were given, encoded and nothing else; keys as the builder makes them. */
static void fault_21_v_is_untouched(void **state) {
    (void)state;
    static const qsa_type kv_types[4] = {QSA_F32, QSA_F16, QSA_BF16, QSA_I8_G64};
    uint64_t seed = test_seed(210);
    for (int type = 0; type < 4; type++) {
        for (int key = 0; key < 2; key++) {
            rig_options options = {.shape = shape_of(4, 2, 128, 2, 128, 4, 256), .kv_type = kv_types[type]};
            options.key_type = key_types[key];
            options.seed = seed + (uint64_t)type;
            rig r = open_rig(&options);
            grow(&r, r.sequence, 3001);
            check_cells(&r, r.sequence, 0, 3001);
            check_keys(&r, r.sequence, 0, 750);
            close_rig(&r);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_09_overlap_of_key_types_and_selection_on_rounded_keys),
        cmocka_unit_test(fault_17_a_step_builds_no_key_twice),
        cmocka_unit_test(fault_20_memory_per_cell_is_stated_and_only_a_ring_of_raw_keys_is_kept),
        cmocka_unit_test(fault_21_block_key_goldens),
        cmocka_unit_test(fault_21_only_64_dims_rotate_and_the_norm_comes_first),
        cmocka_unit_test(fault_21_v_is_untouched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
