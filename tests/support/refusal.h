/* SPDX-License-Identifier: MIT */
/*
 * Tables of bad input. A valid call is laid out as parts (its structs and arrays, and a struct of the pointers it
 * passes); a row of the table puts one wrong value into one part and says which status and which words must come back.
 */
#ifndef QSA_TEST_REFUSAL_H
#define QSA_TEST_REFUSAL_H

#include <qsa/qsa.h>

enum { PARTS_MAX = 12, RESULTS_MAX = 4 };

typedef struct memory_part {
    void *memory;
    size_t bytes;
} memory_part;

typedef struct refused_call {
    memory_part part[PARTS_MAX];
    memory_part result[RESULTS_MAX]; /* what a refused call must leave alone and the valid one fills; read as bytes */
    qsa_status (*run)(void *state, qsa_error *error);
    void *state;
} refused_call;

/* Tables are automatic: the values are compound literals. Status QSA_OK: the next row's wrong value comes on top. */
typedef struct refusal {
    int part;
    size_t offset, bytes;
    const void *value;
    qsa_status status;
    const char *words;
    int line;
} refusal;

#define SPOIL(type, part, owner, field, value, status, words)                                                          \
    { part, offsetof(owner, field), sizeof(type), &(const type){value}, status, words, __LINE__ }
#define SPOIL_AT(type, part, index, value, status, words)                                                              \
    { part, (index) * sizeof(type), sizeof(type), &(const type){value}, status, words, __LINE__ }
#define BAD_I64(part, owner, field, value, status, words) SPOIL(int64_t, part, owner, field, value, status, words)
#define BAD_SIZE(part, owner, value, words)               SPOIL(size_t, part, owner, size, value, QSA_E_ARGUMENT, words)
#define BAD_INT(part, owner, field, value, status, words) SPOIL(int, part, owner, field, value, status, words)
#define BAD_F32(part, owner, field, value, status, words) SPOIL(float, part, owner, field, value, status, words)
#define BAD_F64(part, owner, field, value, status, words) SPOIL(double, part, owner, field, value, status, words)
#define NO_PTR(part, owner, field, words)                 SPOIL(uintptr_t, part, owner, field, 0, QSA_E_ARGUMENT, words)
#define AND_I64(part, owner, field, value)                SPOIL(int64_t, part, owner, field, value, QSA_OK, NULL)
#define AND_INT(part, owner, field, value)                SPOIL(int, part, owner, field, value, QSA_OK, NULL)
#define AND_NULL(part, owner, field)                      SPOIL(uintptr_t, part, owner, field, 0, QSA_OK, NULL)

/* For every row: the status and words, with and without an error to fill; results untouched; and the valid call right
 * after it gives the bytes that it gave at first. */
void check_refusals(const refused_call *call, const refusal *rows, size_t count);
#define CHECK_REFUSALS(call, rows) check_refusals(call, rows, sizeof(rows) / sizeof *(rows))

/* The rows that every call with a shape has; part: a qsa_shape. */
void check_shape_refusals(const refused_call *call, int part);

#endif
