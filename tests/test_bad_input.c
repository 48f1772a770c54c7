/* SPDX-License-Identifier: MIT */
/* Bad input to contexts, shapes, the rotation, the codecs, tensors and layers; and what getters say about nothing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "support/counted.h"
#include "support/layer_model.h"
#include "support/refusal.h"
#include "support/sample.h"

enum { P, OPTIONS, EXTRA };

/* ------------------------------------------------------------------------------------------------ context */

typedef struct open_call {
    const qsa_options *options;
    qsa_context **context;
    int64_t *threads; /* of the context that came of it */
} open_call;

static qsa_status run_open(void *state, qsa_error *error) {
    const open_call *p = state;
    qsa_status status = qsa_open(p->options, p->context, error);
    if (!status) {
        *p->threads = qsa_context_threads(*p->context);
        qsa_close(*p->context);
    } else if (p->context) {
        assert_null(*p->context);
    }
    return status;
}

static void open_refuses(void **state) {
    (void)state;
    counter count = {0, 0, 0};
    QSA_INIT(qsa_options, options);
    options.threads = 3;
    options.allocator = counted(&count);
    qsa_context *context;
    int64_t threads;
    open_call p = {&options, &context, &threads};
    const refused_call call = {.part = {[P] = {&p, sizeof p}, [OPTIONS] = {&options, sizeof options}},
                               .result = {{&threads, sizeof threads}},
                               .run = run_open,
                               .state = &p};
    const refusal rows[] = {
        NO_PTR(P, open_call, context, "context is NULL"),
        BAD_SIZE(OPTIONS, qsa_options, 0, "options.size is 0"),
        BAD_SIZE(OPTIONS, qsa_options, sizeof options + 8, "options.size is"),
        BAD_I64(OPTIONS, qsa_options, threads, -1, QSA_E_ARGUMENT, "options.threads is -1"),
        BAD_I64(OPTIONS, qsa_options, threads, 1025, QSA_E_ARGUMENT, "options.threads is 1025"),
        BAD_I64(OPTIONS, qsa_options, threads, INT64_MAX, QSA_E_ARGUMENT, "options.threads is"),
        BAD_I64(OPTIONS, qsa_options, threads, INT64_MIN, QSA_E_ARGUMENT, "options.threads is"),
        BAD_INT(OPTIONS, qsa_options, cpu, -1, QSA_E_ARGUMENT, "options.cpu is"),
        BAD_INT(OPTIONS, qsa_options, cpu, 6, QSA_E_ARGUMENT, "options.cpu is 6"),
        BAD_INT(OPTIONS, qsa_options, cpu, INT32_MAX, QSA_E_ARGUMENT, "options.cpu is"),
        NO_PTR(OPTIONS, qsa_options, allocator.alloc, "options.allocator.alloc is NULL"),
        NO_PTR(OPTIONS, qsa_options, allocator.release, "options.allocator.release is NULL"),
    };
    CHECK_REFUSALS(&call, rows);
    assert_int_equal(threads, 3);
    for (int cpu = QSA_CPU_AUTO; cpu <= QSA_CPU_NEON; cpu++) { /* each level is opened, or refused by its name */
        qsa_error error;
        options.cpu = (qsa_cpu)cpu;
        qsa_status status = qsa_open(&options, &context, &error);
        assert_int_equal(status, qsa_cpu_available((qsa_cpu)cpu) ? QSA_OK : QSA_E_UNSUPPORTED);
        if (status) {
            assert_null(context);
            assert_non_null(strstr(error.message, qsa_cpu_name((qsa_cpu)cpu)));
        } else {
            assert_true(qsa_context_cpu(context) != QSA_CPU_AUTO);
            qsa_close(context);
        }
    }
    assert_int_equal(count.bytes, 0);
}

static void getters_know_nothing(void **state) {
    (void)state;
    static const int odd[] = {-1, 6, 100, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_string_equal(qsa_type_name((qsa_type)odd[i]), "unknown");
        assert_string_equal(qsa_cpu_name((qsa_cpu)odd[i]), "unknown");
        assert_int_equal(qsa_cpu_available((qsa_cpu)odd[i]), 0);
        assert_non_null(qsa_status_name((qsa_status)odd[i]));
    }
    assert_string_equal(qsa_type_name((qsa_type)0), "unknown");
    assert_string_equal(qsa_status_name((qsa_status)9), "unknown");
    assert_string_equal(qsa_status_name(QSA_OK), "ok");
    assert_string_equal(qsa_status_name(QSA_E_FORMAT), "format");
    assert_int_equal(qsa_cpu_available(QSA_CPU_AUTO), 1);
    assert_int_equal(qsa_cpu_available(QSA_CPU_C), 1);
    assert_string_equal(qsa_version(), QSA_VERSION);
    assert_int_equal(qsa_context_cpu(NULL), QSA_CPU_AUTO);
    assert_int_equal(qsa_context_threads(NULL), 0);
    assert_null(qsa_context_kernel(NULL, 0));
    qsa_context *context = sample_context(QSA_CPU_C, 1);
    int64_t kernels = 0;
    while (qsa_context_kernel(context, kernels)) {
        assert_true(strncmp(qsa_context_kernel(context, kernels), "qsa_", 4) == 0);
        kernels++;
    }
    assert_true(kernels >= 4);
    assert_null(qsa_context_kernel(context, -1));
    assert_null(qsa_context_kernel(context, INT64_MIN));
    assert_null(qsa_context_kernel(context, INT64_MAX));
    qsa_close(context);
    qsa_close(NULL);
    qsa_tensors_close(NULL);
    qsa_layer_destroy(NULL);
}

/* ------------------------------------------------------------------------------------------------ shape */

typedef struct shape_call {
    const qsa_shape *shape;
} shape_call;

static qsa_status run_shape(void *state, qsa_error *error) {
    return qsa_shape_check(((const shape_call *)state)->shape, error);
}

static void shape_check_refuses(void **state) {
    (void)state;
    qsa_shape shape = sample_shape(), of_model;
    shape_call p = {&shape};
    const refused_call call = {
        .part = {[P] = {&p, sizeof p}, [OPTIONS] = {&shape, sizeof shape}}, .run = run_shape, .state = &p};
    const refusal rows[] = {NO_PTR(P, shape_call, shape, "shape is NULL")};
    CHECK_REFUSALS(&call, rows);
    check_shape_refusals(&call, OPTIONS);
    memset(&of_model, 0xa5, sizeof of_model);
    qsa_shape_qwen38_flash_next(&of_model);
    assert_int_equal(qsa_shape_check(&of_model, NULL), QSA_OK);
}

static void widths_of_any_length(void **state) {
    (void)state;
    qsa_shape shape;
    qsa_shape_qwen38_flash_next(&shape);
    for (int contract = QSA_BLOCKS; contract <= QSA_DENSE; contract++) {
        assert_int_equal(qsa_width(&shape, (qsa_contract)contract, 0), 0);
        assert_int_equal(qsa_width(&shape, (qsa_contract)contract, -1), 0);
        assert_int_equal(qsa_width(&shape, (qsa_contract)contract, INT64_MIN), 0);
    }
    assert_int_equal(qsa_width(&shape, QSA_BLOCKS, INT64_MAX), 2048 + 3);
    assert_int_equal(qsa_width(&shape, QSA_CELLS, INT64_MAX), 2051);
    assert_int_equal(qsa_width(&shape, QSA_DENSE, INT64_MAX), INT64_MAX);
    for (int64_t n = 2048; n <= 2060; n++) {
        assert_int_equal(qsa_width(&shape, QSA_BLOCKS, n), n <= 2051 ? n : 2048 + n % 4);
        assert_int_equal(qsa_width(&shape, QSA_CELLS, n), n <= 2051 ? n : 2051);
    }
    assert_int_equal(qsa_bytes_per_cell(&shape, QSA_I8_G64, QSA_BF16), 1056 + 64);
    assert_int_equal(qsa_bytes_per_cell(&shape, QSA_F32, QSA_F32), 4096 + 128);
    assert_int_equal(qsa_bytes_per_cell(&shape, QSA_Q8_0, QSA_BF16), 0);
    assert_int_equal(qsa_bytes_per_cell(&shape, QSA_F16, QSA_I8_G64), 0);
    assert_int_equal(qsa_bytes_per_cell(&shape, (qsa_type)0, QSA_BF16), 0);
    assert_int_equal(qsa_bytes_per_cell(&shape, (qsa_type)-1, (qsa_type)77), 0);
}

/* ------------------------------------------------------------------------------------------------ rotation, codecs */

typedef struct rope_call {
    const qsa_rope *rope;
    int64_t position;
    float *out;
} rope_call;

static qsa_status run_rope(void *state, qsa_error *error) {
    const rope_call *p = state;
    return qsa_rope_row(p->rope, p->position, p->out, error);
}

#define R64(field, value, status, words) BAD_I64(OPTIONS, qsa_rope, field, value, status, words)

static void rope_row_refuses(void **state) {
    (void)state;
    float out[32][2], table[3][32][2];
    QSA_INIT(qsa_rope, rope);
    rope.dims = 64;
    rope.theta = 1e6;
    rope_call p = {&rope, 7, out[0]};
    const refused_call call = {.part = {[P] = {&p, sizeof p}, [OPTIONS] = {&rope, sizeof rope}},
                               .result = {{out, sizeof out}},
                               .run = run_rope,
                               .state = &p};
    const refusal rows[] = {
        BAD_I64(P, rope_call, position, -1, QSA_E_ARGUMENT, "position is -1"),
        BAD_I64(P, rope_call, position, INT64_MIN, QSA_E_ARGUMENT, "position is"),
        BAD_I64(P, rope_call, position, INT64_C(1) << 31, QSA_E_ARGUMENT, "position is 2147483648"),
        BAD_I64(P, rope_call, position, INT64_MAX, QSA_E_ARGUMENT, "position is"),
        NO_PTR(P, rope_call, out, "out is NULL"),
        BAD_SIZE(OPTIONS, qsa_rope, 0, "rope"),
        BAD_SIZE(OPTIONS, qsa_rope, sizeof rope + 1, "rope"),
        R64(dims, -64, QSA_E_SHAPE, "rope.dims is -64"),
        R64(dims, 1, QSA_E_SHAPE, "rope.dims is 1"),
        R64(dims, 63, QSA_E_SHAPE, "rope.dims is 63"),
        R64(dims, 514, QSA_E_SHAPE, "rope.dims is 514"),
        R64(dims, INT64_MIN, QSA_E_SHAPE, "rope.dims is"),
        BAD_F64(OPTIONS, qsa_rope, theta, 1.0, QSA_E_ARGUMENT, "rope.theta is 1"),
        BAD_F64(OPTIONS, qsa_rope, theta, -2.0, QSA_E_ARGUMENT, "rope.theta is -2"),
        BAD_F64(OPTIONS, qsa_rope, theta, (double)NAN, QSA_E_ARGUMENT, "rope.theta is"),
        BAD_F64(OPTIONS, qsa_rope, theta, (double)INFINITY, QSA_E_ARGUMENT, "rope.theta is"),
        SPOIL(uintptr_t, OPTIONS, qsa_rope, table, (uintptr_t)table, QSA_E_ARGUMENT, "rope.positions is 0"),
    };
    CHECK_REFUSALS(&call, rows);
    float from_zero[32][2], from_null[32][2];
    qsa_rope zero;
    memset(&zero, 0, sizeof zero);
    assert_int_equal(qsa_rope_row(&zero, 9, from_zero[0], NULL), QSA_OK);
    assert_int_equal(qsa_rope_row(NULL, 9, from_null[0], NULL), QSA_OK);
    assert_memory_equal(from_zero, from_null, sizeof from_null);
    for (int i = 0; i < 3 * 64; i++) {
        table[i / 64][i % 64 / 2][i % 2] = (float)i;
    }
    rope.table = table[0][0];
    rope.positions = 3;
    const refusal table_rows[] = {
        BAD_I64(P, rope_call, position, 3, QSA_E_ARGUMENT, "position is 3"),
        R64(positions, -1, QSA_E_ARGUMENT, "rope.positions is -1"),
        R64(positions, INT64_MIN, QSA_E_ARGUMENT, "rope.positions is"),
    };
    p.position = 2;
    CHECK_REFUSALS(&call, table_rows);
    assert_memory_equal(out, table[2], sizeof out);
}

typedef struct codec_call {
    int type;
    int64_t count, groups;
    const void *from;
    void *to;
    uint16_t *scales;
} codec_call;

static qsa_status run_encode(void *state, qsa_error *error) {
    const codec_call *p = state;
    return qsa_kv_encode((qsa_type)p->type, p->count, p->groups, p->from, p->to, p->scales, error);
}

static qsa_status run_decode(void *state, qsa_error *error) {
    const codec_call *p = state;
    return qsa_kv_decode((qsa_type)p->type, p->count, p->groups, p->from, p->scales, p->to, error);
}

#define C(field, value, words) BAD_I64(P, codec_call, field, value, QSA_E_ARGUMENT, words)

static void codecs_refuse(void **state) {
    (void)state;
    uint64_t seed = 5;
    float *x = sample_floats(&seed, 3 * 2 * 64, 9.0f), back[3 * 2 * 64];
    int8_t encoded[3 * 2 * 64];
    uint16_t scales[3 * 2];
    codec_call p = {QSA_I8_G64, 3, 2, x, encoded, scales};
    refused_call call = {.part = {[P] = {&p, sizeof p}},
                         .result = {{encoded, sizeof encoded}, {scales, sizeof scales}},
                         .run = run_encode,
                         .state = &p};
    const refusal rows[] = {
        BAD_INT(P, codec_call, type, 0, QSA_E_SHAPE, "type is unknown"),
        BAD_INT(P, codec_call, type, QSA_Q8_0, QSA_E_SHAPE, "type is q8_0"),
        BAD_INT(P, codec_call, type, -4, QSA_E_SHAPE, "type is unknown"),
        BAD_INT(P, codec_call, type, QSA_F32, QSA_E_ARGUMENT, "scales is given"),
        BAD_INT(P, codec_call, type, QSA_F16, QSA_E_ARGUMENT, "scales is given"),
        BAD_INT(P, codec_call, type, QSA_BF16, QSA_E_ARGUMENT, "scales is given"),
        NO_PTR(P, codec_call, scales, "scales is NULL"),
        C(count, -1, "count is -1"),
        C(count, INT64_MIN, "count is"),
        C(count, INT64_MAX, "count is"),
        C(count, INT64_C(1) << 54, "count is"),
        C(groups, 0, "groups is 0"),
        C(groups, -1, "groups is -1"),
        C(groups, INT64_MIN, "groups is"),
        C(groups, INT64_MAX, "groups is"),
        C(groups, INT64_C(1) << 53, "groups is"),
    };
    const refusal encode_rows[] = {NO_PTR(P, codec_call, from, "x is NULL"),
                                   NO_PTR(P, codec_call, to, "encoded is NULL")};
    const refusal decode_rows[] = {NO_PTR(P, codec_call, from, "encoded is NULL"),
                                   NO_PTR(P, codec_call, to, "x is NULL")};
    CHECK_REFUSALS(&call, rows);
    CHECK_REFUSALS(&call, encode_rows);
    assert_int_equal(qsa_kv_encode(QSA_I8_G64, 3, 2, x, encoded, scales, NULL), QSA_OK);
    p.from = encoded;
    p.to = back;
    call.result[0] = (memory_part){back, sizeof back};
    call.result[1] = (memory_part){NULL, 0};
    call.run = run_decode;
    CHECK_REFUSALS(&call, rows);
    CHECK_REFUSALS(&call, decode_rows);
    for (int type = QSA_F32; type <= QSA_I8_G64; type++) { /* nothing to do needs nothing */
        assert_int_equal(qsa_kv_encode((qsa_type)type, 0, 1, NULL, NULL, NULL, NULL), QSA_OK);
        assert_int_equal(qsa_kv_decode((qsa_type)type, 0, 1, NULL, NULL, NULL, NULL), QSA_OK);
    }
    free(x);
}

/* ------------------------------------------------------------------------------------------------ tensors, layers */

typedef struct tensors_call {
    const qsa_tensors *tensors;
    const char *name;
    int64_t i, count;
    void *out; /* of reads; info of the others */
} tensors_call;

static qsa_status run_get(void *state, qsa_error *error) {
    const tensors_call *p = state;
    return qsa_tensors_get(p->tensors, p->i, p->out, error);
}

static qsa_status run_find(void *state, qsa_error *error) {
    const tensors_call *p = state;
    return qsa_tensors_find(p->tensors, p->name, p->out, error);
}

static qsa_status run_read_f32(void *state, qsa_error *error) {
    const tensors_call *p = state;
    return qsa_tensors_read_f32(p->tensors, p->name, p->out, p->count, error);
}

static qsa_status run_read_bytes(void *state, qsa_error *error) {
    const tensors_call *p = state;
    return qsa_tensors_read_bytes(p->tensors, p->name, p->out, p->count, error);
}

static void tensors_refuse(void **state) {
    (void)state;
    model m = random_model(small_sizes, 21);
    qsa_tensors *tensors = model_tensors(&m, "");
    qsa_tensor_info info;
    float norm[64];
    tensors_call p = {tensors, "self_attn.k_norm.weight", 8, 0, &info};
    refused_call call = {.part = {[P] = {&p, sizeof p}}, .result = {{&info, sizeof info}}, .run = run_get, .state = &p};
    const refusal shared[] = {NO_PTR(P, tensors_call, tensors, "tensors is NULL")};
    const refusal get_rows[] = {
        BAD_I64(P, tensors_call, i, -1, QSA_E_ARGUMENT, "-1"),
        BAD_I64(P, tensors_call, i, 9, QSA_E_ARGUMENT, "9"),
        BAD_I64(P, tensors_call, i, INT64_MAX, QSA_E_ARGUMENT, "9223372036854775807"),
        BAD_I64(P, tensors_call, i, INT64_MIN, QSA_E_ARGUMENT, "-9223372036854775808"),
    };
    const refusal info_rows[] = {NO_PTR(P, tensors_call, out, "info is NULL")};
    const refusal name_rows[] = {
        NO_PTR(P, tensors_call, name, "name is NULL"),
        SPOIL(uintptr_t, P, tensors_call, name, (uintptr_t) "self_attn.k_norm", QSA_E_ARGUMENT, "self_attn.k_norm"),
        SPOIL(uintptr_t, P, tensors_call, name, (uintptr_t) "", QSA_E_ARGUMENT, "\"\""),
    };
    const refusal count_rows[] = {
        NO_PTR(P, tensors_call, out, "out is NULL"),
        BAD_I64(P, tensors_call, count, 0, QSA_E_ARGUMENT, "is 0"),
        BAD_I64(P, tensors_call, count, -1, QSA_E_ARGUMENT, "is -1"),
        BAD_I64(P, tensors_call, count, 63, QSA_E_ARGUMENT, "is 63"),
        BAD_I64(P, tensors_call, count, 65, QSA_E_ARGUMENT, "is 65"),
        BAD_I64(P, tensors_call, count, INT64_MAX, QSA_E_ARGUMENT, "is 9223372036854775807"),
        BAD_I64(P, tensors_call, count, INT64_MIN, QSA_E_ARGUMENT, "is -9223372036854775808"),
    };
    CHECK_REFUSALS(&call, shared);
    CHECK_REFUSALS(&call, get_rows);
    CHECK_REFUSALS(&call, info_rows);
    call.run = run_find;
    CHECK_REFUSALS(&call, shared);
    CHECK_REFUSALS(&call, name_rows);
    CHECK_REFUSALS(&call, info_rows);
    p.out = norm;
    call.result[0] = (memory_part){norm, sizeof norm};
    for (int bytes = 0; bytes < 2; bytes++) {
        p.count = bytes ? (int64_t)sizeof norm : 64;
        call.run = bytes ? run_read_bytes : run_read_f32;
        CHECK_REFUSALS(&call, shared);
        CHECK_REFUSALS(&call, name_rows);
        CHECK_REFUSALS(&call, count_rows);
    }
    int32_t integers[64];
    assert_int_equal(qsa_tensors_read_i32(tensors, p.name, integers, 64, NULL), QSA_E_SHAPE);
    assert_int_equal(qsa_tensors_read_i32(NULL, p.name, integers, 64, NULL), QSA_E_ARGUMENT);
    assert_int_equal(qsa_tensors_read_i32(tensors, NULL, integers, 64, NULL), QSA_E_ARGUMENT);
    assert_null(qsa_tensors_metadata(tensors, "nothing"));
    assert_null(qsa_tensors_metadata(tensors, NULL));
    assert_null(qsa_tensors_metadata(NULL, "x"));
    assert_int_equal(qsa_tensors_count(NULL), 0);
    qsa_tensors_close(tensors);
    free_model(&m);
}

typedef struct open_tensors_call {
    const char *path;
    const qsa_allocator *allocator;
    qsa_tensors **tensors;
} open_tensors_call;

static qsa_status run_open_tensors(void *state, qsa_error *error) {
    const open_tensors_call *p = state;
    qsa_status status = qsa_tensors_open(p->path, p->allocator, p->tensors, error);
    if (status && p->tensors) {
        assert_null(*p->tensors);
    } else if (!status) {
        qsa_tensors_close(*p->tensors);
    }
    return status;
}

static void tensors_open_refuses(void **state) {
    (void)state;
    counter count = {0, 0, 0};
    qsa_allocator allocator = counted(&count);
    qsa_tensors *tensors = NULL;
    open_tensors_call p = {QSA_DATA_DIR "/qwen4exp_layer_f32.safetensors", &allocator, &tensors};
    const refused_call call = {.part = {[P] = {&p, sizeof p}, [OPTIONS] = {&allocator, sizeof allocator}},
                               .run = run_open_tensors,
                               .state = &p};
    const refusal rows[] = {
        NO_PTR(P, open_tensors_call, path, "path is NULL"),
        NO_PTR(P, open_tensors_call, tensors, "tensors is NULL"),
        NO_PTR(OPTIONS, qsa_allocator, alloc, "alloc"),
        NO_PTR(OPTIONS, qsa_allocator, release, "release"),
        SPOIL(uintptr_t, P, open_tensors_call, path, (uintptr_t) "", QSA_E_ARGUMENT, "path is empty"),
        SPOIL(uintptr_t, P, open_tensors_call, path, (uintptr_t) "/no/such/file", QSA_E_IO, "/no/such/file"),
    };
    CHECK_REFUSALS(&call, rows);
    assert_int_equal(count.bytes, 0);
}

typedef struct load_call {
    qsa_context *context;
    const qsa_tensors *tensors;
    const qsa_layer_options *options;
    qsa_layer **layer;
    int64_t *hidden;
} load_call;

static qsa_status run_load(void *state, qsa_error *error) {
    const load_call *p = state;
    qsa_status status = qsa_layer_load(p->context, p->tensors, p->options, p->layer, error);
    if (!status) {
        *p->hidden = qsa_layer_hidden_size(*p->layer);
        qsa_layer_destroy(*p->layer);
    } else if (p->layer) {
        assert_null(*p->layer);
    }
    return status;
}

static void layer_load_refuses(void **state) {
    (void)state;
    model m = random_model(small_sizes, 22);
    qsa_context *context = sample_context(QSA_CPU_AUTO, 1);
    qsa_tensors *tensors = model_tensors(&m, "model.layers.3.");
    qsa_layer_options options = options_of(16);
    options.block = 4;
    options.budget = 32;
    qsa_layer *layer;
    int64_t hidden;
    load_call p = {context, tensors, &options, &layer, &hidden};
    const refused_call call = {.part = {[P] = {&p, sizeof p}, [OPTIONS] = {&options, sizeof options}},
                               .result = {{&hidden, sizeof hidden}},
                               .run = run_load,
                               .state = &p};
#define L64(field, value, status, words) BAD_I64(OPTIONS, qsa_layer_options, field, value, status, words)
    const refusal rows[] = {
        NO_PTR(P, load_call, context, "context is NULL"),
        NO_PTR(P, load_call, tensors, "tensors is NULL"),
        NO_PTR(P, load_call, layer, "layer is NULL"),
        BAD_SIZE(OPTIONS, qsa_layer_options, 0, "options.size is 0"),
        BAD_SIZE(OPTIONS, qsa_layer_options, sizeof options - 1, "options.size is"),
        SPOIL(uintptr_t, OPTIONS, qsa_layer_options, prefix, (uintptr_t) "no.", QSA_E_ARGUMENT, "prefix is \"no.\""),
        SPOIL(uintptr_t, OPTIONS, qsa_layer_options, prefix, (uintptr_t) "", QSA_E_ARGUMENT, "prefix is \"\""),
        L64(block, 3, QSA_E_SHAPE, "block is 3"),
        L64(block, -4, QSA_E_SHAPE, "block is -4"),
        L64(block, 16, QSA_E_SHAPE, "block is 16"),
        L64(block, INT64_MIN, QSA_E_SHAPE, "block is"),
        L64(budget, 34, QSA_E_SHAPE, "budget is 34"),
        L64(budget, -32, QSA_E_SHAPE, "budget is -32"),
        L64(budget, INT64_MAX, QSA_E_SHAPE, "budget is"),
        BAD_F32(OPTIONS, qsa_layer_options, eps, -1.0f, QSA_E_ARGUMENT, "options.eps is"),
        BAD_F32(OPTIONS, qsa_layer_options, eps, NAN, QSA_E_ARGUMENT, "options.eps is"),
        BAD_F32(OPTIONS, qsa_layer_options, eps, INFINITY, QSA_E_ARGUMENT, "options.eps is"),
        L64(rope.dims, 18, QSA_E_SHAPE, "rope.dims is 18"),
        L64(rope.dims, 0, QSA_E_SHAPE, "rope.dims is 64"),
        L64(rope.dims, -2, QSA_E_SHAPE, "rope.dims is -2"),
        SPOIL(size_t, OPTIONS, qsa_layer_options, rope.size, 5, QSA_E_ARGUMENT, "rope"),
        SPOIL(double, OPTIONS, qsa_layer_options, rope.theta, 0.5, QSA_E_ARGUMENT, "rope.theta is"),
        SPOIL(uintptr_t, OPTIONS, qsa_layer_options, rope.table, (uintptr_t)m.w[0], QSA_E_ARGUMENT,
              "rope.positions is 0"),
    };
    CHECK_REFUSALS(&call, rows);
    qsa_tensors_close(tensors);
    qsa_close(context);
    free_model(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_refuses),        cmocka_unit_test(getters_know_nothing),
        cmocka_unit_test(shape_check_refuses), cmocka_unit_test(widths_of_any_length),
        cmocka_unit_test(rope_row_refuses),    cmocka_unit_test(codecs_refuse),
        cmocka_unit_test(tensors_refuse),      cmocka_unit_test(tensors_open_refuses),
        cmocka_unit_test(layer_load_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
