/* SPDX-License-Identifier: MIT */
/* The golden layers: hidden states in, the reference's selections, attention outputs and layer outputs out. */
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
#include "support/rig.h"

enum { TOKENS = 8200, HIDDEN = 64, ROWS = 40, WIDTH = 2051, SCORES = 2050, GATED = 6144 };

typedef struct golden {
    qsa_context *context;
    qsa_layer *layer;
    float *k, *v, *raw;          /* of all tokens: [8200][2][256], [8200][128] */
    outputs queries;             /* of the 40 rows */
    int32_t *rows, *ids;         /* [40], [40][2051] */
    float *scores, *gated, *out; /* [40][2050], [40][6144], [40][64] */
} golden;

static float *read_floats(const qsa_tensors *tensors, const char *name, int64_t count) {
    float *x = malloc((size_t)count * sizeof *x);
    MUST(qsa_tensors_read_f32, tensors, name, x, count);
    return x;
}

static golden open_golden(const char *path) {
    golden g = {.context = open_context(QSA_CPU_AUTO, 2)};
    qsa_tensors *tensors;
    MUST(qsa_tensors_open, path, NULL, &tensors);
    MUST(qsa_layer_load, g.context, tensors, NULL, &g.layer);
    float *hidden = read_floats(tensors, "hidden", TOKENS * HIDDEN);
    g.rows = malloc(ROWS * sizeof *g.rows);
    g.ids = malloc(ROWS * WIDTH * sizeof *g.ids);
    MUST(qsa_tensors_read_i32, tensors, "rows", g.rows, ROWS);
    MUST(qsa_tensors_read_i32, tensors, "ids", g.ids, ROWS * WIDTH);
    g.scores = read_floats(tensors, "scores", ROWS * SCORES);
    g.gated = read_floats(tensors, "gated", ROWS * GATED);
    g.out = read_floats(tensors, "out", ROWS * HIDDEN);
    qsa_tensors_close(tensors);
    g.k = malloc(TOKENS * 512 * sizeof *g.k);
    g.v = malloc(TOKENS * 512 * sizeof *g.v);
    g.raw = malloc(TOKENS * 128 * sizeof *g.raw);
    QSA_INIT(qsa_layer_args, args);
    args.hidden = hidden;
    args.tokens = TOKENS;
    args.k = g.k;
    args.v = g.v;
    args.raw_index = g.raw;
    MUST(qsa_layer_project, g.context, g.layer, &args);
    float of_rows[ROWS * HIDDEN];
    int64_t positions[ROWS];
    for (int row = 0; row < ROWS; row++) {
        positions[row] = g.rows[row];
        memcpy(of_rows + row * HIDDEN, hidden + g.rows[row] * HIDDEN, HIDDEN * sizeof *hidden);
    }
    g.queries = new_outputs(qsa_layer_shape(g.layer), ROWS);
    args = args_of(&g.queries, of_rows, HIDDEN, 0, ROWS, ALL_OUTPUTS);
    args.positions = positions;
    project(g.context, g.layer, &args);
    free(hidden);
    return g;
}

static void close_golden(golden *g) {
    free(g->rows), free(g->ids), free(g->scores), free(g->gated), free(g->out);
    free(g->k), free(g->v), free(g->raw);
    free_outputs(&g->queries);
    qsa_layer_destroy(g->layer);
    qsa_close(g->context);
}

/* ||got - want|| / ||want||: what the files' own description states. *most: max |got - want| / max |want|, if larger.
 */
static double error_of(const float *got, const float *want, int64_t count, double *most) {
    double squares = 0, size = 0, largest = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        double difference = (double)got[i] - (double)want[i];
        squares += difference * difference;
        norm += (double)want[i] * (double)want[i];
        largest = fmax(largest, fabs(difference));
        size = fmax(size, fabs((double)want[i]));
    }
    *most = fmax(*most, largest / size);
    return sqrt(squares / norm); /* a NaN stays */
}

/* Blocks in one list and not in the other have to lie near the cut. Returns the share of the reference's cells found.
 */
static double compare_ids(const golden *g, int row, const int32_t *ids, double tolerance) {
    const int32_t *want = g->ids + row * WIDTH;
    const float *scores = g->scores + row * SCORES;
    unsigned char taken[TOKENS] = {0};
    int64_t count = 0, found = 0, ours = 0, complete = (g->rows[row] + 1) / 4;
    float cut = INFINITY;
    for (int i = 0; i < WIDTH; i++) {
        if (want[i] >= 0) {
            count++;
            taken[want[i]] |= 1;
            cut = want[i] / 4 < complete ? fminf(cut, scores[want[i] / 4]) : cut;
        }
        if (ids[i] >= 0) {
            ours++;
            taken[ids[i]] |= 2;
        }
    }
    assert_int_equal(ours, count);
    for (int64_t c = 0; c < TOKENS; c++) {
        found += taken[c] == 3;
        if (taken[c] == 1 || taken[c] == 2) {
            assert_true(c / 4 < complete);
            assert_true(fabs((double)scores[c / 4] - (double)cut) <= tolerance);
        }
    }
    return (double)found / (double)count;
}

typedef struct limits {
    qsa_type kv_type, key_type;
    double error;   /* of each row on the reference's ids, before and after o_proj, in the norm */
    double most;    /* the same of the largest difference */
    double near;    /* distance from the cut within which blocks may differ */
    double overlap; /* least share of common cells of a row */
    double equal;   /* least share of rows with equal ids */
} limits;

static void decode_row(qsa_cache *cache, const qsa_item *item, void *workspace, size_t bytes) {
    QSA_INIT(qsa_decode_args, args);
    args.items = item;
    args.item_count = 1;
    args.workspace = workspace;
    args.workspace_bytes = bytes;
    MUST(qsa_decode, cache, &args);
}

static void append_to(const golden *g, qsa_sequence *sequence, int64_t length) {
    int64_t at = qsa_sequence_length(sequence, 0);
    QSA_INIT(qsa_append_args, args);
    args.cells = length - at;
    args.k = g->k + at * 512;
    args.v = g->v + at * 512;
    args.raw_index = g->raw + at * 128;
    MUST(qsa_append, sequence, &args);
}

static void check_golden(const golden *g, qsa_cpu cpu, const limits *limit) {
    qsa_context *context = open_context(cpu, 2);
    QSA_INIT(qsa_cache_options, options);
    qsa_cache *cache;
    qsa_sequence *sequence;
    size_t bytes;
    options.shape = *qsa_layer_shape(g->layer);
    options.layers = 1;
    options.kv_type = limit->kv_type;
    options.key_type = limit->key_type;
    options.capacity = TOKENS;
    options.index_norm = qsa_layer_index_norm(g->layer);
    MUST(qsa_cache_create, context, &options, &cache);
    MUST(qsa_sequence_create, cache, &sequence);
    MUST(qsa_plan, cache, QSA_BLOCKS, 1, TOKENS, 0, 0, &bytes);
    void *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
    static int32_t ids[WIDTH];
    static float gated[GATED], out[HIDDEN];
    double worst_gated = 0, worst_out = 0, most = 0, least = 1;
    int equal = 0;
    for (int row = 0; row < ROWS; row++) {
        int64_t p = g->rows[row];
        assert_true(p < TOKENS && (row == 0 || p > g->rows[row - 1]));
        append_to(g, sequence, p + 1);
        qsa_item item = {.sequence = sequence, .rows = 1, .q = g->queries.x[0] + row * GATED};
        item.gate = g->queries.x[1] + row * GATED;
        item.iq = g->queries.x[4] + row * 512;
        item.out = gated;
        item.id_stride = WIDTH;
        item.ids_out = ids;
        decode_row(cache, &item, workspace, bytes);
        double overlap = compare_ids(g, row, ids, limit->near);
        least = fmin(least, overlap);
        equal += overlap >= 1;
        item.ids_out = NULL;
        item.ids = g->ids + row * WIDTH;
        decode_row(cache, &item, workspace, bytes);
        MUST(qsa_layer_output, g->context, g->layer, gated, 1, out);
        double error = error_of(gated, g->gated + row * GATED, GATED, &most);
        double error_out = error_of(out, g->out + row * HIDDEN, HIDDEN, &most);
        assert_true(error <= limit->error && error_out <= limit->error);
        worst_gated = fmax(worst_gated, error);
        worst_out = fmax(worst_out, error_out);
    }
    printf("%s, K/V %s, keys %s: gated %.2e, out %.2e, largest %.2e; %d of 40 rows with equal ids, overlap >= %.4f\n",
           qsa_cpu_name(cpu), qsa_type_name(limit->kv_type), qsa_type_name(limit->key_type), worst_gated, worst_out,
           most, equal, least);
    assert_true(most <= limit->most);
    assert_true(least >= limit->overlap);
    assert_true(equal >= limit->equal * ROWS);
    free(workspace);
    qsa_sequence_destroy(sequence);
    qsa_cache_destroy(cache);
    qsa_close(context);
}

static void the_float32_layer(void **state) {
    (void)state;
    static const limits limit[] = {{QSA_F32, QSA_F32, 1e-4, 1e-4, 1e-3, 0.99, 0.95},
                                   {QSA_I8_G64, QSA_F32, 0.02, 0.04, 1e-3, 0.99, 0.95},
                                   {QSA_F16, QSA_F32, 2e-3, 2e-3, 1e-3, 0.99, 0.95},
                                   {QSA_BF16, QSA_F32, 0.01, 0.02, 1e-3, 0.99, 0.95}};
    golden g = open_golden(QSA_DATA_DIR "/qwen4exp_layer_f32.safetensors");
    for (int i = 0; i < 4; i++) {
        check_golden(&g, QSA_CPU_AUTO, &limit[i]);
    }
    check_golden(&g, QSA_CPU_C, &limit[1]); /* the definition of every bit, in the default format */
    close_golden(&g);
}

static void the_bfloat16_layer(void **state) {
    (void)state;
    static const limits limit[] = {{QSA_BF16, QSA_BF16, 0.01, 0.02, 0.1, 0.99, 0.5},
                                   {QSA_I8_G64, QSA_BF16, 0.02, 0.04, 0.1, 0.99, 0.5}};
    golden g = open_golden(QSA_DATA_DIR "/qwen4exp_layer_bf16.safetensors");
    for (int i = 0; i < 2; i++) {
        check_golden(&g, QSA_CPU_AUTO, &limit[i]);
    }
    close_golden(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_float32_layer),
        cmocka_unit_test(the_bfloat16_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
