/* SPDX-License-Identifier: MIT */
/* A picture of a selection: which of the cells 0..n-1 each decoded row read, as SVG. */
#ifndef QSA_TOOLS_PICTURE_H
#define QSA_TOOLS_PICTURE_H

#include <stdint.h>
#include <stdio.h>

enum { PICTURE_COLUMNS = 480, PICTURE_STRIPS = 40 };

/* Cells are counted in columns and rows in strips, so that the size of the file has a limit. */
typedef struct picture {
    int64_t rows, cells; /* that will be added; the longest row's */
    int64_t columns, strips;
    int64_t read[PICTURE_STRIPS][PICTURE_COLUMNS];    /* cells read, of all rows of a strip */
    int64_t visible[PICTURE_STRIPS][PICTURE_COLUMNS]; /* cells that they could have read */
    int64_t last_n[PICTURE_STRIPS];                   /* cells that the last row of a strip sees */
} picture;

void picture_start(picture *p, int64_t rows, int64_t cells);

/* Row `row` of n cells read these. */
void picture_add(picture *p, int64_t row, int64_t n, const int32_t *ids, int64_t count);

/* 0, or -1 if the file cannot be written. */
int picture_print(FILE *file, const picture *p, const char *title);

#endif
