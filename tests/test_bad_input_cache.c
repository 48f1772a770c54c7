/* SPDX-License-Identifier: MIT */
/* Bad input to caches and sequences. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "support/refusal.h"
#include "support/sample.h"
#include "support/stream.h"

enum { LENGTH = 150, CAPACITY = 256 };

static qsa_context *context;
static sample cells;

/* Refuses more than 64 MiB, so that sizes no machine has are refused on every machine and under every sanitizer. */
static void *small_alloc(void *user, size_t bytes, size_t align) {
    (void)user;
    size_t unit = align < sizeof(void *) ? sizeof(void *) : align;
    return bytes > (size_t)64 << 20 ? NULL : aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
}

static void small_release(void *user, void *memory, size_t bytes, size_t align) {
    (void)user, (void)bytes, (void)align;
    free(memory);
}

static int set_up(void **state) {
    (void)state;
    qsa_shape shape = sample_shape();
    QSA_INIT(qsa_options, options);
    options.threads = 2;
    options.allocator = (qsa_allocator){NULL, small_alloc, small_release};
    assert_int_equal(qsa_open(&options, &context, NULL), QSA_OK);
    cells = sample_make(&shape, 320, 71);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    sample_free(&cells);
    qsa_close(context);
    return 0;
}

/* ------------------------------------------------------------------------------------------------ create */

enum { P, OPTIONS };

typedef struct create_call {
    qsa_context *context;
    const qsa_cache_options *options;
    qsa_cache **cache;
    qsa_cache_stats *stats; /* of the cache that came of it */
} create_call;

static qsa_status run_create(void *state, qsa_error *error) {
    create_call *p = state;
    qsa_status status = qsa_cache_create(p->context, p->options, p->cache, error);
    if (!status) {
        p->stats->size = sizeof *p->stats;
        assert_int_equal(qsa_cache_get_stats(*p->cache, p->stats, NULL), QSA_OK);
        qsa_cache_destroy(*p->cache);
    } else if (p->cache && p->context) {
        assert_null(*p->cache);
    }
    return status;
}

#define O(field, value) BAD_I64(OPTIONS, qsa_cache_options, field, value, QSA_E_ARGUMENT, "options." #field " is")

static void create_refuses(void **state) {
    (void)state;
    qsa_cache_options options = sample_options(&cells, QSA_F16, QSA_F32, CAPACITY);
    qsa_cache *cache;
    qsa_cache_stats stats;
    create_call p = {context, &options, &cache, &stats};
    const refused_call call = {.part = {[P] = {&p, sizeof p}, [OPTIONS] = {&options, sizeof options}},
                               .result = {{&stats, sizeof stats}},
                               .run = run_create,
                               .state = &p};
    const refusal rows[] = {
        NO_PTR(P, create_call, context, "context is NULL"),
        NO_PTR(P, create_call, options, "options is NULL"),
        NO_PTR(P, create_call, cache, "cache is NULL"),
        BAD_SIZE(OPTIONS, qsa_cache_options, 0, "options"),
        BAD_SIZE(OPTIONS, qsa_cache_options, sizeof options - 8, "options"),
        O(layers, 0),
        O(layers, -1),
        O(layers, 1025),
        O(layers, INT64_MAX),
        O(layers, INT64_MIN),
        O(capacity, 0),
        O(capacity, -1),
        O(capacity, INT64_C(1) << 31),
        O(capacity, INT64_MAX),
        O(capacity, INT64_MIN),
        O(page_cells, 32),
        O(page_cells, 1),
        O(page_cells, 96),
        O(page_cells, -64),
        O(page_cells, 1 << 21),
        O(page_cells, INT64_MAX),
        O(page_cells, INT64_MIN),
        O(rollback, 1),
        O(rollback, 3),
        O(rollback, -1),
        O(rollback, 65537),
        O(rollback, INT64_MAX),
        O(rollback, INT64_MIN),
        BAD_INT(OPTIONS, qsa_cache_options, screen, 2, QSA_E_ARGUMENT, "options.screen is 2"),
        BAD_INT(OPTIONS, qsa_cache_options, screen, -1, QSA_E_ARGUMENT, "options.screen is -1"),
        BAD_INT(OPTIONS, qsa_cache_options, kv_type, QSA_Q8_0, QSA_E_SHAPE, "options.kv_type is q8_0"),
        BAD_INT(OPTIONS, qsa_cache_options, kv_type, -1, QSA_E_SHAPE, "options.kv_type is unknown"),
        BAD_INT(OPTIONS, qsa_cache_options, kv_type, 6, QSA_E_SHAPE, "options.kv_type is unknown"),
        BAD_INT(OPTIONS, qsa_cache_options, key_type, QSA_I8_G64, QSA_E_SHAPE, "options.key_type is i8_g64"),
        BAD_INT(OPTIONS, qsa_cache_options, key_type, QSA_F16, QSA_E_SHAPE, "options.key_type is f16"),
        BAD_INT(OPTIONS, qsa_cache_options, key_type, QSA_Q8_0, QSA_E_SHAPE, "options.key_type is q8_0"),
        BAD_INT(OPTIONS, qsa_cache_options, key_type, -2, QSA_E_SHAPE, "options.key_type is unknown"),
        NO_PTR(OPTIONS, qsa_cache_options, index_norm, "options.index_norm is NULL"),
        BAD_F32(OPTIONS, qsa_cache_options, eps, -1e-6f, QSA_E_ARGUMENT, "options.eps is"),
        BAD_F32(OPTIONS, qsa_cache_options, eps, NAN, QSA_E_ARGUMENT, "options.eps is"),
        BAD_F32(OPTIONS, qsa_cache_options, eps, INFINITY, QSA_E_ARGUMENT, "options.eps is"),
        SPOIL(size_t, OPTIONS, qsa_cache_options, rope.size, 3, QSA_E_ARGUMENT, "rope"),
        SPOIL(size_t, OPTIONS, qsa_cache_options, rope.size, 0, QSA_E_ARGUMENT, "rope"), /* dims are set */
        BAD_I64(OPTIONS, qsa_cache_options, rope.dims, 0, QSA_E_SHAPE, "rope.dims is 64"),
        BAD_I64(OPTIONS, qsa_cache_options, rope.dims, 34, QSA_E_SHAPE, "rope.dims is 34"),
        BAD_I64(OPTIONS, qsa_cache_options, rope.dims, 3, QSA_E_SHAPE, "rope.dims is 3"),
        BAD_I64(OPTIONS, qsa_cache_options, rope.dims, -16, QSA_E_SHAPE, "rope.dims is -16"),
        BAD_F64(OPTIONS, qsa_cache_options, rope.theta, 0.5, QSA_E_ARGUMENT, "rope.theta is"),
        BAD_F64(OPTIONS, qsa_cache_options, rope.theta, -(double)INFINITY, QSA_E_ARGUMENT, "rope.theta is"),
        SPOIL(uintptr_t, OPTIONS, qsa_cache_options, rope.table, (uintptr_t)cells.q, QSA_E_ARGUMENT,
              "rope.positions is 0"),
        /* sizes that only the allocator, or the arithmetic, refuses */
        AND_I64(OPTIONS, qsa_cache_options, layers, 1024),
        BAD_I64(OPTIONS, qsa_cache_options, capacity, INT32_MAX, QSA_E_MEMORY, "refused"),
        AND_I64(OPTIONS, qsa_cache_options, layers, 1024),
        AND_I64(OPTIONS, qsa_cache_options, page_cells, 1 << 20),
        AND_I64(OPTIONS, qsa_cache_options, shape.head_dim, 512),
        AND_I64(OPTIONS, qsa_cache_options, shape.q_heads, 64),
        AND_I64(OPTIONS, qsa_cache_options, shape.kv_heads, 64),
        AND_INT(OPTIONS, qsa_cache_options, kv_type, QSA_F32),
        BAD_I64(OPTIONS, qsa_cache_options, capacity, INT32_MAX, QSA_E_MEMORY, "refused"),
        AND_I64(OPTIONS, qsa_cache_options, page_cells, 1 << 20),
        BAD_I64(OPTIONS, qsa_cache_options, capacity, 1, QSA_E_MEMORY, "refused"),
    };
    CHECK_REFUSALS(&call, rows);
    qsa_shape shape = cells.shape; /* the shape inside the options, as a part of its own */
    const refused_call shape_call = {.part = {[P] = {&p, sizeof p}, [OPTIONS] = {&options.shape, sizeof options.shape}},
                                     .result = {{&stats, sizeof stats}},
                                     .run = run_create,
                                     .state = &p};
    check_shape_refusals(&shape_call, OPTIONS);
    assert_memory_equal(&options.shape, &shape, sizeof shape);
}
#undef O

/* ------------------------------------------------------------------------------------------------ append */

typedef struct grow_call {
    qsa_sequence *sequence;
    const qsa_append_args *args;
    qsa_cache *cache;
    sample_result *result;
} grow_call;

/* After a refusal: nothing of the cache, of the lengths or of the cells has changed. Else: appended, decoded, taken
 * back. */
static qsa_status run_append(void *state, qsa_error *error) {
    const grow_call *p = state;
    QSA_INIT(qsa_cache_stats, before);
    QSA_INIT(qsa_cache_stats, after);
    assert_int_equal(qsa_cache_get_stats(p->cache, &before, NULL), QSA_OK);
    int64_t length[] = {qsa_sequence_length(p->sequence, 0), qsa_sequence_length(p->sequence, 1)};
    qsa_status status = qsa_append(p->sequence, p->args, error);
    assert_int_equal(qsa_cache_get_stats(p->cache, &after, NULL), QSA_OK);
    if (status) {
        assert_memory_equal(&before, &after, sizeof before);
        if (p->sequence) {
            assert_int_equal(qsa_sequence_length(p->sequence, 0), length[0]);
            assert_int_equal(qsa_sequence_length(p->sequence, 1), length[1]);
        }
        return status;
    }
    qsa_error decode_error;
    assert_int_equal(qsa_sequence_length(p->sequence, p->args->layer), length[p->args->layer] + p->args->cells);
    sample_ok(sample_try_decode(p->cache, p->sequence, &cells, p->args->layer, QSA_BLOCKS, p->result, &decode_error),
              &decode_error);
    sample_ok(qsa_truncate(p->sequence, LENGTH, &decode_error), &decode_error);
    return QSA_OK;
}

#define A(field, value) BAD_I64(OPTIONS, qsa_append_args, field, value, QSA_E_ARGUMENT, #field " is")

static void append_refuses(void **state) {
    (void)state;
    qsa_cache_options options = sample_options(&cells, QSA_I8_G64, QSA_BF16, CAPACITY);
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *sequence = sample_sequence(cache);
    sample_grow(sequence, &cells, LENGTH);
    sample_result r = sample_result_make(&cells.shape, 6, 40);
    qsa_append_args args = sample_append_args(&cells, 1, LENGTH, 6);
    grow_call p = {.sequence = sequence, .args = &args, .cache = cache, .result = &r};
    const refused_call call = {.part = {[P] = {&p, sizeof p}, [OPTIONS] = {&args, sizeof args}},
                               .result = {{r.out, r.out_bytes}, {r.ids, r.id_bytes}},
                               .run = run_append,
                               .state = &p};
    const refusal rows[] = {
        NO_PTR(P, grow_call, sequence, "sequence is NULL"),
        NO_PTR(P, grow_call, args, "args is NULL"),
        BAD_SIZE(OPTIONS, qsa_append_args, 0, "args"),
        BAD_SIZE(OPTIONS, qsa_append_args, sizeof args + 8, "args"),
        A(layer, -1),
        A(layer, SAMPLE_LAYERS),
        A(layer, INT64_MAX),
        A(layer, INT64_MIN),
        A(cells, -1),
        A(cells, INT64_MIN),
        BAD_I64(OPTIONS, qsa_append_args, cells, CAPACITY - LENGTH + 1, QSA_E_CAPACITY, "cells is 107"),
        BAD_I64(OPTIONS, qsa_append_args, cells, INT64_MAX, QSA_E_CAPACITY, "cells is"),
        BAD_I64(OPTIONS, qsa_append_args, cells, INT64_MAX - LENGTH, QSA_E_CAPACITY, "cells is"),
        NO_PTR(OPTIONS, qsa_append_args, k, "k is NULL"),
        NO_PTR(OPTIONS, qsa_append_args, v, "v is NULL"),
        AND_NULL(OPTIONS, qsa_append_args, raw_index),
        SPOIL(uintptr_t, OPTIONS, qsa_append_args, rotation, (uintptr_t)cells.q, QSA_E_ARGUMENT, "rotation is given"),
    };
    CHECK_REFUSALS(&call, rows);
    args.cells = 0, args.k = args.v = args.raw_index = NULL;
    assert_int_equal(qsa_append(sequence, &args, NULL), QSA_OK);
    sample_result_free(&r);
    qsa_sequence_destroy(sequence);
    qsa_cache_destroy(cache);
}
#undef A

/* A rotation by a table ends where the table does; the append that passes it changes nothing. */
static void append_refuses_positions_without_a_rotation(void **state) {
    (void)state;
    qsa_cache_options options = sample_options(&cells, QSA_F32, QSA_F32, CAPACITY);
    options.rope.table = cells.q;
    options.rope.positions = 101; /* the block at 100 is the last; its cells are 100..103 */
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *sequence = sample_sequence(cache);
    qsa_append_args args = sample_append_args(&cells, 0, 0, 108);
    qsa_error error;
    assert_int_equal(qsa_append(sequence, &args, &error), QSA_E_ARGUMENT);
    assert_non_null(strstr(error.message, "position is 104"));
    assert_int_equal(qsa_sequence_length(sequence, 0), 0);
    sample_append(sequence, &cells, 0, 0, 104);
    args = sample_append_args(&cells, 0, 104, 1);
    assert_int_equal(qsa_append(sequence, &args, &error), QSA_E_ARGUMENT);
    assert_int_equal(qsa_sequence_length(sequence, 0), 104);
    args.rotation = cells.q; /* the caller's own needs no table */
    assert_int_equal(qsa_append(sequence, &args, &error), QSA_OK);
    args = sample_append_args(&cells, 0, 108, 1);
    args.raw_index = NULL; /* no block key, no position */
    assert_int_equal(qsa_append(sequence, &args, &error), QSA_OK);
    qsa_sequence_destroy(sequence);
    qsa_cache_destroy(cache);
}

/* ------------------------------------------------------------------------------------------------ the rest */

typedef struct view_call {
    qsa_cache *cache;
    qsa_sequence *sequence, **made;
    int64_t layer, length;
    void *view;
} view_call;

static qsa_status run_kv(void *state, qsa_error *error) {
    const view_call *p = state;
    return qsa_sequence_kv(p->sequence, p->layer, p->view, error);
}

static qsa_status run_keys(void *state, qsa_error *error) {
    const view_call *p = state;
    return qsa_sequence_keys(p->sequence, p->layer, p->view, error);
}

static qsa_status run_truncate(void *state, qsa_error *error) {
    const view_call *p = state;
    qsa_status status = qsa_truncate(p->sequence, p->length, error);
    if (!status) {
        *(int64_t *)p->view = qsa_sequence_length(p->sequence, 0);
    }
    return status;
}

static qsa_status run_fork(void *state, qsa_error *error) {
    const view_call *p = state;
    qsa_status status = qsa_sequence_fork(p->sequence, p->length, p->made, error);
    if (!status) {
        *(int64_t *)p->view = qsa_sequence_length(*p->made, 1);
        qsa_sequence_destroy(*p->made);
    }
    return status;
}

static qsa_status run_sequence_create(void *state, qsa_error *error) {
    const view_call *p = state;
    qsa_status status = qsa_sequence_create(p->cache, p->made, error);
    if (!status) {
        *(int64_t *)p->view = qsa_sequence_length(*p->made, 1) + 100;
        qsa_sequence_destroy(*p->made);
    }
    return status;
}

#define LAYER(value) BAD_I64(P, view_call, layer, value, QSA_E_ARGUMENT, "layer is")

static void views_and_sequences_refuse(void **state) {
    (void)state;
    qsa_cache_options options = sample_options(&cells, QSA_BF16, QSA_F32, CAPACITY);
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *sequence = sample_sequence(cache), *made = NULL;
    sample_grow(sequence, &cells, LENGTH);
    qsa_kv kv;
    qsa_keys keys;
    int64_t number;
    view_call p = {cache, sequence, &made, 1, LENGTH, &kv};
    refused_call call = {.part = {[P] = {&p, sizeof p}}, .result = {{&kv, sizeof kv}}, .run = run_kv, .state = &p};
    const refusal view_rows[] = {
        NO_PTR(P, view_call, sequence, "sequence is NULL"),
        NO_PTR(P, view_call, view, "view is NULL"),
        LAYER(-1),
        LAYER(SAMPLE_LAYERS),
        LAYER(INT64_MAX),
        LAYER(INT64_MIN),
    };
    CHECK_REFUSALS(&call, view_rows);
    p.view = &keys;
    call.result[0] = (memory_part){&keys, sizeof keys};
    call.run = run_keys;
    CHECK_REFUSALS(&call, view_rows);
    p.view = &number;
    call.result[0] = (memory_part){&number, sizeof number};
    call.run = run_truncate;
    const refusal truncate_rows[] = {
        NO_PTR(P, view_call, sequence, "sequence is NULL"),
        BAD_I64(P, view_call, length, -1, QSA_E_ARGUMENT, "length is -1"),
        BAD_I64(P, view_call, length, INT64_MIN, QSA_E_ARGUMENT, "length is"),
        BAD_I64(P, view_call, length, 1, QSA_E_STATE, "length is 1"), /* the raw keys of cell 0 are gone */
    };
    CHECK_REFUSALS(&call, truncate_rows);
    call.run = run_fork;
    const refusal fork_rows[] = {
        NO_PTR(P, view_call, sequence, "source is NULL"),
        NO_PTR(P, view_call, made, "fork is NULL"),
        BAD_I64(P, view_call, length, -1, QSA_E_ARGUMENT, "length is -1"),
        BAD_I64(P, view_call, length, INT64_MIN, QSA_E_ARGUMENT, "length is"),
        BAD_I64(P, view_call, length, 1, QSA_E_STATE, "length is 1"),
    };
    CHECK_REFUSALS(&call, fork_rows);
    call.run = run_sequence_create;
    const refusal create_rows[] = {
        NO_PTR(P, view_call, cache, "cache is NULL"),
        NO_PTR(P, view_call, made, "sequence is NULL"),
    };
    CHECK_REFUSALS(&call, create_rows);
    assert_int_equal(qsa_truncate(sequence, INT64_MAX, NULL), QSA_OK); /* longer than it is: stays */
    assert_int_equal(qsa_sequence_length(sequence, 0), LENGTH);
    assert_int_equal(qsa_sequence_length(NULL, 0), -1);
    assert_int_equal(qsa_sequence_length(sequence, -1), -1);
    assert_int_equal(qsa_sequence_length(sequence, SAMPLE_LAYERS), -1);
    assert_int_equal(qsa_sequence_length(sequence, INT64_MAX), -1);
    qsa_sequence_destroy(NULL);
    qsa_sequence_destroy(sequence);
    qsa_cache_destroy(NULL);
    qsa_cache_destroy(cache);
}

/* ------------------------------------------------------------------------------------------------ snapshots */

typedef struct snapshot_call {
    qsa_cache *cache;
    qsa_sequence *sequence, **made;
    int64_t length;
    qsa_write write;
    qsa_read read;
    const char *path;
    stream *stream;
    qsa_snapshot_info *info;
} snapshot_call;

static qsa_status run_save(void *state, qsa_error *error) {
    const snapshot_call *p = state;
    stream saved = {0};
    qsa_status status = qsa_sequence_save(p->sequence, p->length, p->write, &saved, error);
    if (!status) {
        stream_same(&saved, p->stream);
        p->info->bytes = saved.size;
    }
    assert_true(!status || saved.calls == 0);
    stream_free(&saved);
    return status;
}

static qsa_status run_save_file(void *state, qsa_error *error) {
    const snapshot_call *p = state;
    qsa_status status = qsa_sequence_save_file(p->sequence, p->length, p->path, error);
    if (!status) {
        p->info->size = sizeof *p->info;
        assert_int_equal(qsa_snapshot_inspect_file(NULL, p->path, p->info, NULL), QSA_OK);
    }
    return status;
}

static qsa_status keep_length(qsa_status status, const snapshot_call *p) {
    if (!status) {
        p->info->longest = qsa_sequence_length(*p->made, 1);
        qsa_sequence_destroy(*p->made);
    } else if (p->made && p->cache && p->read && p->path) {
        assert_null(*p->made);
    }
    return status;
}

static qsa_status run_restore(void *state, qsa_error *error) {
    const snapshot_call *p = state;
    p->stream->at = 0;
    return keep_length(qsa_sequence_restore(p->cache, p->read, p->stream, p->made, error), p);
}

static qsa_status run_restore_file(void *state, qsa_error *error) {
    const snapshot_call *p = state;
    return keep_length(qsa_sequence_restore_file(p->cache, p->path, p->made, error), p);
}

static qsa_status run_inspect(void *state, qsa_error *error) {
    const snapshot_call *p = state;
    p->stream->at = 0;
    return qsa_snapshot_inspect(NULL, p->read, p->stream, p->info, error);
}

static qsa_status run_inspect_file(void *state, qsa_error *error) {
    const snapshot_call *p = state;
    return qsa_snapshot_inspect_file(NULL, p->path, p->info, error);
}

#define NO(field, words)           NO_PTR(P, snapshot_call, field, words)
#define LENGTH_IS(value, status)   BAD_I64(P, snapshot_call, length, value, status, "length is")
#define PATH_IS(value, code, said) SPOIL(uintptr_t, P, snapshot_call, path, (uintptr_t)(value), code, said)

static void snapshots_refuse(void **state) {
    (void)state;
    qsa_cache_options options = sample_options(&cells, QSA_I8_G64, QSA_F32, CAPACITY * 2);
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *sequence = sample_sequence(cache), *made = NULL;
    sample_grow(sequence, &cells, LENGTH);
    stream saved = stream_saved(sequence, LENGTH);
    char path[64];
    snprintf(path, sizeof path, "bad-input-%ld.qsa", (long)getpid());
    QSA_INIT(qsa_snapshot_info, info);
    snapshot_call p = {cache, sequence, &made, LENGTH, stream_write, stream_read, path, &saved, &info};
    refused_call call = {.part = {[P] = {&p, sizeof p}},
                         .result = {{&info.version, sizeof info - sizeof info.size}},
                         .run = run_save,
                         .state = &p};
    const refusal save_rows[] = {NO(sequence, "sequence is NULL"), NO(write, "write is NULL"), LENGTH_IS(-1, QSA_E_ARGUMENT),
                                 LENGTH_IS(INT64_MIN, QSA_E_ARGUMENT), LENGTH_IS(1, QSA_E_STATE)};
    CHECK_REFUSALS(&call, save_rows);
    call.run = run_save_file;
    const refusal save_file_rows[] = {NO(sequence, "sequence is NULL"),
                                      LENGTH_IS(-1, QSA_E_ARGUMENT),
                                      LENGTH_IS(1, QSA_E_STATE),
                                      NO(path, "path is NULL"),
                                      PATH_IS("", QSA_E_ARGUMENT, "path is empty"),
                                      PATH_IS("/no/such/folder/x.qsa", QSA_E_IO, "/no/such/folder/x.qsa"),
                                      PATH_IS("/", QSA_E_IO, "/")};
    CHECK_REFUSALS(&call, save_file_rows);
    call.run = run_restore;
    const refusal restore_rows[] = {NO(cache, "cache is NULL"), NO(read, "read is NULL"), NO(made, "sequence is NULL")};
    CHECK_REFUSALS(&call, restore_rows);
    call.run = run_restore_file;
    const refusal restore_file_rows[] = {NO(cache, "cache is NULL"),
                                         NO(made, "sequence is NULL"),
                                         NO(path, "path is NULL"),
                                         PATH_IS("", QSA_E_ARGUMENT, "path is empty"),
                                         PATH_IS("/no/such/file", QSA_E_IO, "/no/such/file"),
                                         PATH_IS("/", QSA_E_IO, "expected a regular file")};
    CHECK_REFUSALS(&call, restore_file_rows);
    call.part[1] = (memory_part){&info.size, sizeof info.size};
    call.run = run_inspect;
    const refusal inspect_rows[] = {NO(read, "read is NULL"), NO(info, "info is NULL"),
                                    SPOIL_AT(size_t, 1, 0, 0, QSA_E_ARGUMENT, "info is of another size"),
                                    SPOIL_AT(size_t, 1, 0, sizeof info - 8, QSA_E_ARGUMENT, "info is of another size")};
    CHECK_REFUSALS(&call, inspect_rows);
    call.run = run_inspect_file;
    const refusal inspect_file_rows[] = {NO(info, "info is NULL"), NO(path, "path is NULL"),
                                         PATH_IS("", QSA_E_ARGUMENT, "path is empty"),
                                         PATH_IS("/no/such/file", QSA_E_IO, "/no/such/file"),
                                         SPOIL_AT(size_t, 1, 0, 0, QSA_E_ARGUMENT, "info is of another size")};
    CHECK_REFUSALS(&call, inspect_file_rows);
    assert_int_equal(unlink(path), 0);
    stream_free(&saved);
    qsa_sequence_destroy(sequence);
    qsa_cache_destroy(cache);
}

/* ------------------------------------------------------------------------------------------------ statistics */

typedef struct stats_call {
    const qsa_cache *cache;
    qsa_cache_stats *stats;
} stats_call;

static qsa_status run_stats(void *state, qsa_error *error) {
    const stats_call *p = state;
    return qsa_cache_get_stats(p->cache, p->stats, error);
}

static void stats_refuse(void **state) {
    (void)state;
    qsa_cache_options options = sample_options(&cells, QSA_F32, QSA_F32, CAPACITY);
    qsa_cache *cache = sample_cache(context, &options);
    QSA_INIT(qsa_cache_stats, stats);
    stats_call p = {cache, &stats};
    /* the struct is input and output: its canary is all of it but the size */
    const refused_call call = {.part = {{&p, sizeof p}, {&stats.size, sizeof stats.size}},
                               .result = {{&stats.pages, sizeof stats - sizeof stats.size}},
                               .run = run_stats,
                               .state = &p};
    const refusal rows[] = {
        NO_PTR(0, stats_call, cache, "cache is NULL"),
        NO_PTR(0, stats_call, stats, "stats is NULL"),
        SPOIL_AT(size_t, 1, 0, 0, QSA_E_ARGUMENT, "stats is of another size"),
        SPOIL_AT(size_t, 1, 0, sizeof stats - 8, QSA_E_ARGUMENT, "stats is of another size"),
    };
    CHECK_REFUSALS(&call, rows);
    qsa_cache_destroy(cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create_refuses),
        cmocka_unit_test(append_refuses),
        cmocka_unit_test(append_refuses_positions_without_a_rotation),
        cmocka_unit_test(views_and_sequences_refuse),
        cmocka_unit_test(snapshots_refuse),
        cmocka_unit_test(stats_refuse),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
