/* SPDX-License-Identifier: MIT */
/* Loading a layer, and what its calls refuse. */
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

#include "support/counted.h"
#include "support/layer_model.h"

/* ------------------------------------------------------------------------------------------ loading */

static void the_only_prefix_is_found(void **state) {
    (void)state;
    model m = random_model(small_sizes, 9);
    qsa_context *context = open_context(QSA_CPU_AUTO, 1);
    qsa_error error;
    for (int layers = 0; layers <= 6; layers++) {
        st_writer *writer = st_new();
        qsa_layer_options options = options_of(16);
        qsa_layer *layer;
        add_layer(writer, &m, "draft.", O_PROJ); /* not a whole layer */
        add_layer(writer, &m, "not_", PARTS);    /* another module's name */
        for (int i = 0; i < layers; i++) {
            char prefix[32];
            snprintf(prefix, sizeof prefix, "model.layers.%d.", i);
            add_layer(writer, &m, prefix, PARTS);
        }
        qsa_tensors *tensors = open_writer(writer);
        qsa_status status = qsa_layer_load(context, tensors, &options, &layer, &error);
        if (layers == 1) {
            assert_int_equal(status, QSA_OK);
            assert_string_equal(qsa_layer_prefix(layer), "model.layers.0.");
            qsa_layer_destroy(layer);
        } else {
            assert_int_equal(status, QSA_E_ARGUMENT);
            assert_null(layer);
            assert_non_null(strstr(error.message, layers ? "layers fit" : "index_qk_proj"));
            for (int i = 0; i < 6; i++) {
                char prefix[32];
                snprintf(prefix, sizeof prefix, "\"model.layers.%d.\"", i);
                assert_int_equal(strstr(error.message, prefix) != NULL, i < layers && i < 4);
            }
            assert_int_equal(strstr(error.message, "...") != NULL, layers > 4);
        }
        options.prefix = "model.layers.2.";
        status = qsa_layer_load(context, tensors, &options, &layer, &error);
        assert_int_equal(status, layers > 2 ? QSA_OK : QSA_E_ARGUMENT);
        if (!status) {
            assert_string_equal(qsa_layer_prefix(layer), "model.layers.2.");
            qsa_layer_destroy(layer);
        }
        options.prefix = "draft.";
        assert_int_equal(qsa_layer_load(context, tensors, &options, &layer, &error), QSA_E_ARGUMENT);
        assert_non_null(strstr(error.message, "self_attn.o_proj.weight"));
        qsa_tensors_close(tensors);
    }
    qsa_close(context);
    free_model(&m);
}

static void a_shape_follows_from_the_tensors(void **state) {
    (void)state;
    model m = random_model(small_sizes, 10);
    qsa_context *context = open_context(QSA_CPU_AUTO, 1);
    qsa_layer *layer = load(context, &m, 16);
    const qsa_shape *s = qsa_layer_shape(layer);
    assert_int_equal(s->size, sizeof *s);
    assert_int_equal(s->q_heads, 4);
    assert_int_equal(s->kv_heads, 2);
    assert_int_equal(s->head_dim, 64);
    assert_int_equal(s->index_heads, 3);
    assert_int_equal(s->index_dim, 16);
    assert_int_equal(s->block, 4);
    assert_int_equal(s->budget, 2048);
    assert_true(s->scale == 0.125f && s->index_scale == 0.25f);
    assert_int_equal(qsa_layer_hidden_size(layer), 37);
    assert_memory_equal(qsa_layer_index_norm(layer), m.w[INDEX_K_NORM], 16 * sizeof(float));
    qsa_layer_destroy(layer);
    qsa_tensors *tensors = model_tensors(&m, "");
    qsa_layer_options options = options_of(16);
    options.block = 2;
    options.budget = 50;
    assert_int_equal(qsa_layer_load(context, tensors, &options, &layer, NULL), QSA_OK);
    assert_int_equal(qsa_layer_shape(layer)->block, 2);
    assert_int_equal(qsa_layer_shape(layer)->budget, 50);
    qsa_layer_destroy(layer);
    qsa_tensors_close(tensors);
    qsa_close(context);
    free_model(&m);
}

static void wrong_tensors_are_refused(void **state) {
    (void)state;
    static const struct {
        int part, rank;
        int64_t shape[3];
        const char *dtype;
    } cases[] = {
        {Q_PROJ, 2, {511, 37}, "F32"},    {Q_PROJ, 2, {512, 36}, "F32"},    {Q_PROJ, 1, {512}, "F32"},
        {Q_PROJ, 3, {512, 37, 1}, "F32"}, {Q_PROJ, 2, {0, 37}, "F32"},      {Q_PROJ, 2, {512, 0}, "F32"},
        {K_PROJ, 2, {100, 37}, "F32"},    {K_PROJ, 2, {192, 37}, "F32"},    {K_PROJ, 2, {128, 38}, "F32"},
        {V_PROJ, 2, {64, 37}, "F32"},     {V_PROJ, 2, {37, 128}, "F32"},    {O_PROJ, 2, {256, 37}, "F32"},
        {O_PROJ, 2, {37, 255}, "F32"},    {Q_NORM, 2, {64, 1}, "F32"},      {Q_NORM, 1, {63}, "F32"},
        {Q_NORM, 1, {0}, "F32"},          {Q_NORM, 0, {0}, "F32"},          {K_NORM, 1, {65}, "F32"},
        {INDEX_PROJ, 2, {16, 37}, "F32"}, {INDEX_PROJ, 2, {65, 37}, "F32"}, {INDEX_PROJ, 2, {64, 16}, "F32"},
        {INDEX_Q_NORM, 1, {24}, "F32"},   {INDEX_Q_NORM, 1, {1}, "F32"},    {INDEX_K_NORM, 1, {15}, "F32"},
        {V_PROJ, 2, {128, 37}, "I32"},    {K_NORM, 1, {64}, "U32"},         {Q_NORM, 1, {1 << 20}, "F32"},
    };
    model m = random_model(small_sizes, 11);
    float *zeros = calloc(1 << 20, sizeof *zeros);
    qsa_context *context = open_context(QSA_CPU_AUTO, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        st_writer *writer = st_new();
        char name[64];
        size_t bytes = 4;
        for (int r = 0; r < cases[i].rank; r++) {
            bytes *= (size_t)cases[i].shape[r];
        }
        add_layer(writer, &m, "", cases[i].part);
        snprintf(name, sizeof name, "self_attn.%s", part_names[cases[i].part]);
        st_add(writer, name, cases[i].dtype, cases[i].rank, cases[i].shape, zeros, bytes);
        qsa_tensors *tensors = open_writer(writer);
        qsa_layer_options options = options_of(16);
        qsa_layer *layer;
        qsa_error error;
        qsa_status status = qsa_layer_load(context, tensors, &options, &layer, &error);
        if (status != QSA_E_SHAPE || layer || error.status != QSA_E_SHAPE || !*error.message) {
            fail_msg("case %zu (%s): status %s, message %s", i, name, qsa_status_name(status), error.message);
        }
        qsa_tensors_close(tensors);
    }
    free(zeros);
    qsa_close(context);
    free_model(&m);
}

static void bad_arguments_are_refused(void **state) {
    (void)state;
    uint64_t seed = 12;
    model m = random_model(small_sizes, seed);
    float *hidden = random_floats(&seed, 2 * m.hidden, 1.0f), out[2 * 37];
    qsa_context *context = open_context(QSA_CPU_AUTO, 1);
    qsa_tensors *tensors = model_tensors(&m, "");
    qsa_layer *layer;
    qsa_error error;
    qsa_layer_options options = options_of(16);
    assert_int_equal(qsa_layer_load(NULL, tensors, &options, &layer, &error), QSA_E_ARGUMENT);
    assert_int_equal(qsa_layer_load(context, NULL, &options, &layer, &error), QSA_E_ARGUMENT);
    assert_int_equal(qsa_layer_load(context, tensors, &options, NULL, &error), QSA_E_ARGUMENT);
    /* the default of 64 rotated channels is more than this layer's indexer has */
    assert_int_equal(qsa_layer_load(context, tensors, NULL, &layer, &error), QSA_E_SHAPE);
    assert_non_null(strstr(error.message, "rope.dims is 64"));
    const struct {
        size_t size;
        int64_t block, budget, dims;
        float eps;
        double theta;
        qsa_status status;
    } bad[] = {
        {1, 4, 8, 16, 0, 0, QSA_E_ARGUMENT},   {0, 3, 9, 16, 0, 0, QSA_E_SHAPE},
        {0, 4, 10, 16, 0, 0, QSA_E_SHAPE},     {0, -4, 8, 16, 0, 0, QSA_E_SHAPE},
        {0, 4, 8, 15, 0, 0, QSA_E_SHAPE},      {0, 4, 8, 18, 0, 0, QSA_E_SHAPE},
        {0, 4, 8, 16, -1, 0, QSA_E_ARGUMENT},  {0, 4, 8, 16, NAN, 0, QSA_E_ARGUMENT},
        {0, 4, 8, 16, 0, 0.5, QSA_E_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        options = options_of(bad[i].dims);
        options.size += bad[i].size;
        options.block = bad[i].block;
        options.budget = bad[i].budget;
        options.eps = bad[i].eps;
        options.rope.theta = bad[i].theta;
        assert_int_equal(qsa_layer_load(context, tensors, &options, &layer, &error), bad[i].status);
        assert_null(layer);
    }
    options = options_of(16);
    assert_int_equal(qsa_layer_load(context, tensors, &options, &layer, &error), QSA_OK);
    outputs o = new_outputs(qsa_layer_shape(layer), 2), untouched = new_outputs(qsa_layer_shape(layer), 2);
    qsa_layer_args good = args_of(&o, hidden, m.hidden, 0, 2, ALL_OUTPUTS), args = good;
    const int64_t positions[] = {0, -1};
    assert_int_equal(qsa_layer_project(NULL, layer, &args, &error), QSA_E_ARGUMENT);
    assert_int_equal(qsa_layer_project(context, NULL, &args, &error), QSA_E_ARGUMENT);
    assert_int_equal(qsa_layer_project(context, layer, NULL, &error), QSA_E_ARGUMENT);
    args.size = 0;
    assert_int_equal(qsa_layer_project(context, layer, &args, &error), QSA_E_ARGUMENT);
    args = good, args.hidden = NULL;
    assert_int_equal(qsa_layer_project(context, layer, &args, &error), QSA_E_ARGUMENT);
    args = good, args.tokens = -1;
    assert_int_equal(qsa_layer_project(context, layer, &args, &error), QSA_E_ARGUMENT);
    args.tokens = INT64_MAX;
    assert_int_equal(qsa_layer_project(context, layer, &args, &error), QSA_E_ARGUMENT);
    args = good, args.first_position = -1;
    assert_int_equal(qsa_layer_project(context, layer, &args, &error), QSA_E_ARGUMENT);
    args.first_position = INT64_MAX;
    assert_int_equal(qsa_layer_project(context, layer, &args, &error), QSA_E_ARGUMENT);
    args.first_position = INT64_C(2147483647);
    assert_int_equal(qsa_layer_project(context, layer, &args, &error), QSA_E_ARGUMENT);
    args = good, args.positions = positions;
    assert_int_equal(qsa_layer_project(context, layer, &args, &error), QSA_E_ARGUMENT);
    assert_non_null(strstr(error.message, "positions[1] is -1"));
    assert_same_bits(&o, &untouched);
    args = good, args.tokens = 0, args.hidden = NULL;
    assert_int_equal(qsa_layer_project(context, layer, &args, &error), QSA_OK);
    assert_same_bits(&o, &untouched);
    project(context, layer, &good);
    assert_int_equal(qsa_layer_output(NULL, layer, o.x[0], 2, out, &error), QSA_E_ARGUMENT);
    assert_int_equal(qsa_layer_output(context, NULL, o.x[0], 2, out, &error), QSA_E_ARGUMENT);
    assert_int_equal(qsa_layer_output(context, layer, NULL, 2, out, &error), QSA_E_ARGUMENT);
    assert_int_equal(qsa_layer_output(context, layer, o.x[0], 2, NULL, &error), QSA_E_ARGUMENT);
    assert_int_equal(qsa_layer_output(context, layer, o.x[0], -1, out, &error), QSA_E_ARGUMENT);
    assert_int_equal(qsa_layer_output(context, layer, NULL, 0, NULL, &error), QSA_OK);
    assert_int_equal(qsa_layer_output(context, layer, o.x[0], 2, out, &error), QSA_OK);
    free_outputs(&o), free_outputs(&untouched);
    qsa_layer_destroy(layer);
    qsa_layer_destroy(NULL);
    qsa_tensors_close(tensors);
    qsa_close(context);
    free(hidden);
    free_model(&m);
}

/* ------------------------------------------------------------------------------------------ memory */

static void refused_memory_changes_nothing(void **state) {
    (void)state;
    uint64_t seed = 13;
    model m = random_model(small_sizes, seed);
    float *hidden = random_floats(&seed, 3 * m.hidden, 1.0f), out[3 * 37];
    counter c = {0, 0, 0};
    qsa_options options = {.size = sizeof options};
    options.threads = 1;
    options.allocator = counted(&c);
    qsa_context *context;
    assert_int_equal(qsa_open(&options, &context, NULL), QSA_OK);
    qsa_tensors *tensors = model_tensors(&m, "");
    qsa_layer_options layer_options = options_of(16);
    qsa_layer *layer = NULL;
    qsa_error error;
    int64_t before = c.bytes, refused = 0;
    for (int64_t n = 1; !layer; n++) {
        c.calls = 0;
        c.fail_at = n;
        qsa_status status = qsa_layer_load(context, tensors, &layer_options, &layer, &error);
        assert_int_equal(status, layer ? QSA_OK : QSA_E_MEMORY);
        assert_true(layer || c.bytes == before);
        refused += !layer;
    }
    assert_true(refused >= 3);
    outputs o = new_outputs(qsa_layer_shape(layer), 3), untouched = new_outputs(qsa_layer_shape(layer), 3);
    qsa_layer_args args = args_of(&o, hidden, m.hidden, 0, 3, ALL_OUTPUTS);
    c.calls = 0;
    c.fail_at = 1;
    assert_int_equal(qsa_layer_project(context, layer, &args, &error), QSA_E_MEMORY);
    assert_same_bits(&o, &untouched);
    project(context, layer, &args);
    c.calls = 0;
    assert_int_equal(qsa_layer_output(context, layer, o.x[0], 3, out, &error), QSA_E_MEMORY);
    assert_int_equal(qsa_layer_output(context, layer, o.x[0], 3, out, &error), QSA_OK);
    free_outputs(&o), free_outputs(&untouched);
    qsa_tensors_close(tensors);
    qsa_close(context);
    qsa_layer_destroy(layer); /* needs no context */
    assert_int_equal(c.bytes, 0);
    free(hidden);
    free_model(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_only_prefix_is_found),       cmocka_unit_test(a_shape_follows_from_the_tensors),
        cmocka_unit_test(wrong_tensors_are_refused),      cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(refused_memory_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
