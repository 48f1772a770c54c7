/* SPDX-License-Identifier: MIT */
/* A small shape, random cells and rows of it, and whole steps on them. For tests: failures fail the test. */
#ifndef QSA_TEST_SAMPLE_H
#define QSA_TEST_SAMPLE_H

#include <qsa/qsa.h>

enum { SAMPLE_LAYERS = 2, SAMPLE_PAGE = 64, SAMPLE_ROLLBACK = 16 };

/* One cell and one row of queries for each position, the same for all layers. */
typedef struct sample {
    qsa_shape shape;
    int64_t cells;
    float *k, *v;    /* [cells][kv_heads][head_dim] */
    float *raw;      /* [cells][index_dim] */
    float *q, *gate; /* [cells][q_heads][head_dim] */
    float *iq;       /* [cells][index_heads][index_dim] */
    float *norm;     /* [SAMPLE_LAYERS][index_dim] */
    float **arrays;  /* all of the above, for sample_free() */
} sample;

/* 4 query heads and 2 KV heads of 64, 2 index heads of 32, block 4, budget 32. */
qsa_shape sample_shape(void);
sample sample_make(const qsa_shape *shape, int64_t cells, uint64_t seed);
void sample_free(sample *s);

/* -1..1 times scale, from malloc. */
float *sample_floats(uint64_t *seed, int64_t count, float scale);

qsa_context *sample_context(qsa_cpu cpu, int64_t threads);
void sample_each_level(void (*body)(qsa_context *context)); /* a context of two threads for every level of this machine */
qsa_cache_options sample_options(const sample *s, qsa_type kv_type, qsa_type key_type, int64_t capacity);
qsa_cache *sample_cache(qsa_context *context, const qsa_cache_options *options);
qsa_sequence *sample_sequence(qsa_cache *cache);

/* Cells [first, first + cells) of the sample onto a layer. */
qsa_append_args sample_append_args(const sample *s, int64_t layer, int64_t first, int64_t cells);
void sample_append(qsa_sequence *sequence, const sample *s, int64_t layer, int64_t first, int64_t cells);

/* From the sequence's length on, up to `length` cells, to every layer. */
void sample_grow(qsa_sequence *sequence, const sample *s, int64_t length);

/* Outputs in f32 and ids of rows. */
typedef struct sample_result {
    int64_t rows, id_stride;
    size_t out_bytes, id_bytes;
    float *out;   /* [rows][q_heads][head_dim] */
    int32_t *ids; /* [rows][id_stride] */
} sample_result;

sample_result sample_result_make(const qsa_shape *shape, int64_t rows, int64_t id_stride);
void sample_result_free(sample_result *r);
void sample_same_bits(const sample_result *a, const sample_result *b);

/* The sequence's last `rows` rows; row t has the queries of the sample's row at its own position. */
qsa_item sample_item(const qsa_sequence *sequence, const sample *s, int64_t layer, sample_result *r);
qsa_status sample_try_decode(qsa_cache *cache, const qsa_sequence *sequence, const sample *s, int64_t layer,
                             qsa_contract contract, sample_result *r, qsa_error *error);
sample_result sample_decode(qsa_cache *cache, const qsa_sequence *sequence, const sample *s, int64_t layer,
                            int64_t rows, qsa_contract contract);

/* Rows of queries from the sample's row `query` on, whatever the sequence's length. */
sample_result sample_decode_at(qsa_cache *cache, const qsa_sequence *sequence, const sample *s, int64_t layer, int64_t rows,
                               qsa_contract contract, int64_t query);

/* Grows every layer to `length`; cell c is the sample's row (from + c) modulo its rows. */
void sample_grow_round(qsa_sequence *sequence, const sample *s, int64_t from, int64_t length);

/* K, V and scales of every cell, and every block key, as the views give them, are equal. For head_dim 64, index_dim 32, two KV heads. */
void sample_same_cells(const qsa_sequence *a, const qsa_sequence *b, int64_t layer);

/* 64-byte aligned, for free(). */
void *sample_workspace(const qsa_cache *cache, qsa_contract contract, int64_t rows, int64_t cells, size_t *bytes);

/* Fails the test with the error's message unless the status is QSA_OK. */
void sample_ok(qsa_status status, const qsa_error *error);

#endif
