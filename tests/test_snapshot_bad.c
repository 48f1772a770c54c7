/* SPDX-License-Identifier: MIT */
/*
 * Snapshots that are truncated at every byte, that have any one bit flipped, whose headers lie although their checksum is
 * right, and callbacks that give up at any call: a clean status, nothing lost, nothing leaked.
 */
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
#include "support/sample.h"
#include "support/stream.h"

enum { CELLS = 200, SMALL = 9 };

static counter count;
static qsa_context *context;
static sample cells;
static qsa_cache *cache;
static stream good;     /* SMALL cells */
static stream resident; /* of a sequence that lives through every failure */
static qsa_sequence *lives;

static int set_up(void **state) {
    (void)state;
    qsa_shape shape = sample_shape();
    QSA_INIT(qsa_options, options);
    options.threads = 1;
    options.allocator = counted(&count);
    assert_int_equal(qsa_open(&options, &context, NULL), QSA_OK);
    cells = sample_make(&shape, CELLS, 23);
    qsa_cache_options cache_options = sample_options(&cells, QSA_I8_G64, QSA_BF16, CELLS);
    cache = sample_cache(context, &cache_options);
    qsa_sequence *small = sample_sequence(cache);
    sample_grow(small, &cells, SMALL);
    good = stream_saved(small, INT64_MAX);
    qsa_sequence_destroy(small);
    lives = sample_sequence(cache);
    sample_grow(lives, &cells, 70);
    resident = stream_saved(lives, INT64_MAX);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    stream now = stream_saved(lives, INT64_MAX);
    stream_same(&now, &resident);
    stream_free(&now);
    stream_free(&good);
    stream_free(&resident);
    qsa_sequence_destroy(lives);
    qsa_cache_destroy(cache);
    sample_free(&cells);
    qsa_close(context);
    assert_int_equal(count.bytes, 0);
    return 0;
}

static stream copy_of(const stream *s) {
    stream copy = {.data = malloc((size_t)s->size), .size = s->size};
    assert_non_null(copy.data);
    memcpy(copy.data, s->data, (size_t)s->size);
    return copy;
}

/* The cache has the sequence that lives, and nothing else. */
static void nothing_is_left(int64_t held) {
    QSA_INIT(qsa_cache_stats, stats);
    assert_int_equal(qsa_cache_get_stats(cache, &stats, NULL), QSA_OK);
    assert_int_equal(stats.sequences, 1);
    assert_int_equal(stats.pages - stats.pages_free, 2);
    assert_int_equal(count.bytes, held);
}

/* Restoring and inspecting both refuse, with a message. */
static void refused(stream *s, qsa_status status, const char *words) {
    qsa_error error = {QSA_OK, ""};
    qsa_sequence *sequence = lives;
    int64_t held = count.bytes;
    qsa_status found = stream_restore(cache, s, &sequence, &error);
    if (found != status || error.status != status || !strstr(error.message, words)) {
        fail_msg("%s instead of %s: \"%s\" for \"%s\"", qsa_status_name(found), qsa_status_name(status), error.message, words);
    }
    assert_null(sequence);
    nothing_is_left(held);
    QSA_INIT(qsa_snapshot_info, info);
    qsa_snapshot_info before = info;
    s->at = s->calls = 0;
    assert_int_equal(qsa_snapshot_inspect(NULL, stream_read, s, &info, &error), status);
    assert_memory_equal(&info, &before, sizeof info);
}

static void every_truncation(void **state) {
    (void)state;
    stream cut = copy_of(&good);
    for (cut.size = 0; cut.size < good.size; cut.size++) {
        char words[64];
        snprintf(words, sizeof words, "truncated at byte %lld", (long long)cut.size);
        refused(&cut, QSA_E_FORMAT, words);
    }
    stream_free(&cut);
}

static void every_flipped_bit(void **state) {
    (void)state;
    stream bad = copy_of(&good);
    for (int64_t bit = 0; bit < good.size * 8; bit++) {
        bad.data[bit / 8] = (char)(bad.data[bit / 8] ^ 1 << bit % 8);
        refused(&bad, QSA_E_FORMAT, "");
        bad.data[bit / 8] = good.data[bit / 8];
    }
    qsa_sequence *sequence = stream_restored(cache, &bad);
    qsa_sequence_destroy(sequence);
    stream_free(&bad);
}

/* A field of the header, whatever is written there; the checksum is right. */
static void lie(int64_t offset, const void *value, size_t bytes, const char *words) {
    stream bad = copy_of(&good);
    memcpy(bad.data + offset, value, bytes);
    stream_sign_header(&bad);
    refused(&bad, QSA_E_FORMAT, words);
    stream_free(&bad);
}

static void lie_i64(int64_t offset, int64_t value, const char *words) {
    lie(offset, &value, sizeof value, words);
}

static void lie_i32(int64_t offset, int32_t value, const char *words) {
    lie(offset, &value, sizeof value, words);
}

static void lie_f32(int64_t offset, float value, const char *words) {
    lie(offset, &value, sizeof value, words);
}

static void lying_headers(void **state) {
    (void)state;
    lie(0, "qsa-snaP", 8, "no snapshot");
    lie_i64(16, good.size - 1, "byte 16");
    lie_i64(16, INT64_MIN, "byte 16");
    lie_i64(24, 3, "3 layers");
    lie_i64(24, 1, "1 layers");
    lie_i64(24, 0, "0 layers");
    lie_i64(24, INT64_MAX, "layers");
    for (int64_t field = 0; field < 7; field++) { /* q_heads .. budget */
        lie_i64(32 + 8 * field, 0, "shape");
        lie_i64(32 + 8 * field, -1, "shape");
        lie_i64(32 + 8 * field, INT64_MAX, "shape");
    }
    for (int64_t field = 0; field < 2; field++) { /* scale, index_scale */
        lie_f32(88 + 4 * field, 0.0f, "shape");
        lie_i32(88 + 4 * field, 0x7fc00000, "shape"); /* NaN */
        lie_i32(96 + 4 * field, 0, "formats");        /* the types */
        lie_i32(96 + 4 * field, 6, "formats");
        lie_i32(96 + 4 * field, -1, "formats");
    }
    lie_i32(96, QSA_Q8_0, "formats");
    lie_i32(100, QSA_F16, "formats");
    lie_f32(104, -1.0f, "eps");
    lie_i32(104, 0x7f800000, "eps");
    lie_i64(112, 0, "rope");
    lie_i64(112, 15, "rope");
    lie_i64(112, 34, "rope");
    lie_i64(120, -1, "rope"); /* a NaN for theta */
    lie_i64(128, -1, "rope");
    lie_i64(128, INT64_MAX, "rope");
    for (int64_t layer = 0; layer < 2; layer++) {
        int64_t at = 136 + 32 * layer;
        lie_i64(at, -1, "impossible");
        lie_i64(at, INT64_MAX, "impossible");
        lie_i64(at, SMALL - 1, "impossible"); /* below keyed */
        lie_i64(at, SMALL + 1, "byte 16");
        lie_i64(at + 8, -1, "impossible");
        lie_i64(at + 8, INT64_MAX, "impossible");
        lie_i64(at + 8, SMALL - 1, "byte 16");
        lie_i64(at + 16, -1, "impossible");
        lie_i64(at + 16, SMALL, "impossible"); /* the raw key of the unfinished block is missing */
        lie_i64(at + 16, 1, "byte 16");
        lie_i32(at + 28, 1, "bits set");
    }
}

/* What says how long the header is comes before its checksum. */
static void lying_starts(void **state) {
    (void)state;
    static const struct {
        int64_t offset;
        uint32_t value;
        const char *words;
    } lies[] = {
        {8, 0, "version is 0"},       {8, 2, "version is 2"},   {8, UINT32_MAX, "version is"}, {12, 0, "a header of 0 bytes"},
        {12, 140, "a header of 140"}, {12, 171, "header"},      {12, 173, "header"},           {12, UINT32_MAX, "header"},
        {12, 172, "checksum"},        {12, 236, "checksum"},    {12, 140 + 32 * 1024, ""},     {12, 140 + 32 * 1025, "header"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        stream bad = copy_of(&good);
        memcpy(bad.data + lies[i].offset, &lies[i].value, 4);
        refused(&bad, QSA_E_FORMAT, lies[i].words);
        stream_free(&bad);
    }
}

/* Sections cannot change places, nor come from another snapshot of the same sizes. */
static void exchanged_sections(void **state) {
    (void)state;
    stream bad = copy_of(&good);
    int64_t header = 140 + 2 * 32, section = (good.size - header) / 2;
    memcpy(bad.data + header, good.data + header + section, (size_t)section);
    memcpy(bad.data + header + section, good.data + header, (size_t)section);
    refused(&bad, QSA_E_FORMAT, "checksum of layer 0");
    stream_free(&bad);
}

static void little_at_a_time(void **state) {
    (void)state;
    stream slow = copy_of(&good);
    for (slow.part = 1; slow.part < 300; slow.part = slow.part * 2 + 1) {
        qsa_sequence *sequence = stream_restored(cache, &slow);
        stream again = stream_saved(sequence, INT64_MAX);
        stream_same(&again, &good);
        stream_free(&again);
        qsa_sequence_destroy(sequence);
    }
    stream_free(&slow);
}

/* A read that says more than it was asked for. */
static int64_t boasting_read(void *user, void *data, int64_t bytes) {
    return stream_read(user, data, bytes) + 1;
}

static void callbacks_that_give_up(void **state) {
    (void)state;
    stream s = copy_of(&good);
    qsa_sequence *sequence = NULL;
    qsa_error error;
    int64_t call = 1, held = count.bytes;
    for (;; call++) {
        s.fail_at = call;
        if (stream_restore(cache, &s, &sequence, &error) == QSA_OK) {
            break;
        }
        assert_int_equal(error.status, QSA_E_IO);
        assert_non_null(strstr(error.message, "read gave up at byte"));
        assert_null(sequence);
        nothing_is_left(held);
    }
    assert_true(call > 2 * 5); /* pieces of the sections, among them */
    s.fail_at = s.at = 0;
    qsa_sequence *second = NULL;
    assert_int_equal(qsa_sequence_restore(cache, boasting_read, &s, &second, &error), QSA_E_IO);
    assert_null(second);
    for (call = 1;; call++) {
        stream to = {.fail_at = call};
        qsa_status status = qsa_sequence_save(sequence, INT64_MAX, stream_write, &to, &error);
        assert_int_equal(to.calls, status ? call : call - 1); /* none after it gave up */
        if (!status) {
            stream_same(&to, &good);
            stream_free(&to);
            break;
        }
        assert_int_equal(status, QSA_E_IO);
        assert_non_null(strstr(error.message, "write gave up at byte"));
        assert_memory_equal(to.data ? to.data : good.data, good.data, (size_t)to.size);
        stream_free(&to);
    }
    qsa_sequence_destroy(sequence);
    nothing_is_left(held);
    stream_free(&s);
}

/* An allocator that refuses the n-th request, for every n. */
static void refused_memory(void **state) {
    (void)state;
    stream s = copy_of(&good);
    qsa_sequence *sequence = NULL;
    int64_t held = count.bytes, n = 1;
    for (;; n++) {
        count.fail_at = count.calls + n;
        qsa_status status = stream_restore(cache, &s, &sequence, NULL);
        if (!status) {
            break;
        }
        assert_int_equal(status, QSA_E_MEMORY);
        assert_null(sequence);
        nothing_is_left(held);
    }
    assert_int_equal(n, 3); /* the snapshot's, the sequence's */
    count.fail_at = count.calls + 1;
    stream to = {0};
    assert_int_equal(qsa_sequence_save(sequence, INT64_MAX, stream_write, &to, NULL), QSA_E_MEMORY);
    assert_int_equal(to.calls, 0);
    count.fail_at = 0;
    qsa_sequence_destroy(sequence);
    nothing_is_left(held);
    stream_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_truncation),      cmocka_unit_test(every_flipped_bit), cmocka_unit_test(lying_headers),
        cmocka_unit_test(lying_starts),          cmocka_unit_test(exchanged_sections), cmocka_unit_test(little_at_a_time),
        cmocka_unit_test(callbacks_that_give_up), cmocka_unit_test(refused_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
