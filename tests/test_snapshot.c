/* SPDX-License-Identifier: MIT */
/*
 * Snapshots: what is saved comes back, in every format, at every n mod 4, of any prefix, across page sizes, screening and
 * rollback; what was saved with other numbers is refused; a file of each format version is read for ever. Faults 27, 44.
 */
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "runtime/checksum.h"
#include "support/counted.h"
#include "support/levels.h"
#include "support/sample.h"
#include "support/stream.h"

enum { CELLS = 200, LONG = 5003 };

static counter count;
static qsa_context *context;
static qsa_cpu level;
static sample cells;

static int set_up(void **state) {
    (void)state;
    qsa_shape shape = sample_shape();
    QSA_INIT(qsa_options, options);
    options.cpu = level;
    options.threads = 2;
    options.allocator = counted(&count);
    assert_int_equal(qsa_open(&options, &context, NULL), QSA_OK);
    cells = sample_make(&shape, LONG + 100, 17);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    sample_free(&cells);
    qsa_close(context);
    assert_int_equal(count.bytes, 0);
    return 0;
}

static qsa_cache_options options_of(qsa_type kv, qsa_type key) {
    return sample_options(&cells, kv, key, 4 * CELLS);
}

/* ------------------------------------------------------------------------------------------------ the same from here on */

static void same_decode(qsa_cache *a_cache, const qsa_sequence *a, qsa_cache *b_cache, const qsa_sequence *b) {
    for (int64_t layer = 0; layer < SAMPLE_LAYERS; layer++) {
        int64_t n = qsa_sequence_length(a, layer), rows = n < 5 ? n : 5;
        assert_int_equal(qsa_sequence_length(b, layer), n);
        for (int contract = QSA_BLOCKS; contract <= QSA_DENSE; contract++) {
            sample_result one = sample_decode(a_cache, a, &cells, layer, rows, (qsa_contract)contract);
            sample_result two = sample_decode(b_cache, b, &cells, layer, rows, (qsa_contract)contract);
            sample_same_bits(&one, &two);
            sample_result_free(&one);
            sample_result_free(&two);
        }
    }
}

/* Both in steps that cut blocks anywhere, then back by a few cells, then on. */
static void same_future(qsa_cache *a_cache, qsa_sequence *a, qsa_cache *b_cache, qsa_sequence *b) {
    int64_t n = qsa_sequence_length(a, 0);
    for (int64_t step = 1; step <= 6; n += step++) {
        sample_grow(a, &cells, n + step);
        sample_grow(b, &cells, n + step);
        same_decode(a_cache, a, b_cache, b);
        if (step == 3) {
            assert_int_equal(qsa_truncate(a, n - 1 > 0 ? n - 1 : 0, NULL), qsa_truncate(b, n - 1 > 0 ? n - 1 : 0, NULL));
            n = qsa_sequence_length(a, 0) - step;
        }
    }
    stream one = stream_saved(a, INT64_MAX), two = stream_saved(b, INT64_MAX);
    stream_same(&one, &two);
    stream_free(&one);
    stream_free(&two);
}

/* ------------------------------------------------------------------------------------------------ round trips */

/* Fault 27: at every n mod 4, K/V, block keys, ring and lengths. The bytes of a second snapshot say that all is there. */
static void every_format_comes_back(void **state) {
    (void)state;
    static const qsa_type kv_types[] = {QSA_F32, QSA_F16, QSA_BF16, QSA_I8_G64}, key_types[] = {QSA_F32, QSA_BF16};
    static const int64_t lengths[] = {0, 1, 2, 3, 4, 5, 15, 16, 17, 18, 61, 62, 63, 64, 65, 66, 67, 130, 131, 132, 133};
    for (int i = 0; i < 4 * 2 * 2; i++) {
        qsa_cache_options here = options_of(kv_types[i / 4], key_types[i / 2 % 2]), there = here;
        here.screen = i % 2;
        there.screen = !here.screen;
        there.page_cells = 128;
        there.capacity = 1000;
        qsa_cache *cache = sample_cache(context, &here), *other = sample_cache(context, &there);
        for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++) {
            qsa_sequence *first = sample_sequence(cache);
            sample_grow(first, &cells, lengths[j]);
            stream saved = stream_saved(first, INT64_MAX);
            qsa_sequence *same = stream_restored(cache, &saved), *moved = stream_restored(other, &saved);
            assert_int_equal(saved.at, saved.size);
            stream again = stream_saved(moved, INT64_MAX);
            stream_same(&saved, &again);
            same_decode(cache, first, cache, same);
            same_decode(cache, first, other, moved);
            if (j % 5 == 0 || lengths[j] > 129) {
                same_future(cache, first, other, moved);
            }
            stream_free(&saved);
            stream_free(&again);
            qsa_sequence_destroy(first);
            qsa_sequence_destroy(same);
            qsa_sequence_destroy(moved);
        }
        qsa_cache_destroy(cache);
        qsa_cache_destroy(other);
    }
}

/* Layers apart by cells and keys, in the middle of a model's step. */
static void layers_may_differ(void **state) {
    (void)state;
    qsa_cache_options options = options_of(QSA_I8_G64, QSA_BF16);
    qsa_cache *cache = sample_cache(context, &options);
    for (int64_t missing = 0; missing < 2; missing++) {
        qsa_sequence *first = sample_sequence(cache);
        sample_append(first, &cells, 0, 0, 70);
        sample_append(first, &cells, 1, 0, 67);
        qsa_append_args args = sample_append_args(&cells, 1, 67, 9);
        args.raw_index = NULL;
        assert_int_equal(missing ? qsa_append(first, &args, NULL) : QSA_OK, QSA_OK);
        stream saved = stream_saved(first, INT64_MAX);
        QSA_INIT(qsa_snapshot_info, info);
        saved.at = 0;
        assert_int_equal(qsa_snapshot_inspect(NULL, stream_read, &saved, &info, NULL), QSA_OK);
        assert_int_equal(info.unkeyed, missing);
        assert_int_equal(info.longest, missing ? 76 : 70);
        assert_int_equal(info.shortest, missing ? 70 : 67);
        qsa_sequence *second = stream_restored(cache, &saved);
        sample_result r = sample_result_make(&cells.shape, 1, 35);
        qsa_error error;
        assert_int_equal(sample_try_decode(cache, second, &cells, 1, QSA_BLOCKS, &r, &error), missing ? QSA_E_STATE : QSA_OK);
        assert_int_equal(qsa_truncate(first, 67, NULL), QSA_OK);
        assert_int_equal(qsa_truncate(second, 67, NULL), QSA_OK);
        same_future(cache, first, cache, second); /* the keys go on where they ended */
        sample_result_free(&r);
        stream_free(&saved);
        qsa_sequence_destroy(first);
        qsa_sequence_destroy(second);
    }
    qsa_cache_destroy(cache);
}

/* A block that was begun with a rotation of its own ends with it, also after a restore. */
static void rotations_are_kept(void **state) {
    (void)state;
    qsa_cache_options options = options_of(QSA_F16, QSA_F32);
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *first = sample_sequence(cache);
    float rotation[90 * 16];
    for (int64_t i = 0; i < 90; i++) {
        assert_int_equal(qsa_rope_row(&options.rope, 1000 + i / 7, rotation + i * 16, NULL), QSA_OK);
    }
    for (int64_t layer = 0; layer < SAMPLE_LAYERS; layer++) {
        qsa_append_args args = sample_append_args(&cells, layer, 0, 90);
        args.rotation = rotation;
        assert_int_equal(qsa_append(first, &args, NULL), QSA_OK);
    }
    stream saved = stream_saved(first, INT64_MAX);
    qsa_sequence *second = stream_restored(cache, &saved);
    same_future(cache, first, cache, second);
    stream_free(&saved);
    qsa_sequence_destroy(first);
    qsa_sequence_destroy(second);
    qsa_cache_destroy(cache);
}

/* A prefix is what a fork of it would be, and refused where a fork is. */
static void any_prefix(void **state) {
    (void)state;
    qsa_cache_options options = options_of(QSA_I8_G64, QSA_BF16);
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *whole = sample_sequence(cache);
    int refused = 0;
    sample_grow(whole, &cells, 133);
    for (int64_t length = 0; length <= 134; length++) {
        qsa_sequence *fork = NULL, *second = NULL;
        qsa_error error;
        stream saved = {0};
        qsa_status status = qsa_sequence_fork(whole, length, &fork, &error);
        assert_int_equal(qsa_sequence_save(whole, length, stream_write, &saved, &error), status);
        if (status) {
            refused++;
            assert_int_equal(saved.calls, 0);
            continue;
        }
        second = stream_restored(cache, &saved);
        stream forked = stream_saved(fork, INT64_MAX);
        stream_same(&saved, &forked);
        same_decode(cache, fork, cache, second);
        stream_free(&saved);
        stream_free(&forked);
        qsa_sequence_destroy(fork);
        qsa_sequence_destroy(second);
    }
    assert_int_equal(refused, 3 * 30); /* inside the blocks that begin before cell 133 - 16 */
    qsa_sequence_destroy(whole);
    qsa_cache_destroy(cache);
}

/* Rollback is the cache's: a larger one adds nothing to what was kept, a smaller one keeps the last. */
static void rollback_of_the_cache(void **state) {
    (void)state;
    qsa_cache_options options = options_of(QSA_F32, QSA_F32);
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *first = sample_sequence(cache);
    sample_grow(first, &cells, 133);
    stream saved = stream_saved(first, INT64_MAX);
    for (int64_t rollback = 4; rollback <= 40; rollback += 3) {
        qsa_cache_options there = options;
        there.rollback = rollback;
        qsa_cache *other = sample_cache(context, &there);
        int64_t kept = rollback < SAMPLE_ROLLBACK ? rollback : SAMPLE_ROLLBACK;
        for (int64_t back = 0; back < 24; back++) {
            qsa_sequence *second = stream_restored(other, &saved), *fork = NULL;
            int64_t to = 133 - back, works = to % 4 == 0 || back == 0 || to - to % 4 >= 133 - kept;
            assert_int_equal(qsa_truncate(second, to, NULL), works ? QSA_OK : QSA_E_STATE);
            if (works && (to % 4 == 0 || to - to % 4 >= 133 - SAMPLE_ROLLBACK)) {
                assert_int_equal(qsa_sequence_fork(first, to, &fork, NULL), QSA_OK);
                sample_grow(fork, &cells, 140);
                sample_grow(second, &cells, 140);
                same_decode(cache, fork, other, second);
                qsa_sequence_destroy(fork);
            }
            qsa_sequence_destroy(second);
        }
        qsa_cache_destroy(other);
    }
    stream_free(&saved);
    qsa_sequence_destroy(first);
    qsa_cache_destroy(cache);
}

/* A restored sequence is like any other: its forks share its pages. */
static void forks_of_a_restored_one_share(void **state) {
    (void)state;
    qsa_cache_options options = options_of(QSA_I8_G64, QSA_BF16);
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *first = sample_sequence(cache), *fork = NULL;
    QSA_INIT(qsa_cache_stats, stats);
    sample_grow(first, &cells, 190);
    stream saved = stream_saved(first, INT64_MAX);
    qsa_sequence_destroy(first);
    qsa_sequence *second = stream_restored(cache, &saved);
    assert_int_equal(qsa_sequence_fork(second, 190, &fork, NULL), QSA_OK);
    assert_int_equal(qsa_cache_get_stats(cache, &stats, NULL), QSA_OK);
    assert_int_equal(stats.pages_shared, 3);
    assert_int_equal(stats.pages - stats.pages_free, 3);
    sample_grow(fork, &cells, 199);
    same_decode(cache, second, cache, second);
    stream again = stream_saved(second, INT64_MAX);
    stream_same(&saved, &again); /* what the fork appended is its own */
    qsa_sequence_destroy(second);
    qsa_sequence_destroy(fork);
    stream_free(&saved);
    stream_free(&again);
    qsa_cache_destroy(cache);
}

/* ------------------------------------------------------------------------------------------------ refused caches */

static void refused_by(const qsa_cache_options *options, stream *saved, qsa_status status, const char *words) {
    qsa_cache *cache = sample_cache(context, options);
    qsa_sequence *sequence = (qsa_sequence *)(void *)saved;
    qsa_error error;
    assert_int_equal(stream_restore(cache, saved, &sequence, &error), status);
    assert_null(sequence);
    if (!strstr(error.message, words)) {
        fail_msg("\"%s\" says nothing of \"%s\"", error.message, words);
    }
    QSA_INIT(qsa_cache_stats, stats);
    assert_int_equal(qsa_cache_get_stats(cache, &stats, NULL), QSA_OK);
    assert_int_equal(stats.pages_free, stats.pages);
    assert_int_equal(stats.sequences, 0);
    qsa_cache_destroy(cache);
}

static void another_cache_is_refused(void **state) {
    (void)state;
    qsa_cache_options options = options_of(QSA_I8_G64, QSA_BF16);
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *first = sample_sequence(cache);
    sample_grow(first, &cells, 100);
    stream saved = stream_saved(first, INT64_MAX);
    float *norm = malloc(3 * 32 * sizeof *norm);
    assert_non_null(norm);
    memcpy(norm, cells.norm, 2 * 32 * sizeof *norm);
    memcpy(norm + 64, cells.norm, 32 * sizeof *norm);
    norm[63] += 1e-6f;
#define REFUSED(change, words)                           \
    do {                                                 \
        qsa_cache_options o = options;                   \
        change;                                          \
        refused_by(&o, &saved, QSA_E_ARGUMENT, words);   \
    } while (0)
    REFUSED(o.shape.q_heads = 8, "q_heads is 4: the cache's is 8");
    REFUSED(o.shape.kv_heads = 4, "kv_heads is 2");
    REFUSED(o.shape.head_dim = 128, "head_dim is 64");
    REFUSED(o.shape.index_heads = 3, "index_heads is 2");
    REFUSED((o.shape.index_dim = 48, o.index_norm = norm), "index_dim is 32");
    REFUSED(o.shape.block = 2, "block is 4");
    REFUSED(o.shape.budget = 64, "budget is 32");
    REFUSED(o.shape.scale = 0.25f, "scale is 0.125");
    REFUSED(o.shape.index_scale = 1.0f, "index_scale is 0.17");
    REFUSED(o.kv_type = QSA_BF16, "kv_type is i8_g64: the cache's is bf16");
    REFUSED(o.key_type = QSA_F32, "key_type is bf16: the cache's is f32");
    REFUSED(o.layers = 1, "layers is 2: the cache's is 1");
    REFUSED((o.layers = 3, o.index_norm = norm), "layers is 2: the cache's is 3");
    REFUSED(o.index_norm = norm, "layer 1");
    REFUSED(o.eps = 1e-5f, "eps is");
    REFUSED(o.rope.dims = 32, "rope.dims is 16");
    REFUSED(o.rope.theta = 1e6, "rope.theta");
    qsa_cache_options small = options;
    small.capacity = 64;
    refused_by(&small, &saved, QSA_E_CAPACITY, "100 cells: the cache holds 64");
    small.capacity = 128; /* enough for it, but not beside another */
    qsa_cache *full = sample_cache(context, &small);
    qsa_sequence *holder = sample_sequence(full), *second = NULL;
    sample_grow(holder, &cells, 3);
    assert_int_equal(stream_restore(full, &saved, &second, NULL), QSA_E_CAPACITY);
    qsa_sequence_destroy(holder);
    second = stream_restored(full, &saved); /* now it fits */
    same_decode(cache, first, full, second);
    qsa_sequence_destroy(second);
    qsa_cache_destroy(full);
    free(norm);
    stream_free(&saved);
    qsa_sequence_destroy(first);
    qsa_cache_destroy(cache);
}

/* Of a table those rows count that blocks began at. */
static void tables_are_compared(void **state) {
    (void)state;
    float *table = malloc(200 * 16 * sizeof *table);
    assert_non_null(table);
    qsa_cache_options options = options_of(QSA_F32, QSA_BF16);
    for (int64_t i = 0; i < 200; i++) {
        assert_int_equal(qsa_rope_row(&options.rope, 3 * i, table + i * 16, NULL), QSA_OK);
    }
    qsa_cache_options plain = options;
    options.rope.table = table;
    options.rope.positions = 150;
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *first = sample_sequence(cache);
    sample_grow(first, &cells, 101);
    stream saved = stream_saved(first, INT64_MAX);
    refused_by(&plain, &saved, QSA_E_ARGUMENT, "rope.theta (0: a table) is 0");
    options.rope.positions = 200;
    table[101 * 16] += 1.0f; /* never read so far */
    table[99 * 16] += 1.0f;
    qsa_cache *longer = sample_cache(context, &options);
    qsa_sequence *second = stream_restored(longer, &saved);
    same_decode(cache, first, longer, second);
    qsa_sequence_destroy(second);
    qsa_cache_destroy(longer);
    options.rope.positions = 100; /* its last block began at 100 */
    refused_by(&options, &saved, QSA_E_ARGUMENT, "first 26 rows of blocks");
    options.rope.positions = 150;
    table[100 * 16 + 15] += 1e-6f;
    refused_by(&options, &saved, QSA_E_ARGUMENT, "first 26 rows of blocks");
    stream_free(&saved);
    qsa_sequence_destroy(first);
    qsa_cache_destroy(cache);
    free(table);
}

/* ------------------------------------------------------------------------------------------------ files */

/* Fault 44: one byte of a file is flipped; what is there stays, and the good file goes on as if never interrupted. */
static void a_flipped_byte_is_noticed(void **state) {
    (void)state;
    qsa_cache_options options = options_of(QSA_I8_G64, QSA_BF16);
    options.capacity = 4 * (LONG + 200);
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *first = sample_sequence(cache), *second = NULL;
    char path[64];
    snprintf(path, sizeof path, "snapshot-%ld.qsa", (long)getpid());
    sample_grow(first, &cells, LONG);
    qsa_error error;
    sample_ok(qsa_sequence_save_file(first, LONG, path, &error), &error);
    stream before = stream_saved(first, INT64_MAX);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 700001, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, 700001, SEEK_SET), 0);
    fputc(byte ^ 4, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(qsa_sequence_restore_file(cache, path, &second, &error), QSA_E_FORMAT);
    assert_null(second);
    assert_non_null(strstr(error.message, "checksum"));
    QSA_INIT(qsa_snapshot_info, info);
    assert_int_equal(qsa_snapshot_inspect_file(NULL, path, &info, &error), QSA_E_FORMAT);
    stream after = stream_saved(first, INT64_MAX);
    stream_same(&before, &after);
    sample_ok(qsa_sequence_save_file(first, LONG, path, &error), &error);
    sample_ok(qsa_sequence_restore_file(cache, path, &second, &error), &error);
    same_future(cache, first, cache, second);
    file = fopen(path, "ab");
    assert_non_null(file);
    fputc(0, file);
    assert_int_equal(fclose(file), 0);
    qsa_sequence *third = first;
    assert_int_equal(qsa_sequence_restore_file(cache, path, &third, &error), QSA_E_FORMAT);
    assert_null(third);
    assert_non_null(strstr(error.message, "1 bytes behind the snapshot's"));
    assert_int_equal(unlink(path), 0);
    stream_free(&before);
    stream_free(&after);
    qsa_sequence_destroy(first);
    qsa_sequence_destroy(second);
    qsa_cache_destroy(cache);
}

/* The file of format version 1. It was written once, by `test_snapshot --write data/snapshot_v1.qsa`, and stays. */
static qsa_sequence *golden_sequence(qsa_cache *cache) {
    qsa_sequence *s = sample_sequence(cache);
    sample_append(s, &cells, 0, 0, 37);
    sample_append(s, &cells, 1, 0, 35);
    qsa_append_args args = sample_append_args(&cells, 1, 35, 1);
    args.raw_index = NULL;
    assert_int_equal(qsa_append(s, &args, NULL), QSA_OK);
    return s;
}

static void version_1_is_read(void **state) {
    (void)state;
    qsa_cache_options options = options_of(QSA_I8_G64, QSA_BF16);
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *first = golden_sequence(cache), *second = NULL;
    qsa_error error;
    QSA_INIT(qsa_snapshot_info, info);
    sample_ok(qsa_snapshot_inspect_file(NULL, QSA_DATA_DIR "/snapshot_v1.qsa", &info, &error), &error);
    assert_int_equal(info.version, 1);
    assert_int_equal(info.layers, 2);
    assert_int_equal(info.longest, 37);
    assert_int_equal(info.shortest, 36);
    assert_int_equal(info.unkeyed, 1);
    assert_int_equal(info.kv_type, QSA_I8_G64);
    assert_int_equal(info.key_type, QSA_BF16);
    assert_int_equal(info.rope.dims, 16);
    assert_memory_equal(&info.shape, &cells.shape, sizeof info.shape);
    sample_ok(qsa_sequence_restore_file(cache, QSA_DATA_DIR "/snapshot_v1.qsa", &second, &error), &error);
    stream one = stream_saved(first, INT64_MAX), two = stream_saved(second, INT64_MAX);
    assert_int_equal(one.size, info.bytes);
    stream_same(&one, &two);
    assert_int_equal(qsa_truncate(first, 35, NULL), QSA_OK);
    assert_int_equal(qsa_truncate(second, 35, NULL), QSA_OK);
    same_future(cache, first, cache, second);
    stream_free(&one);
    stream_free(&two);
    qsa_sequence_destroy(first);
    qsa_sequence_destroy(second);
    qsa_cache_destroy(cache);
}

/* ------------------------------------------------------------------------------------------------ at the same time */

typedef struct saver {
    const qsa_sequence *sequence;
    stream saved;
} saver;

static void *save_often(void *arg) {
    saver *s = arg;
    for (int i = 0; i < 20; i++) {
        stream_free(&s->saved);
        if (qsa_sequence_save(s->sequence, INT64_MAX, stream_write, &s->saved, NULL)) {
            return NULL;
        }
    }
    return s;
}

/* Two threads save one sequence while it is decoded, and while a fork of it grows on shared pages. */
static void saving_is_reading(void **state) {
    (void)state;
    qsa_cache_options options = options_of(QSA_I8_G64, QSA_BF16);
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *first = sample_sequence(cache), *fork = NULL;
    sample_grow(first, &cells, 101);
    assert_int_equal(qsa_sequence_fork(first, 101, &fork, NULL), QSA_OK);
    stream expected = stream_saved(first, INT64_MAX);
    saver savers[2] = {{first, {0}}, {first, {0}}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, save_often, &savers[i]), 0);
    }
    for (int64_t n = 102; n < 190; n++) {
        sample_grow(fork, &cells, n);
        sample_result r = sample_decode(cache, first, &cells, n % 2, 3, QSA_BLOCKS);
        sample_result_free(&r);
    }
    for (int i = 0; i < 2; i++) {
        void *done = NULL;
        assert_int_equal(pthread_join(threads[i], &done), 0);
        assert_ptr_equal(done, &savers[i]);
        stream_same(&savers[i].saved, &expected);
        stream_free(&savers[i].saved);
    }
    stream_free(&expected);
    qsa_sequence_destroy(fork);
    qsa_sequence_destroy(first);
    qsa_cache_destroy(cache);
}

/* ------------------------------------------------------------------------------------------------ checksums */

/* Of "123456789", and of RFC 3720's 32 bytes; in parts as in one piece. */
static void crc_32c(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
        uint32_t sum;
    } known[] = {
        {"", 0, 0},
        {"123456789", 9, 0xe3069283},
        {"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 32, 0x8a9136aa},
        {"\0\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17\20\21\22\23\24\25\26\27\30\31\32\33\34\35\36\37", 32, 0x46dd794e},
    };
    qsa_crc crc;
    qsa_crc_init(&crc);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        for (int64_t cut = 0; cut <= known[i].bytes; cut++) {
            uint32_t sum = qsa_crc_add(&crc, 0, known[i].text, cut);
            assert_int_equal(qsa_crc_add(&crc, sum, known[i].text + cut, known[i].bytes - cut), known[i].sum);
        }
    }
}

static int write_golden(const char *path) {
    set_up(NULL);
    qsa_cache_options options = options_of(QSA_I8_G64, QSA_BF16);
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *s = golden_sequence(cache);
    qsa_status status = qsa_sequence_save_file(s, INT64_MAX, path, NULL);
    qsa_sequence_destroy(s);
    qsa_cache_destroy(cache);
    tear_down(NULL);
    return status != QSA_OK;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--write")) {
        return write_golden(argv[2]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc_32c),
        cmocka_unit_test(every_format_comes_back),
        cmocka_unit_test(layers_may_differ),
        cmocka_unit_test(rotations_are_kept),
        cmocka_unit_test(any_prefix),
        cmocka_unit_test(rollback_of_the_cache),
        cmocka_unit_test(forks_of_a_restored_one_share),
        cmocka_unit_test(another_cache_is_refused),
        cmocka_unit_test(tables_are_compared),
        cmocka_unit_test(a_flipped_byte_is_noticed),
        cmocka_unit_test(version_1_is_read),
        cmocka_unit_test(saving_is_reading),
    };
    int failed = 0;
    for (level = QSA_CPU_C; level; level = next_cpu(level)) {
        failed += cmocka_run_group_tests_name(qsa_cpu_name(level), tests, set_up, tear_down);
    }
    return failed;
}
