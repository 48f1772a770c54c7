/* SPDX-License-Identifier: MIT */
/* Snapshots in memory. */
#include "support/stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/checksum.h"
#include "support/sample.h"

int stream_write(void *user, const void *data, int64_t bytes) {
    stream *s = user;
    if (++s->calls == s->fail_at) {
        return 1;
    }
    char *grown = realloc(s->data, (size_t)(s->size + bytes));
    if (!grown) {
        return 1;
    }
    memcpy(grown + s->size, data, (size_t)bytes);
    s->data = grown;
    s->size += bytes;
    return 0;
}

int64_t stream_read(void *user, void *data, int64_t bytes) {
    stream *s = user;
    if (++s->calls == s->fail_at) {
        return -1;
    }
    int64_t part = s->part && s->part < bytes ? s->part : bytes, left = s->size - s->at;
    part = part < left ? part : left;
    if (part) {
        memcpy(data, s->data + s->at, (size_t)part);
    }
    s->at += part;
    return part;
}

void stream_free(stream *s) {
    free(s->data);
    *s = (stream){0};
}

stream stream_saved(const qsa_sequence *sequence, int64_t length) {
    stream s = {0};
    qsa_error error;
    sample_ok(qsa_sequence_save(sequence, length, stream_write, &s, &error), &error);
    return s;
}

qsa_status stream_restore(qsa_cache *cache, stream *s, qsa_sequence **sequence, qsa_error *error) {
    s->at = s->calls = 0;
    return qsa_sequence_restore(cache, stream_read, s, sequence, error);
}

qsa_sequence *stream_restored(qsa_cache *cache, stream *s) {
    qsa_sequence *sequence = NULL;
    qsa_error error;
    sample_ok(stream_restore(cache, s, &sequence, &error), &error);
    return sequence;
}

void stream_sign_header(stream *s) {
    uint32_t bytes, sum;
    qsa_crc crc;
    memcpy(&bytes, s->data + 12, sizeof bytes);
    qsa_crc_init(&crc);
    sum = qsa_crc_add(&crc, 0, s->data, (int64_t)bytes - 4);
    memcpy(s->data + bytes - sizeof sum, &sum, sizeof sum);
}

void stream_same(const stream *a, const stream *b) {
    assert_int_equal(a->size, b->size);
    assert_memory_equal(a->data, b->data, (size_t)a->size);
}
