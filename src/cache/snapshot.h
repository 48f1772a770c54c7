/* SPDX-License-Identifier: MIT */
/*
 * Snapshots: a sequence as bytes. docs/snapshot.md has the format, byte by byte.
 *
 * One piece of code moves each part of it in both directions, so that what is written is what will be read: snapshot_header.c
 * the header, snapshot_section.c the layers' sections. snapshot.c has the calls.
 */
#ifndef QSA_CACHE_SNAPSHOT_H
#define QSA_CACHE_SNAPSHOT_H

#include "cache/cache.h"
#include "runtime/checksum.h"
#include "score/score.h"

enum {
    QSA_SNAPSHOT_VERSION = 1,
    QSA_SNAPSHOT_FIXED = 136, /* bytes of a header before its layers, */
    QSA_SNAPSHOT_LAYER = 32,  /* of each of those, */
    QSA_SNAPSHOT_SUM = 4,     /* and of a checksum */
    QSA_SNAPSHOT_START = 16,  /* that tell what it is and how long its header is */
    QSA_SNAPSHOT_HEADER_MAX = QSA_SNAPSHOT_FIXED + QSA_LAYERS_MAX * QSA_SNAPSHOT_LAYER + QSA_SNAPSHOT_SUM
};

/* A layer's part of the header. */
typedef struct qsa_snapshot_layer {
    int64_t length, keyed, raw_low; /* as in qsa_sequence_layer */
    uint32_t norm;                  /* checksum of the index key norm's weights */
} qsa_snapshot_layer;

/* Everything that the bytes of the cells depend on. */
typedef struct qsa_snapshot_header {
    qsa_shape shape;
    qsa_type kv_type, key_type;
    float eps;
    int64_t rope_dims, rope_rows; /* rows: of the table, those of the blocks' first cells; 0 without a table */
    double rope_theta;            /* 0 with a table */
    uint32_t rope_sum;            /* checksum of these rows */
    int64_t bytes;                /* of the whole snapshot */
    int64_t layers;
    qsa_snapshot_layer layer[QSA_LAYERS_MAX];
} qsa_snapshot_header;

/* A snapshot on its way in or out: one of read and write is set. */
typedef struct qsa_snapshot {
    qsa_read read;
    qsa_write write;
    void *user;
    int64_t at;   /* bytes moved so far */
    uint32_t sum; /* of the bytes since it was last set */
    uint32_t header_sum;
    qsa_crc crc;
    qsa_snapshot_header header;
    unsigned char bytes[QSA_SNAPSHOT_HEADER_MAX]; /* the header as it is written */
    float rows[QSA_TILE * QSA_INDEX_DIM_MAX];     /* what goes through here goes here */
} qsa_snapshot;

/* The next bytes, from memory or to it. */
qsa_status qsa_snapshot_move(qsa_snapshot *snapshot, void *memory, int64_t bytes, qsa_error *error);

/* ------------------------------------------------------------------------------------------------ the header */

/* Bytes of layer i's section, its checksum included. */
int64_t qsa_snapshot_section_bytes(const qsa_snapshot_header *h, int64_t i);

/* Of the first `length` cells of a sequence. */
void qsa_snapshot_describe(qsa_snapshot *snapshot, const qsa_sequence *sequence, int64_t length);

qsa_status qsa_snapshot_write_header(qsa_snapshot *snapshot, qsa_error *error);

/* Reads it, checks its sum and every field. */
qsa_status qsa_snapshot_read_header(qsa_snapshot *snapshot, qsa_error *error);

/* Whether the cache can hold it as it is. */
qsa_status qsa_snapshot_fits(const qsa_snapshot *snapshot, const qsa_cache *cache, qsa_error *error);

/* ------------------------------------------------------------------------------------------------ the sections */

/* A layer's section, from the sequence or to it. To it: it has the pages, and what the header says of the layer. */
qsa_status qsa_snapshot_move_section(qsa_snapshot *snapshot, const qsa_sequence *sequence, int64_t layer, qsa_error *error);

/* Reads a layer's section for its checksum alone. */
qsa_status qsa_snapshot_skip_section(qsa_snapshot *snapshot, int64_t layer, qsa_error *error);

#endif
