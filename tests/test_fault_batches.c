/* SPDX-License-Identifier: MIT */
/* Faults of other engines with batches and draft rows, by their rows in docs/faults.md. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/rig.h"

static const qsa_contract contracts[2] = {QSA_BLOCKS, QSA_CELLS};

/* ------------------------------------------------------------------------------------------ 22 */

/* Row i of a batch against the same row in a call of its own; the batch's lists are as wide as its widest row's. */
static void assert_same_row(const decoded *batch, int64_t i, const decoded *solo) {
    const int32_t *ids = batch->ids + i * batch->width;
    assert_true(batch->out_width == solo->out_width && batch->width >= solo->width);
    assert_memory_equal(batch->out + i * batch->out_width, solo->out, (size_t)solo->out_width * sizeof *solo->out);
    assert_memory_equal(ids, solo->ids, (size_t)solo->width * sizeof *solo->ids);
    for (int64_t j = solo->width; j < batch->width; j++) {
        assert_int_equal(ids[j], -1);
    }
}

static void fault_22_a_row_in_a_batch_is_the_row_alone(void **state) {
    (void)state;
    static const int64_t lengths[] = {55996, 1, 2051, 2052, 3, 4, 5, 2047, 2048, 2049, 2053, 4095, 4096, 4097, 10001, 131, 30938};
    static const int64_t batches[] = {2, 3, 8, 17};
    rng random = rng_of(test_seed(22));
    rig_options options = {.shape = small_shape(), .capacity = 140000, .page_cells = 64, .threads = 3, .seed = 22};
    queries q = new_queries(&random, &options.shape, 17);
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        options.cpu = cpu;
        rig r = open_rig(&options);
        qsa_sequence *sequences[17];
        for (int i = 0; i < 17; i++) {
            MUST(qsa_sequence_create, r.cache, &sequences[i]);
            grow(&r, sequences[i], lengths[i]);
        }
        for (int c = 0; c < 2; c++) {
            decoded solo[17];
            for (int i = 0; i < 17; i++) {
                queries one = queries_at(&r, &q, i, 1);
                solo[i] = decode_rows(&r, sequences[i], &one, contracts[c], 0, 0);
            }
            for (int b = 0; b < 4; b++) {
                for (int64_t first = 0; first + batches[b] <= 17; first += 7) {
                    queries some = queries_at(&r, &q, first, batches[b]);
                    decoded all = decode_batch(&r, sequences + first, &some, contracts[c]);
                    for (int64_t i = 0; i < batches[b]; i++) {
                        assert_same_row(&all, i, &solo[first + i]);
                    }
                    free_decoded(&all);
                }
            }
            for (int i = 0; i < 17; i++) {
                free_decoded(&solo[i]);
            }
        }
        for (int i = 0; i < 17; i++) {
            qsa_sequence_destroy(sequences[i]);
        }
        close_rig(&r);
    }
    free_queries(&q);
}

/* ------------------------------------------------------------------------------------------ 23 */

enum { LISTS = 5, LIST = 60, CANARY = 64 };

typedef struct fenced {
    unsigned char *memory, *at;
    size_t bytes;
} fenced;

/* Bytes that begin at a multiple of 64, between canaries. */
static fenced fence(size_t bytes) {
    fenced f = {.bytes = bytes};
    f.memory = aligned_alloc(64, (bytes + 3 * CANARY) / 64 * 64);
    assert_non_null(f.memory);
    memset(f.memory, 0xc3, (bytes + 3 * CANARY) / 64 * 64);
    f.at = f.memory + CANARY;
    return f;
}

static void check_fence(const fenced *f) {
    for (size_t i = 0; i < CANARY; i++) {
        assert_true(f->memory[i] == 0xc3 && f->at[f->bytes + i] == 0xc3);
    }
}

/* Row t reads the cells that are t modulo 5: as one item of 5 rows, or as 5 items of the last rows of 5 forks. */
static void disjoint(rig *r, const queries *q, const int32_t *ids, int items) {
    size_t row = (size_t)(r->shape.q_heads * r->shape.head_dim) * sizeof(float);
    int64_t length = qsa_sequence_length(r->sequence, 0);
    fenced out = fence(LISTS * row);
    qsa_sequence *forks[LISTS] = {NULL};
    qsa_item item[LISTS];
    QSA_INIT(qsa_decode_args, args);
    for (int i = 0; i < items; i++) {
        queries part = queries_at(r, q, i, LISTS / items);
        MUST(qsa_sequence_fork, r->sequence, items == 1 ? length : length - LISTS + 1 + i, &forks[i]);
        item[i] = (qsa_item){.sequence = forks[i], .rows = LISTS / items, .q = part.q, .gate = part.gate,
                             .out = out.at + (size_t)i * row, .ids = ids + (int64_t)i * LIST, .id_stride = LIST};
    }
    MUST(qsa_plan, r->cache, QSA_BLOCKS, LISTS, length, 0, 0, &args.workspace_bytes);
    fenced workspace = fence(args.workspace_bytes);
    args.items = item;
    args.item_count = items;
    args.workspace = workspace.at;
    MUST(qsa_decode, r->cache, &args);
    check_fence(&out);
    check_fence(&workspace);
    for (int64_t t = 0; t < LISTS; t++) {
        const float *got = (const float *)(const void *)(out.at + (size_t)t * row);
        assert_true(att_error(r, r->sequence, q, t, ids + t * LIST, LIST, got) < att_bound(r->kv_type));
    }
    for (int i = 0; i < items; i++) {
        qsa_sequence_destroy(forks[i]);
    }
    free(out.memory);
    free(workspace.memory);
}

static void fault_23_five_rows_with_five_disjoint_lists(void **state) {
    (void)state;
    static const qsa_type kv[] = {QSA_F32, QSA_F16, QSA_BF16, QSA_I8_G64};
    rng random = rng_of(test_seed(23));
    int32_t ids[LISTS * LIST];
    for (int t = 0; t < LISTS; t++) {
        for (int j = 0; j < LIST; j++) {
            ids[t * LIST + j] = (int32_t)(LISTS * j + t);
        }
    }
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        for (int i = 0; i < 4; i++) {
            rig_options options = {.shape = shape_of(4, 2, 64, 2, 32, 4, 32), .kv_type = kv[i], .cpu = cpu, .page_cells = 64,
                                   .threads = 2, .seed = 23};
            rig r = open_rig(&options);
            queries q = new_queries(&random, &r.shape, LISTS);
            grow(&r, r.sequence, LISTS * LIST + LISTS);
            disjoint(&r, &q, ids, 1);
            disjoint(&r, &q, ids, LISTS);
            free_queries(&q);
            close_rig(&r);
        }
    }
}

/* ------------------------------------------------------------------------------------------ 24 */

enum { SLOTS = 12, STEPS = 2000 };

static void check_counts(const rig *r, qsa_sequence *const *slot, const int64_t *length) {
    QSA_INIT(qsa_cache_stats, stats);
    MUST(qsa_cache_get_stats, r->cache, &stats);
    int64_t pages = 0, sequences = 1; /* the rig's own */
    for (int i = 0; i < SLOTS; i++) {
        if (slot[i]) {
            assert_int_equal(qsa_sequence_length(slot[i], 0), length[i]);
            pages += (length[i] + 63) / 64;
            sequences++;
        }
    }
    assert_int_equal(stats.pages - stats.pages_free, pages);
    assert_int_equal(stats.sequences, sequences);
    assert_int_equal(stats.pages_shared, 0);
}

/* Whoever is there, in one call; `cold` rows are decoded again from a sequence that is built anew. */
static void decode_whoever(const rig *r, rng *random, qsa_sequence *const *slot, const int64_t *length, int cold) {
    qsa_sequence *live[SLOTS];
    int64_t count = 0, lengths[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
        if (slot[i] && length[i]) {
            lengths[count] = length[i];
            live[count++] = slot[i];
        }
    }
    if (!count) {
        return;
    }
    queries q = new_queries(random, &r->shape, count);
    decoded all = decode_batch(r, live, &q, contracts[count % 2]);
    for (int64_t i = 0; cold && i < count; i++) {
        qsa_sequence *fresh = NULL;
        MUST(qsa_sequence_create, r->cache, &fresh);
        grow(r, fresh, lengths[i]);
        queries one = queries_at(r, &q, i, 1);
        decoded solo = decode_rows(r, fresh, &one, contracts[count % 2], 0, 0);
        assert_same_row(&all, i, &solo);
        free_decoded(&solo);
        qsa_sequence_destroy(fresh);
    }
    free_decoded(&all);
    free_queries(&q);
}

static void join_and_leave(qsa_cpu cpu) {
    rng random = rng_of(test_seed(24));
    rig_options options = {.shape = shape_of(4, 2, 64, 2, 32, 4, 32), .cpu = cpu, .capacity = 64 * 64, .page_cells = 64,
                           .threads = 2, .seed = 24};
    rig r = open_rig(&options);
    qsa_sequence *slot[SLOTS] = {NULL};
    int64_t length[SLOTS] = {0}, joined = 0;
    for (int step = 0; step < STEPS; step++) {
        int i = (int)rng_range(&random, 0, SLOTS - 1);
        if (slot[i] && (rng_range(&random, 0, 5) == 0 || length[i] > 250)) {
            qsa_sequence_destroy(slot[i]);
            slot[i] = NULL;
        } else if (slot[i]) {
            int64_t back = rng_range(&random, 0, length[i] < 5 ? length[i] : 5);
            MUST(qsa_truncate, slot[i], length[i] - back);
            length[i] += rng_range(&random, 0, 9) - back;
            grow(&r, slot[i], length[i]);
        } else {
            MUST(qsa_sequence_create, r.cache, &slot[i]);
            length[i] = rng_range(&random, 0, 200);
            grow(&r, slot[i], length[i]);
            joined++;
        }
        check_counts(&r, slot, length);
        decode_whoever(&r, &random, slot, length, step % 50 == 49);
    }
    assert_true(joined > 100);
    for (int i = 0; i < SLOTS; i++) {
        qsa_sequence_destroy(slot[i]);
        slot[i] = NULL;
    }
    check_counts(&r, slot, length);
    close_rig(&r);
}

static void fault_24_sequences_join_and_leave(void **state) {
    (void)state;
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        join_and_leave(cpu);
    }
}

/* ------------------------------------------------------------------------------------------ 25 */

enum { LAYERS = 12, LONG = 500, WIDE = 35, ROWS = 3 };

static void append_layer(const rig *r, int64_t layer) {
    int64_t kv = r->shape.kv_heads * r->shape.head_dim;
    float *k = calloc((size_t)(LONG * kv), sizeof *k), *v = calloc((size_t)(LONG * kv), sizeof *v);
    float *raw = calloc((size_t)(LONG * r->shape.index_dim), sizeof *raw);
    assert_true(k && v && raw);
    source_cells(r, 137 * layer, LONG, k, v, raw);
    QSA_INIT(qsa_append_args, args);
    args.layer = layer;
    args.cells = LONG;
    args.k = k;
    args.v = v;
    args.raw_index = raw;
    MUST(qsa_append, r->sequence, &args);
    free(k), free(v), free(raw);
}

/* Layer by layer through one workspace. ids == NULL: rows select; else they read these lists. */
static void decode_layer(const rig *r, const queries *q, int64_t layer, void *workspace, size_t bytes, const int32_t *ids,
                         int32_t *ids_out, float *out) {
    qsa_item item = {.sequence = r->sequence, .rows = ROWS, .q = q->q, .gate = q->gate, .iq = q->iq, .out = out, .ids = ids,
                     .id_stride = WIDE, .ids_out = ids_out};
    QSA_INIT(qsa_decode_args, args);
    args.layer = layer;
    args.items = &item;
    args.item_count = 1;
    args.workspace = workspace;
    args.workspace_bytes = bytes;
    MUST(qsa_decode, r->cache, &args);
}

static void fault_25_ids_outlive_a_workspace_that_layers_share(void **state) {
    (void)state;
    enum { OUT = 4 * 64 };
    rng random = rng_of(test_seed(25));
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        rig_options options = {.shape = shape_of(4, 2, 64, 2, 32, 4, 32), .cpu = cpu, .threads = 2, .layers = LAYERS, .seed = 25};
        rig r = open_rig(&options);
        queries q = new_queries(&random, &r.shape, ROWS);
        static int32_t ids[LAYERS][ROWS * WIDE], fresh[ROWS * WIDE], kept[ROWS * WIDE];
        static float out[LAYERS][ROWS * OUT], again[ROWS * OUT];
        size_t bytes = 0;
        MUST(qsa_plan, r.cache, QSA_BLOCKS, ROWS, LONG, 0, 0, &bytes);
        void *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
        assert_non_null(workspace);
        for (int64_t layer = 0; layer < LAYERS; layer++) {
            append_layer(&r, layer);
            memset(workspace, layer % 2 ? 0xff : 0x3f, bytes);
            decode_layer(&r, &q, layer, workspace, bytes, NULL, ids[layer], out[layer]);
            if (layer == 3) {
                memcpy(kept, ids[3], sizeof kept);
            }
        }
        assert_memory_equal(ids[3], kept, sizeof kept);
        assert_memory_not_equal(ids[3], ids[7], sizeof kept);
        for (int64_t layer = LAYERS - 1; layer >= 0; layer--) { /* in another order, selected and from the lists: the same */
            memset(workspace, 0x7f, bytes);
            decode_layer(&r, &q, layer, workspace, bytes, NULL, fresh, again);
            assert_memory_equal(fresh, ids[layer], sizeof fresh);
            assert_memory_equal(again, out[layer], sizeof again);
            memset(workspace, 0xff, bytes);
            decode_layer(&r, &q, layer, workspace, bytes, ids[layer], NULL, again);
            assert_memory_equal(again, out[layer], sizeof again);
        }
        free(workspace);
        free_queries(&q);
        close_rig(&r);
    }
}

/* ------------------------------------------------------------------------------------------ 26 */

enum { DRAFTS = 1000, FEW_DRAFTS = 100 };

/* K as the model's k_norm leaves it: each head's root mean square is 1. One channel is 50 times the others, or none. */
static void norm_keys(rig *r, int64_t loud) {
    int64_t dim = r->shape.head_dim, heads = 1021 * r->shape.kv_heads; /* the source's period */
    for (int64_t h = 0; h < heads; h++) {
        float *k = r->k + h * dim;
        double sum = 0;
        if (loud >= 0) {
            k[loud] *= 50.0f;
        }
        for (int64_t d = 0; d < dim; d++) {
            sum += (double)k[d] * (double)k[d];
        }
        for (int64_t d = 0; d < dim; d++) {
            k[d] = (float)((double)k[d] / sqrt(sum / (double)dim));
        }
    }
}

static void compare_formats(qsa_cpu cpu, int64_t rows, int64_t loud) {
    rng random = rng_of(test_seed(26));
    rig_options options = {.shape = shape_of(4, 1, 256, 2, 64, 4, 2048), .cpu = cpu, .capacity = 8192, .threads = 2, .seed = 26};
    queries q = new_queries(&random, &options.shape, rows);
    int64_t width = options.shape.q_heads * options.shape.head_dim;
    for (int64_t i = 0; i < rows * width; i++) {
        q.q[i] *= 0.4330127f; /* a root mean square of 1, as q_norm leaves it */
    }
    decoded d[2];
    for (int i = 0; i < 2; i++) {
        options.kv_type = i ? QSA_I8_G64 : QSA_F32;
        rig r = open_rig(&options);
        norm_keys(&r, loud);
        grow(&r, r.sequence, 5000);
        d[i] = decode_rows(&r, r.sequence, &q, QSA_BLOCKS, 0, 0);
        close_rig(&r);
    }
    assert_memory_equal(d[0].ids, d[1].ids, (size_t)(rows * d[0].width) * sizeof *d[0].ids);
    double least = 1, worst = 0;
    for (int64_t t = 0; t < rows; t++) {
        double xy = 0, xx = 0, yy = 0, most = 0, error = 0;
        for (int64_t j = t * width; j < (t + 1) * width; j++) {
            double x = (double)d[0].out[j], y = (double)d[1].out[j];
            xy += x * y, xx += x * x, yy += y * y;
            most = fmax(most, fabs(x)), error = fmax(error, fabs(x - y));
        }
        least = fmin(least, xy / sqrt(xx * yy));
        worst = fmax(worst, error / most);
    }
    print_message("%s: %lld rows, int8 against f32 K/V, %s: least cosine %.6f, largest error %.2e of the row's largest value\n",
                  qsa_cpu_name(cpu), (long long)rows, loud < 0 ? "K even" : "one K channel 50 times larger", least, worst);
    assert_true(least >= 0.9995);
    free_decoded(&d[0]);
    free_decoded(&d[1]);
    free_queries(&q);
}

static void fault_26_int8_keeps_what_drafts_are_accepted_by(void **state) {
    (void)state;
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        int64_t rows = next_cpu(cpu) ? FEW_DRAFTS : DRAFTS; /* the best level's answer for all: they have the same bits */
        compare_formats(cpu, rows, -1);
        compare_formats(cpu, rows, 70);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_22_a_row_in_a_batch_is_the_row_alone),
        cmocka_unit_test(fault_23_five_rows_with_five_disjoint_lists),
        cmocka_unit_test(fault_24_sequences_join_and_leave),
        cmocka_unit_test(fault_25_ids_outlive_a_workspace_that_layers_share),
        cmocka_unit_test(fault_26_int8_keeps_what_drafts_are_accepted_by),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
