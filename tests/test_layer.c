/* SPDX-License-Identifier: MIT */
/* A layer at work: against float64 written here, against the golden file's rows, and bit against bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "runtime/numerics.h"
#include "support/layer_model.h"

/* ------------------------------------------------------------------------------------------ float64 */

static void multiply64(const float *w, int64_t rows, int64_t columns, const float *x, double *out) {
    for (int64_t r = 0; r < rows; r++) {
        out[r] = 0;
        for (int64_t c = 0; c < columns; c++) {
            out[r] += (double)w[r * columns + c] * (double)x[c];
        }
    }
}

static void norm64(double *x, const float *w, int64_t n, double eps) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    for (int64_t i = 0; i < n; i++) {
        x[i] = x[i] / sqrt(sum / (double)n + eps) * (1.0 + (double)w[i]);
    }
}

static void rotate64(double *x, int64_t dims, double theta, int64_t position) {
    for (int64_t i = 0; i < dims / 2; i++) {
        double angle = (double)position * pow(theta, -2.0 * (double)i / (double)dims);
        double a = x[i], b = x[i + dims / 2];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + dims / 2] = b * cos(angle) + a * sin(angle);
    }
}

static void heads64(double *x, int64_t heads, int64_t dim, const float *w, double eps, int64_t dims, double theta,
                    int64_t position) {
    for (int64_t h = 0; h < heads; h++) {
        norm64(x + h * dim, w, dim, eps);
        rotate64(x + h * dim, dims, theta, position);
    }
}

/* ||got - want|| <= tolerance * ||want|| */
static void assert_near(const float *got, const double *want, int64_t n, double tolerance) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += want[i] * want[i];
    }
    if (!(sqrt(difference) <= tolerance * sqrt(size))) {
        fail_msg("relative difference %g of %g allowed", sqrt(difference / size), tolerance);
    }
}

/* One token's outputs against float64. */
static void check_token(const model *m, const float *hidden, int64_t position, double eps, int64_t dims, double theta,
                        const outputs *o, int64_t t) {
    int64_t d = m->head_dim, q = m->q_heads * d, kv = m->kv_heads * d, iq = m->index_heads * m->index_dim;
    double *both = calloc((size_t)(2 * q), sizeof *both), *query = calloc((size_t)q, sizeof *query);
    double *gate = calloc((size_t)q, sizeof *gate), *k = calloc((size_t)kv, sizeof *k),
           *v = calloc((size_t)kv, sizeof *v);
    double *index = calloc((size_t)(iq + m->index_dim), sizeof *index);
    multiply64(m->w[Q_PROJ], 2 * q, m->hidden, hidden, both);
    for (int64_t i = 0; i < q; i++) {
        query[i] = both[i / d * 2 * d + i % d];
        gate[i] = both[i / d * 2 * d + d + i % d];
    }
    multiply64(m->w[K_PROJ], kv, m->hidden, hidden, k);
    multiply64(m->w[V_PROJ], kv, m->hidden, hidden, v);
    multiply64(m->w[INDEX_PROJ], iq + m->index_dim, m->hidden, hidden, index);
    heads64(query, m->q_heads, d, m->w[Q_NORM], eps, dims, theta, position);
    heads64(k, m->kv_heads, d, m->w[K_NORM], eps, dims, theta, position);
    heads64(index, m->index_heads, m->index_dim, m->w[INDEX_Q_NORM], eps, dims, theta, position);
    const double *const want[OUTPUTS] = {query, gate, k, v, index, index + iq};
    for (int i = 0; i < OUTPUTS; i++) {
        assert_near(o->x[i] + t * o->width[i], want[i], o->width[i], 2e-6);
    }
    free(both), free(query), free(gate), free(k), free(v), free(index);
}

static void projections_agree_with_float64(void **state) {
    (void)state;
    static const int64_t positions[] = {0, 1, 5, 1000, 262143, 999999, 7};
    static const model sizes[] = {{37, 4, 2, 64, 3, 16, {NULL}},
                                  {80, 3, 1, 128, 1, 48, {NULL}},
                                  {16, 2, 2, 64, 2, 64, {NULL}},
                                  {1, 1, 1, 64, 1, 16, {NULL}}};
    for (int c = 0; c < 4; c++) {
        int64_t dims = c == 1 ? 34 : 16;
        double theta = c == 2 ? 1e4 : 1e7;
        float eps = c == 0 ? 0 : 1e-3f;
        uint64_t seed = 20 + (uint64_t)c;
        model m = random_model(sizes[c], seed);
        float *hidden = random_floats(&seed, 7 * m.hidden, 2.0f);
        qsa_context *context = open_context(QSA_CPU_AUTO, 2);
        qsa_tensors *tensors = model_tensors(&m, "");
        qsa_layer_options options = options_of(dims);
        options.rope.theta = c == 2 ? theta : 0;
        options.eps = eps;
        qsa_layer *layer;
        assert_int_equal(qsa_layer_load(context, tensors, &options, &layer, NULL), QSA_OK);
        qsa_tensors_close(tensors);
        outputs o = new_outputs(qsa_layer_shape(layer), 7);
        qsa_layer_args args = args_of(&o, hidden, m.hidden, 0, 7, ALL_OUTPUTS);
        args.positions = positions;
        project(context, layer, &args);
        for (int64_t t = 0; t < 7; t++) {
            check_token(&m, hidden + t * m.hidden, positions[t], eps == 0 ? 1e-6 : (double)eps, dims, theta, &o, t);
        }
        int64_t width = m.q_heads * m.head_dim;
        float *out = malloc((size_t)(7 * m.hidden) * sizeof *out);
        double *want = malloc((size_t)m.hidden * sizeof *want);
        assert_int_equal(qsa_layer_output(context, layer, o.x[1], 7, out, NULL), QSA_OK);
        for (int64_t t = 0; t < 7; t++) {
            multiply64(m.w[O_PROJ], m.hidden, width, o.x[1] + t * width, want);
            assert_near(out + t * m.hidden, want, m.hidden, 2e-6);
        }
        free(out), free(want), free(hidden);
        free_outputs(&o);
        qsa_layer_destroy(layer);
        qsa_close(context);
        free_model(&m);
    }
}

/* ------------------------------------------------------------------------------------------ golden rows */

enum { GOLDEN_TOKENS = 64 };

typedef struct golden {
    qsa_context *context;
    qsa_tensors *tensors;
    qsa_layer *layer;
    outputs o;
    int32_t rows[40];
    float *gated, *out, *scores; /* [40][6144], [40][64], [40][2050] */
} golden;

static float *read_all(const qsa_tensors *tensors, const char *name, int64_t count) {
    float *x = malloc((size_t)count * sizeof *x);
    qsa_error error;
    if (qsa_tensors_read_f32(tensors, name, x, count, &error)) {
        fail_msg("%s", error.message);
    }
    return x;
}

static golden open_golden(void) {
    golden g = {.context = open_context(QSA_CPU_AUTO, 2)};
    qsa_error error;
    if (qsa_tensors_open(QSA_DATA_DIR "/qwen4exp_layer_f32.safetensors", NULL, &g.tensors, &error) ||
        qsa_layer_load(g.context, g.tensors, NULL, &g.layer, &error) ||
        qsa_tensors_read_i32(g.tensors, "rows", g.rows, 40, &error)) {
        fail_msg("%s", error.message);
    }
    float *hidden = read_all(g.tensors, "hidden", 8200 * 64);
    g.gated = read_all(g.tensors, "gated", 40 * 6144);
    g.out = read_all(g.tensors, "out", 40 * 64);
    g.scores = read_all(g.tensors, "scores", 40 * 2050);
    g.o = new_outputs(qsa_layer_shape(g.layer), GOLDEN_TOKENS);
    qsa_layer_args args = args_of(&g.o, hidden, 64, 0, GOLDEN_TOKENS, ALL_OUTPUTS);
    project(g.context, g.layer, &args);
    free(hidden);
    return g;
}

static void close_golden(golden *g) {
    free(g->gated), free(g->out), free(g->scores);
    free_outputs(&g->o);
    qsa_layer_destroy(g->layer);
    qsa_tensors_close(g->tensors);
    qsa_close(g->context);
}

static double dot64(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)a[i] * (double)b[i];
    }
    return sum;
}

/* All cells count below 2,052 of them: softmax over cells 0..p of one head, times the gate. */
static void attend64(const golden *g, int64_t p, int64_t head, double *out) {
    const float *q = g->o.x[0] + (p * 24 + head) * 256, *gate = g->o.x[1] + (p * 24 + head) * 256;
    double sum = 0, weight[GOLDEN_TOKENS];
    for (int64_t c = 0; c <= p; c++) {
        weight[c] = exp(dot64(q, g->o.x[2] + (c * 2 + head / 12) * 256, 256) / 16);
        sum += weight[c];
    }
    for (int64_t i = 0; i < 256; i++) {
        out[i] = 0;
        for (int64_t c = 0; c <= p; c++) {
            out[i] += weight[c] / sum * (double)g->o.x[3][(c * 2 + head / 12) * 256 + i];
        }
        out[i] /= 1 + exp(-(double)gate[i]);
    }
}

static void golden_rows_attend_alike(void **state) {
    (void)state;
    golden g = open_golden();
    const qsa_shape *s = qsa_layer_shape(g.layer);
    qsa_shape model_shape;
    qsa_shape_qwen38_flash_next(&model_shape);
    assert_memory_equal(s, &model_shape, sizeof *s);
    assert_int_equal(qsa_layer_hidden_size(g.layer), 64);
    assert_string_equal(qsa_layer_prefix(g.layer), "");
    double want[6144];
    int checked = 0;
    for (int64_t r = 0; r < 40 && g.rows[r] < GOLDEN_TOKENS; r++, checked++) {
        for (int64_t h = 0; h < 24; h++) {
            attend64(&g, g.rows[r], h, want + h * 256);
        }
        assert_near(g.gated + r * 6144, want, 6144, 4e-5);
    }
    assert_int_equal(checked, 8);
    float out[40 * 64];
    double recorded[64];
    assert_int_equal(qsa_layer_output(g.context, g.layer, g.gated, 40, out, NULL), QSA_OK);
    for (int64_t r = 0; r < 40; r++) {
        for (int i = 0; i < 64; i++) {
            recorded[i] = (double)g.out[r * 64 + i];
        }
        assert_near(out + r * 64, recorded, 64, 2e-6);
    }
    close_golden(&g);
}

/* The block scores follow from iq, raw_index and the index norm. */
static void golden_rows_score_alike(void **state) {
    (void)state;
    golden g = open_golden();
    for (int64_t r = 0; r < 40 && g.rows[r] < GOLDEN_TOKENS; r++) {
        int64_t p = g.rows[r];
        for (int64_t b = 0; b < (p + 1) / 4; b++) {
            double key[128], score = 0;
            for (int i = 0; i < 128; i++) {
                const float *raw = g.o.x[5] + 4 * b * 128 + i;
                key[i] = ((double)raw[0] + (double)raw[128] + (double)raw[256] + (double)raw[384]) / 4;
            }
            norm64(key, qsa_layer_index_norm(g.layer), 128, 1e-6);
            rotate64(key, 64, 1e7, 4 * b);
            for (int64_t h = 0; h < 4; h++) {
                double dot = 0;
                for (int i = 0; i < 128; i++) {
                    dot += (double)g.o.x[4][(p * 4 + h) * 128 + i] * key[i];
                }
                score += dot > 0 ? dot : 0;
            }
            assert_true(fabs(score / sqrt(128) - (double)g.scores[r * 2050 + b]) < 1e-4);
        }
    }
    close_golden(&g);
}

/* ------------------------------------------------------------------------------------------ bits */

static void an_output_is_a_dot_in_the_written_order(void **state) {
    (void)state;
    uint64_t seed = 5;
    model m = random_model(small_sizes, seed);
    float *hidden = random_floats(&seed, 23 * m.hidden, 1.0f), out[23 * 37];
    for (int cpu = QSA_CPU_C; cpu <= QSA_CPU_NEON; cpu++) {
        if (!qsa_cpu_available((qsa_cpu)cpu)) {
            continue;
        }
        qsa_context *context = open_context((qsa_cpu)cpu, 1);
        qsa_layer *layer = load(context, &m, 16);
        outputs o = new_outputs(qsa_layer_shape(layer), 23);
        qsa_layer_args args = args_of(&o, hidden, m.hidden, 0, 23, ALL_OUTPUTS);
        project(context, layer, &args);
        assert_int_equal(qsa_layer_output(context, layer, o.x[0], 23, out, NULL), QSA_OK);
        for (int64_t t = 0; t < 23; t++) {
            const float *x = hidden + t * m.hidden;
            for (int64_t i = 0; i < 128; i++) {
                assert_int_equal(qsa_bits(o.x[3][t * 128 + i]),
                                 qsa_bits(qsa_dot16(x, m.w[V_PROJ] + i * m.hidden, m.hidden)));
            }
            for (int64_t i = 0; i < 256; i++) {
                const float *w = m.w[Q_PROJ] + (i / 64 * 128 + 64 + i % 64) * m.hidden;
                assert_int_equal(qsa_bits(o.x[1][t * 256 + i]), qsa_bits(qsa_dot16(x, w, m.hidden)));
            }
            for (int64_t i = 0; i < 37; i++) {
                assert_int_equal(qsa_bits(out[t * 37 + i]),
                                 qsa_bits(qsa_dot16(o.x[0] + t * 256, m.w[O_PROJ] + i * 256, 256)));
            }
        }
        free_outputs(&o);
        qsa_layer_destroy(layer);
        qsa_close(context);
    }
    free(hidden);
    free_model(&m);
}

static void bits_never_depend_on_threads_splits_or_cpu(void **state) {
    (void)state;
    enum { TOKENS = 203 };
    static const int64_t splits[] = {TOKENS, 1, 5, 7, 96, 101};
    uint64_t seed = 6;
    model m = random_model(small_sizes, seed);
    float *hidden = random_floats(&seed, TOKENS * m.hidden, 1.0f);
    float *out = malloc(TOKENS * 37 * sizeof *out), *first_out = malloc(TOKENS * 37 * sizeof *out);
    outputs first = {{NULL}, {0}, 0};
    for (int cpu = QSA_CPU_C; cpu <= QSA_CPU_NEON; cpu++) {
        for (int64_t threads = 1; threads <= 3 && qsa_cpu_available((qsa_cpu)cpu); threads++) {
            qsa_context *context = open_context((qsa_cpu)cpu, threads);
            qsa_layer *layer = load(context, &m, 16);
            for (int s = 0; s < 6; s++) {
                outputs o = new_outputs(qsa_layer_shape(layer), TOKENS);
                for (int64_t at = 0; at < TOKENS; at += splits[s]) {
                    int64_t count = TOKENS - at < splits[s] ? TOKENS - at : splits[s];
                    qsa_layer_args args = args_of(&o, hidden, m.hidden, at, count, ALL_OUTPUTS);
                    project(context, layer, &args);
                    assert_int_equal(qsa_layer_output(context, layer, o.x[0] + at * 256, count, out + at * 37, NULL),
                                     QSA_OK);
                }
                if (!first.tokens) {
                    first = o;
                    memcpy(first_out, out, TOKENS * 37 * sizeof *out);
                    continue;
                }
                assert_same_bits(&o, &first);
                assert_memory_equal(out, first_out, TOKENS * 37 * sizeof *out);
                free_outputs(&o);
            }
            qsa_layer_destroy(layer);
            qsa_close(context);
        }
    }
    free_outputs(&first);
    free(hidden), free(out), free(first_out);
    free_model(&m);
}

static void outputs_may_be_left_out(void **state) {
    (void)state;
    uint64_t seed = 7;
    model m = random_model(small_sizes, seed);
    float *hidden = random_floats(&seed, 9 * m.hidden, 1.0f);
    qsa_context *context = open_context(QSA_CPU_AUTO, 2);
    qsa_layer *layer = load(context, &m, 16);
    outputs all = new_outputs(qsa_layer_shape(layer), 9);
    qsa_layer_args args = args_of(&all, hidden, m.hidden, 0, 9, ALL_OUTPUTS);
    project(context, layer, &args);
    for (unsigned mask = 0; mask < 63; mask++) {
        outputs some = new_outputs(qsa_layer_shape(layer), 9), untouched = new_outputs(qsa_layer_shape(layer), 9);
        args = args_of(&some, hidden, m.hidden, 0, 9, mask);
        project(context, layer, &args);
        for (int i = 0; i < OUTPUTS; i++) {
            assert_memory_equal(some.x[i], mask >> i & 1u ? all.x[i] : untouched.x[i],
                                (size_t)(9 * all.width[i]) * sizeof(float));
        }
        free_outputs(&some);
        free_outputs(&untouched);
    }
    free_outputs(&all);
    free(hidden);
    qsa_layer_destroy(layer);
    qsa_close(context);
    free_model(&m);
}

/* ------------------------------------------------------------------------------------------ positions */

static void positions_come_in_three_ways(void **state) {
    (void)state;
    enum { TOKENS = 11, FIRST = 70000 };
    uint64_t seed = 8;
    model m = random_model(small_sizes, seed);
    float *hidden = random_floats(&seed, TOKENS * m.hidden, 1.0f),
          *table = malloc((FIRST + TOKENS) * 16 * sizeof *table);
    int64_t positions[TOKENS];
    qsa_context *context = open_context(QSA_CPU_AUTO, 1);
    qsa_layer *layer = load(context, &m, 16), *tabled;
    qsa_rope rope = {.size = sizeof rope};
    rope.dims = 16;
    memset(table, 0, (FIRST + TOKENS) * 16 * sizeof *table);
    for (int64_t i = 0; i < TOKENS; i++) {
        positions[i] = FIRST + i;
        assert_int_equal(qsa_rope_row(&rope, FIRST + i, table + (FIRST + i) * 16, NULL), QSA_OK);
    }
    qsa_tensors *tensors = model_tensors(&m, "");
    qsa_layer_options options = options_of(16);
    options.rope.table = table;
    options.rope.positions = FIRST + TOKENS;
    assert_int_equal(qsa_layer_load(context, tensors, &options, &tabled, NULL), QSA_OK);
    qsa_tensors_close(tensors);
    outputs by_first = new_outputs(qsa_layer_shape(layer), TOKENS),
            by_list = new_outputs(qsa_layer_shape(layer), TOKENS);
    outputs by_table = new_outputs(qsa_layer_shape(layer), TOKENS);
    qsa_layer_args args = args_of(&by_first, hidden, m.hidden, 0, TOKENS, ALL_OUTPUTS);
    args.first_position = FIRST;
    project(context, layer, &args);
    args = args_of(&by_list, hidden, m.hidden, 0, TOKENS, ALL_OUTPUTS);
    args.positions = positions;
    project(context, layer, &args);
    assert_same_bits(&by_list, &by_first);
    args = args_of(&by_table, hidden, m.hidden, 0, TOKENS, ALL_OUTPUTS);
    args.first_position = FIRST;
    project(context, tabled, &args);
    assert_same_bits(&by_table, &by_first);
    args.first_position = FIRST + 1; /* one past the table */
    qsa_error error;
    assert_int_equal(qsa_layer_project(context, tabled, &args, &error), QSA_E_ARGUMENT);
    assert_non_null(strstr(error.message, "first_position is 70001"));
    positions[4] = FIRST + TOKENS;
    args.positions = positions;
    assert_int_equal(qsa_layer_project(context, tabled, &args, &error), QSA_E_ARGUMENT);
    assert_non_null(strstr(error.message, "positions[4] is 70011"));
    assert_same_bits(&by_table, &by_first);
    free_outputs(&by_first), free_outputs(&by_list), free_outputs(&by_table);
    free(hidden), free(table);
    qsa_layer_destroy(layer);
    qsa_layer_destroy(tabled);
    qsa_close(context);
    free_model(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(projections_agree_with_float64),
        cmocka_unit_test(golden_rows_attend_alike),
        cmocka_unit_test(golden_rows_score_alike),
        cmocka_unit_test(an_output_is_a_dot_in_the_written_order),
        cmocka_unit_test(bits_never_depend_on_threads_splits_or_cpu),
        cmocka_unit_test(outputs_may_be_left_out),
        cmocka_unit_test(positions_come_in_three_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
