/* SPDX-License-Identifier: MIT */
/* Reading a cache's views by their documented strides, as numbers in float64. */
#ifndef QSA_TEST_VIEWS_H
#define QSA_TEST_VIEWS_H

#include <qsa/qsa.h>

/* What an oracle_read gets as `user`: a view whose strides may be left 0, and the shape that it belongs to. */
typedef struct cell_reader {
    qsa_kv kv;
    qsa_shape shape;
} cell_reader;

/* An oracle_read. */
void read_cell(const void *user, int64_t cell, int64_t kv_head, double *k, double *v);

/* Block key b, [dim]. */
void read_key(const qsa_keys *keys, int64_t dim, int64_t b, double *key);

/* Bytes of an element of a type. */
int64_t element_bytes(qsa_type type);

#endif
