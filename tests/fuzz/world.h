/* SPDX-License-Identifier: MIT */
/*
 * Two caches, the sequences in them, and beside them a slow model of both: for each cell the seed that its inputs are made from,
 * for each page who holds it. Every call on the world is made on the library and on the model. The status must be the one that the
 * model expects, and afterwards lengths, pages and counts must be the model's. Answers are compared, bit for bit, with the stages of
 * the portable C run on packed arrays that are made anew from the seeds: no cell, page or kept key of the caches goes into them.
 * What differs ends the program with a message, by abort().
 */
#ifndef QSA_FUZZ_WORLD_H
#define QSA_FUZZ_WORLD_H

#include <qsa/qsa.h>

enum { WORLD_LAYERS = 2, WORLD_CACHES = 2, WORLD_SLOTS = 64, WORLD_ITEMS = 64, WORLD_ROWS = 16 };

/* A layer of a sequence, as in the library's own bookkeeping. */
typedef struct world_layer {
    int64_t length, keyed, raw_low;
    uint32_t *seeds;    /* [longest] of each cell */
    int32_t *positions; /* [longest] of each cell's index key; -1: its rank */
} world_layer;

typedef struct world_sequence {
    qsa_sequence *real; /* NULL: the slot is empty */
    int cache;
    world_layer layer[WORLD_LAYERS];
    int32_t *pages;
    int64_t page_count;
} world_sequence;

typedef struct world_cache {
    qsa_cache *real;
    qsa_cache_options options;
    int64_t pages, page_cells, rollback;
    int32_t *holders; /* [pages] */
    int64_t free_count, shared_count, pages_copied, sequences, block_keys_built;
} world_cache;

typedef struct world_options {
    qsa_shape shape;
    qsa_type kv_type, key_type;
    qsa_context *context[WORLD_CACHES]; /* of each cache */
    qsa_context *plain;                 /* of the model: portable C, one thread */
    int64_t capacity;                   /* cells of each cache */
    int64_t page_cells[WORLD_CACHES], rollback[WORLD_CACHES];
    int screen[WORLD_CACHES];
    int64_t check_every; /* answers of which one is compared; 1: all */
} world_options;

typedef struct world_counts {
    int64_t calls, refused, answers, checked, forks, truncates, snapshots;
} world_counts;

typedef struct world {
    world_options options;
    int64_t longest; /* cells that a sequence can have */
    float *norm;     /* [WORLD_LAYERS][index_dim] */
    world_cache cache[WORLD_CACHES];
    world_sequence slot[WORLD_SLOTS];
    world_counts counts;
} world;

world *world_open(const world_options *options);
void world_close(world *w); /* destroys every sequence, and finds all pages free again */

/* ------------------------------------------------------------------------------------------------ calls */

void world_create(world *w, int slot, int cache);
void world_destroy(world *w, int slot);

/* `cells` cells whose seeds follow from `seed`; unkeyed: without index keys; position: of the first cell, the others share it in
 * threes; -1: their ranks. */
void world_append(world *w, int slot, int64_t layer, int64_t cells, uint32_t seed, int unkeyed, int32_t position);
void world_truncate(world *w, int slot, int64_t length);

/* Slot `to` becomes a fork of `from`; what was in it is destroyed. */
void world_fork(world *w, int from, int to, int64_t length);

/* Slot `to` becomes a sequence of `cache` restored from a snapshot of the first `length` cells of `from`. damage >= 0: the bit of
 * that number, modulo their count, is flipped first, and nothing may come of it. */
void world_move(world *w, int from, int to, int cache, int64_t length, int64_t damage);

typedef struct world_pick {
    int slot;
    int64_t rows;
} world_pick;

typedef struct world_decode_options {
    int64_t layer;
    qsa_contract contract;
    int64_t chunk, fold; /* set */
    int reuse;           /* decodes the ids that came out again, as lists */
    int64_t waves;       /* rows that the workspace is planned for; 0: all */
} world_decode_options;

/* The last rows of these sequences, all of one cache, in one call. */
void world_decode(world *w, const world_pick *picks, int64_t count, const world_decode_options *options);

/* ------------------------------------------------------------------------------------------------ the model */

/* What seeds stand for. */
typedef enum world_kind { WORLD_K, WORLD_V, WORLD_RAW, WORLD_Q, WORLD_GATE, WORLD_IQ, WORLD_NORM } world_kind;
void world_values(uint32_t seed, int64_t layer, world_kind kind, int64_t count, float *out);

/* {cos, sin} rows for the library's append: what the model's block keys are made from, too. */
void world_rotation(const world *w, int64_t position, float *out);

/* What the row that sees n cells of a layer must get: out [q_heads][head_dim]; ids: room for qsa_width(). Returns how many. The
 * packed arrays of the last sequence asked for are kept in `memory` until it is given back. */
typedef struct world_memory world_memory;
world_memory *world_remember(const world *w, const world_sequence *s, int64_t layer);
void world_forget(world_memory *memory);
int64_t world_answer(const world *w, const world_memory *memory, const world_decode_options *options, int64_t n, float *out,
                     int32_t *ids);

/* Prints a line and aborts. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2), noreturn))
#endif
void world_fail(const char *format, ...);
void *world_take(int64_t count, size_t bytes);

#endif
