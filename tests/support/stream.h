/* SPDX-License-Identifier: MIT */
/* Snapshots in memory: a stream that callbacks write to and read from, and that gives up, or gives little, when told to. */
#ifndef QSA_TEST_STREAM_H
#define QSA_TEST_STREAM_H

#include <qsa/qsa.h>

typedef struct stream {
    char *data; /* from malloc */
    int64_t size, at; /* bytes there; where reading goes on */
    int64_t part;     /* most bytes that one read gives; 0: all that is asked for */
    int64_t calls, fail_at; /* so far; the call that gives up, 0: none */
} stream;

int stream_write(void *user, const void *data, int64_t bytes);
int64_t stream_read(void *user, void *data, int64_t bytes);
void stream_free(stream *s);

/* Of the first `length` cells; failures fail the test. */
stream stream_saved(const qsa_sequence *sequence, int64_t length);

/* From its first byte. */
qsa_status stream_restore(qsa_cache *cache, stream *s, qsa_sequence **sequence, qsa_error *error);
qsa_sequence *stream_restored(qsa_cache *cache, stream *s);

/* Makes the checksum of the header right again. */
void stream_sign_header(stream *s);

void stream_same(const stream *a, const stream *b);

#endif
