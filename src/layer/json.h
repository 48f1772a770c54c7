/* SPDX-License-Identifier: MIT */
/*
 * A strict pull reader of JSON for untrusted text: what safetensors headers and checkpoint indexes need, no more. The
 * caller walks the document; the first thing that is wrong sticks, and from then on every call says no. Strings are
 * decoded inside the text, which must be writable and outlive them.
 *
 *     if (qsa_json_enter(j, '{'))
 *         while (qsa_json_member(j, &key)) { ... one value read or skipped ... }
 *     if (!qsa_json_end(j)) { j->reason at j->at }
 */
#ifndef QSA_LAYER_JSON_H
#define QSA_LAYER_JSON_H

#include <stdint.h>

enum { QSA_JSON_DEPTH = 64 }; /* containers that qsa_json_skip() follows inside each other */

typedef struct qsa_json {
    char *text;
    int64_t size;       /* bytes */
    int64_t at;         /* next byte; where it went wrong once reason is set */
    const char *reason; /* NULL while all is well */
    int fresh;          /* the container just entered has had no value yet */
} qsa_json;

qsa_json qsa_json_begin(char *text, int64_t size);

/* Notes the first failure, at byte `at`. Returns 0. */
int qsa_json_refuse(qsa_json *j, int64_t at, const char *reason);

/* Expects '{' or '['. */
int qsa_json_enter(qsa_json *j, char open);

/* Goes to the next member and reads its name; 0 at the '}', which is consumed, or on failure. */
int qsa_json_member(qsa_json *j, const char **name);

/* Goes to the next element; 0 at the ']', which is consumed, or on failure. */
int qsa_json_element(qsa_json *j);

/* UTF-8, ends in NUL and holds no other one; NULL on failure. */
const char *qsa_json_string(qsa_json *j);

/* An integer 0..2^63 - 1 in plain digits. */
int qsa_json_count(qsa_json *j, int64_t *value);

/* Any one value. */
int qsa_json_skip(qsa_json *j);

/* Nothing but white space is left. */
int qsa_json_end(qsa_json *j);

#endif
