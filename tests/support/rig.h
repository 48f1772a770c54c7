/* SPDX-License-Identifier: MIT */
/*
 * A context, a cache and one sequence of random cells, decoded and checked in one call each. Failures fail the test.
 * The cells of a source repeat with two periods, 1,021 for K/V and 4,099 for raw index keys, so that a million are
 * quick.
 */
#ifndef QSA_TEST_RIG_H
#define QSA_TEST_RIG_H

#include <qsa/qsa.h>

#include "support/levels.h"
#include "support/rng.h"

/* MUST(qsa_append, sequence, &args): the call, its qsa_error last, has to succeed. */
#define MUST(function, ...)                                                                                            \
    do {                                                                                                               \
        qsa_error must_error;                                                                                          \
        if (function(__VA_ARGS__, &must_error) != QSA_OK) {                                                            \
            fail_msg("%s: %s", #function, must_error.message);                                                         \
        }                                                                                                              \
    } while (0)

/* Largest |difference| from float64 over the largest |output|. docs/numerics.md derives both. */
#define QSA_F32_BOUND 2e-5
#define QSA_I8_BOUND  1e-3
double att_bound(qsa_type kv_type);

/* Of a score, over index_scale * sum |iq * key|. */
double score_bound(const qsa_shape *shape);

/* q_heads / kv_heads / head_dim, index heads / dim, block, budget in cells; scales as in docs/spec.md. */
qsa_shape shape_of(int64_t q_heads, int64_t kv_heads, int64_t head_dim, int64_t index_heads, int64_t index_dim,
                   int64_t block, int64_t budget);
qsa_shape small_shape(void); /* 2 / 1 / 64, 1 / 16, 4, 2048 */
qsa_shape model_shape(void); /* the model's */

typedef struct rig_options {
    qsa_shape shape;
    qsa_type kv_type, key_type; /* 0: I8_G64, BF16 */
    qsa_cpu cpu;
    int64_t threads, capacity, page_cells, layers; /* 0: 1 thread, 4096 cells, the cache's default, 1 layer */
    uint64_t seed;                                 /* of the source */
} rig_options;

typedef struct rig {
    qsa_shape shape;
    qsa_type kv_type;
    qsa_context *context;
    qsa_cache *cache;
    qsa_sequence *sequence;
    float *norm;        /* [layers][index_dim] */
    float *k, *v, *raw; /* the source: [1021][kv_heads][head_dim], [4099][index_dim] */
} rig;

rig open_rig(const rig_options *options);
void close_rig(rig *r);

/* Cells first..first + cells - 1 of the source; any output may be NULL. */
void source_cells(const rig *r, int64_t first, int64_t cells, float *k, float *v, float *raw);

/* Appends the source's next cells to layer 0, in one call (append_cells) or up to a length (grow). */
void append_cells(const rig *r, qsa_sequence *sequence, int64_t cells);
void grow(const rig *r, qsa_sequence *sequence, int64_t length);

typedef struct queries {
    int64_t rows;
    float *q, *gate, *iq; /* [rows][...]; gate may be NULL */
} queries;

queries new_queries(rng *r, const qsa_shape *shape, int64_t rows);
void free_queries(queries *q);

typedef struct decoded {
    int64_t rows, width, out_width; /* width: ids of the widest row; out_width: q_heads * head_dim */
    int32_t *ids;                   /* [rows][width], -1 behind the last */
    float *out;                     /* [rows][out_width] */
} decoded;

/* The last q->rows rows of a sequence. fold, chunk: 0 for the defaults. */
decoded decode_rows(const rig *r, qsa_sequence *sequence, const queries *q, qsa_contract contract, int64_t chunk,
                    int64_t fold);
decoded decode(const rig *r, const queries *q, qsa_contract contract);

/* One call with an item of one row for each sequence: row i of q belongs to sequences[i]. */
decoded decode_batch(const rig *r, qsa_sequence *const *sequences, const queries *q, qsa_contract contract);

/* Rows `first`.. of a batch as queries of their own; nothing to free. */
queries queries_at(const rig *r, const queries *q, int64_t first, int64_t rows);
void free_decoded(decoded *d);
void assert_same_decoded(const decoded *a, const decoded *b);

/* The scores of each row from the library, on the cache's keys: [rows][*stride], to be freed. Checked against float64.
 */
float *row_scores(const rig *r, const qsa_sequence *sequence, const queries *q, int64_t *stride);

/* SEL and ATT for every row: the scores against float64, ids against a full sort, outputs against float64. */
void check_decoded(const rig *r, const qsa_sequence *sequence, const queries *q, qsa_contract contract,
                   const decoded *d);

/* max |out - want| / max |want| of one row on given ids. */
double att_error(const rig *r, const qsa_sequence *sequence, const queries *q, int64_t row, const int32_t *ids,
                 int64_t n_ids, const float *out);

/* K/V of a layer equal the source's cells as encoded by the oracle; block keys are near the oracle's. */
void check_cells(const rig *r, const qsa_sequence *sequence, int64_t first, int64_t cells);
void check_keys(const rig *r, const qsa_sequence *sequence, int64_t first, int64_t blocks);

/* A decode's median nanoseconds in each stage, over `repeats` calls. */
void stage_medians(const rig *r, const queries *q, qsa_contract contract, const int32_t *ids, int64_t n_ids,
                   int repeats, int64_t medians[4]);

#endif
