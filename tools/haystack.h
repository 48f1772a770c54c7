/* SPDX-License-Identifier: MIT */
/*
 * A long sequence of random cells at the model's real shape, with needles: blocks whose index key is what a query asks
 * for, whose K lies along half of the query heads, and whose V is known. Cell c is the same in every haystack of one
 * seed.
 */
#ifndef QSA_TOOLS_HAYSTACK_H
#define QSA_TOOLS_HAYSTACK_H

#include <qsa/qsa.h>

typedef struct needle {
    int64_t n;        /* cells of the row that looks for it */
    int64_t cell;     /* the first of its block */
    float *q, *gate;  /* [q_heads][head_dim]; even heads look for it, odd ones are random */
    float *iq;        /* [index_heads][index_dim] */
    float *k, *v;     /* [kv_heads][head_dim] of all cells of its block */
    float *raw_index; /* [index_dim], the same */
} needle;

enum { NEEDLES = 2 };

typedef struct haystack {
    const char *command; /* for messages */
    qsa_context *context;
    qsa_shape shape;
    qsa_cache *cache;
    qsa_sequence *sequence;
    int64_t length;
    needle needles[NEEDLES];  /* n ascending */
    float *index_norm;        /* [index_dim] */
    float *k, *v, *raw_index; /* of a batch */
} haystack;

/* An empty one. EXIT_OK, or EXIT_USAGE with a message on stderr; destroy it in both cases. The context must outlive it.
 */
int haystack_create(const char *command, qsa_context *context, qsa_type kv_type, haystack *h);
void haystack_destroy(haystack *h);

/* Appends up to `cells` cells, needles included, up to the length n. */
int haystack_grow(haystack *h, int64_t n, int64_t cells);

#endif
