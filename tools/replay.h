/* SPDX-License-Identifier: MIT */
/* One attention layer run over a recording's hidden states: a cache that grows by tokens, and rows decoded in it. */
#ifndef QSA_TOOLS_REPLAY_H
#define QSA_TOOLS_REPLAY_H

#include "recording.h"

typedef struct replay_settings {
    qsa_type kv, keys;
    qsa_cpu cpu;
    qsa_contract contract;
    int64_t threads, chunk, block, budget; /* 0: the library's defaults */
    const char *prefix;                    /* NULL: found */
    int screen;                            /* as in qsa_cache_options */
} replay_settings;

enum { REPLAY_STAGES = 4 };

typedef struct replay {
    const recording *recording;
    replay_settings settings;
    qsa_context *context;
    qsa_layer *layer;
    const qsa_shape *shape;
    qsa_cache *cache;
    qsa_sequence *sequence;
    int64_t length;           /* cells so far */
    int64_t id_stride;        /* entries of ids: enough for any row */
    float *k, *v, *raw_index; /* of a batch of tokens */
    float *q, *gate, *iq;     /* of one row */
    void *workspace;
    size_t workspace_bytes;

    /* Results of the last row decoded. */
    int32_t *ids; /* [id_stride] then -1 */
    int64_t id_count;
    float *gated; /* [q_heads][head_dim] */
    float *out;   /* [hidden_size] */
    int64_t stage_ns[REPLAY_STAGES];
} replay;

/* EXIT_OK, or EXIT_USAGE with a message on stderr; close it in both cases. The recording must outlive it. */
int replay_open(const recording *r, const replay_settings *settings, replay *p);
void replay_close(replay *p);

/* Appends tokens until the sequence has `length` cells; then decodes the last one: on its own selection, or on `ids`.
 */
int replay_advance(replay *p, int64_t length);
int replay_decode(replay *p, const int32_t *ids, int64_t id_count);

/* Bytes of index keys and K/V that a row of n cells reads; with screening at least. */
int64_t replay_bytes_read(const replay *p, int64_t n);

#endif
