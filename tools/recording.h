/* SPDX-License-Identifier: MIT */
/* Hidden states of a sequence in a safetensors file, and what a reference got from them at some positions. */
#ifndef QSA_TOOLS_RECORDING_H
#define QSA_TOOLS_RECORDING_H

#include <qsa/qsa.h>

typedef struct recording {
    const char *command, *path; /* borrowed, for messages */
    qsa_tensors *tensors;
    float *hidden; /* [tokens][hidden_size] */
    int64_t tokens, hidden_size;
    int64_t rows;      /* 0: nothing is recorded */
    int32_t *position; /* [rows], ascending */
    int32_t *ids;      /* [rows][id_stride] selected cells, ascending, then -1; this and the others may be NULL */
    int64_t id_stride;
    float *scores; /* [rows][score_stride] of blocks */
    int64_t score_stride;
    float *gated; /* [rows][gated_size] before the output projection */
    int64_t gated_size;
    float *out; /* [rows][hidden_size] */
} recording;

/* EXIT_OK, or EXIT_USAGE with a message on stderr; close it in both cases. command and path must outlive it. */
int recording_open(const char *command, const char *path, recording *r);
void recording_close(recording *r);

/* The recorded row of a position, or -1. */
int64_t recording_row_of(const recording *r, int64_t position);

/* How many of the row's recorded ids are cells: those before the first -1. */
int64_t recording_id_count(const recording *r, int64_t row);

/* Whether the reference rounded to bf16 as it went, by the file's metadata. */
int recording_is_bf16(const recording *r);

#endif
