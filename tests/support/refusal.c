/* SPDX-License-Identifier: MIT */
/* Runs tables of bad input. */
#include "support/refusal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { CANARY = 0x5c };

static void set_canaries(const refused_call *call) {
    for (int i = 0; i < RESULTS_MAX; i++) {
        if (call->result[i].memory) {
            memset(call->result[i].memory, CANARY, call->result[i].bytes);
        }
    }
}

static int canaries_live(const refused_call *call) {
    for (int i = 0; i < RESULTS_MAX; i++) {
        const unsigned char *at = call->result[i].memory;
        for (size_t b = 0; at && b < call->result[i].bytes; b++) {
            if (at[b] != CANARY) {
                return 0;
            }
        }
    }
    return 1;
}

/* Copies of the results of a valid call, or a comparison with them. */
static void run_valid(const refused_call *call, unsigned char *saved[RESULTS_MAX], int line) {
    qsa_error error;
    memset(&error, CANARY, sizeof error);
    set_canaries(call);
    qsa_status status = call->run(call->state, &error);
    if (status || error.status != QSA_OK || error.message[0]) {
        fail_msg("line %d: the valid call gave %s: %s", line, qsa_status_name(status), error.message);
    }
    for (int i = 0; i < RESULTS_MAX; i++) {
        size_t bytes = call->result[i].bytes;
        if (!call->result[i].memory) {
            continue;
        }
        if (!saved[i]) {
            saved[i] = malloc(bytes);
            assert_non_null(saved[i]);
            memcpy(saved[i], call->result[i].memory, bytes);
        } else if (memcmp(saved[i], call->result[i].memory, bytes) != 0) {
            fail_msg("line %d: the valid call after it gave another result %d", line, i);
        }
    }
}

static void run_refused(const refused_call *call, const refusal *row) {
    qsa_error error;
    memset(&error, CANARY, sizeof error);
    set_canaries(call);
    qsa_status status = call->run(call->state, &error);
    error.message[sizeof error.message - 1] = '\0';
    if (status != row->status || error.status != status) {
        fail_msg("line %d: status %s and %s (%s), expected %s", row->line, qsa_status_name(status),
                 qsa_status_name(error.status), status ? error.message : "", qsa_status_name(row->status));
    }
    if (!strstr(error.message, row->words) || strchr(error.message, '\n')) {
        fail_msg("line %d: \"%s\" does not say \"%s\" in one line", row->line, error.message, row->words);
    }
    status = call->run(call->state, NULL);
    if (status != row->status) {
        fail_msg("line %d: status %s without an error to fill", row->line, qsa_status_name(status));
    }
    if (!canaries_live(call)) {
        fail_msg("line %d: a refused call wrote results", row->line);
    }
}

void check_refusals(const refused_call *call, const refusal *rows, size_t count) {
    unsigned char *saved[RESULTS_MAX] = {NULL}, *parts[PARTS_MAX] = {NULL};
    for (int p = 0; p < PARTS_MAX; p++) {
        if (call->part[p].memory) {
            parts[p] = malloc(call->part[p].bytes);
            assert_non_null(parts[p]);
            memcpy(parts[p], call->part[p].memory, call->part[p].bytes);
        }
    }
    run_valid(call, saved, 0);
    if (call->result[0].memory && canaries_live(call)) {
        fail_msg("the valid call fills nothing");
    }
    for (size_t i = 0; i < count; i++) {
        const memory_part *part = &call->part[rows[i].part];
        if (!part->memory || rows[i].offset + rows[i].bytes > part->bytes) {
            fail_msg("line %d: no such part", rows[i].line);
        }
        memcpy((char *)part->memory + rows[i].offset, rows[i].value, rows[i].bytes);
        if (rows[i].status == QSA_OK) {
            continue;
        }
        run_refused(call, &rows[i]);
        for (int p = 0; p < PARTS_MAX; p++) {
            if (parts[p]) {
                memcpy(call->part[p].memory, parts[p], call->part[p].bytes);
            }
        }
        run_valid(call, saved, rows[i].line);
    }
    for (int p = 0; p < PARTS_MAX; p++) {
        free(parts[p]);
    }
    for (int i = 0; i < RESULTS_MAX; i++) {
        free(saved[i]);
    }
}

#define SHAPE(field, value) BAD_I64(0, qsa_shape, field, value, QSA_E_SHAPE, #field " is")

void check_shape_refusals(const refused_call *call, int part) {
    const refusal rows[] = {
        BAD_SIZE(0, qsa_shape, 0, "shape"),
        BAD_SIZE(0, qsa_shape, sizeof(qsa_shape) - 1, "shape"),
        BAD_SIZE(0, qsa_shape, SIZE_MAX, "shape"),
        SHAPE(q_heads, 0),
        SHAPE(q_heads, -4),
        SHAPE(q_heads, 257),
        SHAPE(q_heads, INT64_MAX),
        SHAPE(q_heads, INT64_MIN),
        SHAPE(q_heads, 3),
        AND_I64(0, qsa_shape, kv_heads, 1),
        SHAPE(q_heads, 128),
        SHAPE(kv_heads, 0),
        SHAPE(kv_heads, -2),
        SHAPE(kv_heads, 65),
        SHAPE(kv_heads, INT64_MAX),
        SHAPE(kv_heads, INT64_MIN),
        SHAPE(head_dim, 0),
        SHAPE(head_dim, -64),
        SHAPE(head_dim, 96),
        SHAPE(head_dim, 576),
        SHAPE(head_dim, INT64_MAX),
        SHAPE(head_dim, INT64_MIN),
        SHAPE(index_heads, 0),
        SHAPE(index_heads, -1),
        SHAPE(index_heads, 65),
        SHAPE(index_heads, INT64_MAX),
        SHAPE(index_dim, 0),
        SHAPE(index_dim, -16),
        SHAPE(index_dim, 24),
        SHAPE(index_dim, 528),
        SHAPE(index_dim, INT64_MAX),
        SHAPE(block, 0),
        SHAPE(block, 1),
        SHAPE(block, 3),
        SHAPE(block, 6),
        SHAPE(block, 16),
        SHAPE(block, -4),
        SHAPE(block, INT64_MIN),
        SHAPE(budget, 0),
        SHAPE(budget, 34),
        SHAPE(budget, -32),
        SHAPE(budget, (INT64_C(1) << 30) + 4),
        SHAPE(budget, INT64_MAX),
        BAD_F32(0, qsa_shape, scale, 0.0f, QSA_E_SHAPE, "shape.scale is"),
        BAD_F32(0, qsa_shape, scale, -1.0f, QSA_E_SHAPE, "shape.scale is"),
        BAD_F32(0, qsa_shape, scale, INFINITY, QSA_E_SHAPE, "shape.scale is"),
        BAD_F32(0, qsa_shape, scale, NAN, QSA_E_SHAPE, "shape.scale is"),
        BAD_F32(0, qsa_shape, index_scale, 0.0f, QSA_E_SHAPE, "shape.index_scale is"),
        BAD_F32(0, qsa_shape, index_scale, -0.5f, QSA_E_SHAPE, "shape.index_scale is"),
        BAD_F32(0, qsa_shape, index_scale, INFINITY, QSA_E_SHAPE, "shape.index_scale is"),
        BAD_F32(0, qsa_shape, index_scale, NAN, QSA_E_SHAPE, "shape.index_scale is"),
    };
    refusal moved[sizeof rows / sizeof *rows];
    memcpy(moved, rows, sizeof rows);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        moved[i].part = part;
    }
    CHECK_REFUSALS(call, moved);
}
