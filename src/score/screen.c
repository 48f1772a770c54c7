/* SPDX-License-Identifier: MIT */
/* The int8 copy of a key, the prepared query, and the walk over pages. Everything here may only widen the interval. */
#include "score/screen.h"

#include "runtime/memory.h"
#include "runtime/numerics.h"

enum { KEY_MOST = 127, SUBSET_HEADS = 6 };

/* Keys and queries of sizes outside 2^-32 .. 2^32 are none that a norm has made; inside, no product of them nears the
 * limits of f32. */
#define SIZE_LEAST 2.3283064365386963e-10
#define SIZE_MOST  4294967296.0

#define ERROR_LEAST 1e-35                 /* so that no error is rounded to a subnormal */
#define UP          (1.0 + 1.0 / 1048576) /* more than all roundings of a half width: docs/numerics.md */

static uint32_t largest_of(const float *x, int64_t n) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t magnitude = qsa_magnitude(x[i]);
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

static double dot(const float *a, const float *b, int64_t n) {
    double sum[4] = {0};
    for (int64_t i = 0; i < n; i += 4) {
        for (int j = 0; j < 4; j++) {
            sum[j] += (double)a[i + j] * (double)b[i + j];
        }
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* ------------------------------------------------------------------------------------------------ keys */

void qsa_screen_store(const float *key, int64_t dim, char *tile, int64_t lane) {
    uint32_t largest = largest_of(key, dim);
    double size = (double)qsa_from_bits(largest), squares = 0;
    float step = 0.0f, inverse = 0.0f, error;
    int sized = largest < QSA_GRID_NONE && size <= SIZE_MOST;
    if (sized && size >= SIZE_LEAST) {
        step = qsa_from_bits(largest) * (1.0f / KEY_MOST);
        inverse = KEY_MOST / qsa_from_bits(largest);
    }
    for (int64_t c = 0; c < dim; c++) {
        float integer = step > 0.0f ? qsa_rint(key[c] * inverse) : 0.0f;
        double lost = (double)key[c] - (double)step * (double)integer;
        squares += lost * lost;
        tile[(c / 4 * QSA_TILE + lane) * 4 + c % 4] = (char)(unsigned char)((int)integer + 128);
    }
    error = sized ? (float)(qsa_sqrt(squares) * UP + ERROR_LEAST) : QSA_INFINITY;
    memcpy(tile + dim * QSA_TILE + lane * 4, &step, sizeof step);
    memcpy(tile + dim * QSA_TILE + (QSA_TILE + lane) * 4, &error, sizeof error);
}

/* ------------------------------------------------------------------------------------------------ queries */

typedef struct query_parts {
    float *head_step;
    int32_t *head_bias;
    int8_t *digits;
    int16_t *pairs;
} query_parts;

static int64_t part_bytes(int64_t heads, int64_t dim, int64_t offset[4]) {
    const int64_t bytes[] = {heads * 4, heads * 4, heads * 2 * dim, heads * 2 * dim};
    int64_t at = 0;
    for (int i = 0; i < 4; i++) {
        offset[i] = at;
        at += qsa_round_up(bytes[i], 64);
    }
    return at;
}

int64_t qsa_screen_query_bytes(int64_t heads, int64_t dim) {
    int64_t offset[4];
    return part_bytes(heads, dim, offset);
}

/* Head h onto its grid of 16 bits; what that loses, squared. */
static double round_head(const float *q, int64_t dim, int64_t h, const query_parts *parts) {
    qsa_grid grid = qsa_grid_of(largest_of(q, dim));
    double squares = 0;
    int32_t total = 0;
    int8_t *digits = parts->digits + h * 2 * dim;
    for (int64_t c = 0; c < dim; c++) {
        int16_t integer = qsa_grid_round(q[c], grid.inverse);
        int8_t low = (int8_t)(((integer + 128) & 255) - 128);
        double lost = (double)q[c] - (double)grid.step * (double)integer;
        squares += lost * lost;
        total += integer;
        digits[c] = (int8_t)((integer - low) / 256);
        digits[dim + c] = low;
        parts->pairs[h * dim + c / 4 * 4 + c % 2 * 2 + c / 2 % 2] = integer;
    }
    parts->head_step[h] = grid.step;
    parts->head_bias[h] = -128 * total;
    return squares;
}

/* The largest norm of a sum of some of the heads: what the score changes by at most when the key moves by 1. */
static double steepest(const float *iq, int64_t heads, int64_t dim, double norms) {
    if (heads > SUBSET_HEADS) {
        return norms;
    }
    double product[SUBSET_HEADS][SUBSET_HEADS], most = 0;
    for (int64_t i = 0; i < heads; i++) {
        for (int64_t j = 0; j <= i; j++) {
            product[i][j] = (i == j ? 1 : 2) * dot(iq + i * dim, iq + j * dim, dim);
        }
    }
    for (int subset = 1; subset < 1 << heads; subset++) {
        double squares = 0;
        for (int64_t i = 0; i < heads; i++) {
            for (int64_t j = 0; j <= i; j++) {
                squares += subset >> i & subset >> j & 1 ? product[i][j] : 0;
            }
        }
        most = squares > most ? squares : most;
    }
    return qsa_sqrt(most + norms * norms * 1e-12); /* the sums of squares may be off by 2^-40 of this */
}

int qsa_screen_prepare(const float *iq, int64_t heads, int64_t dim, float scale, void *memory,
                       qsa_screen_query *query) {
    int64_t offset[4];
    (void)part_bytes(heads, dim, offset);
    char *base = memory;
    query_parts parts = {(float *)(void *)base, (int32_t *)(void *)(base + offset[1]),
                         (int8_t *)(void *)(base + offset[2]), (int16_t *)(void *)(base + offset[3])};
    double size = (double)qsa_from_bits(largest_of(iq, heads * dim)), factor = (double)scale;
    if (!(size >= SIZE_LEAST && size <= SIZE_MOST && factor >= SIZE_LEAST && factor <= SIZE_MOST)) {
        return 0;
    }
    double norms = 0, lost = 0, u = 1.0 / 16777216;
    for (int64_t h = 0; h < heads; h++) {
        const float *q = iq + h * dim;
        lost += qsa_sqrt(round_head(q, dim, h, &parts));
        norms += qsa_sqrt(dot(q, q, dim));
    }
    double exact = (double)(dim + heads) * u * norms;           /* the kernel's own rounding, per ||key|| */
    double combined = (double)(heads + 8) * u * (norms + lost); /* that of `score` above, per ||copy|| */
    double copy = KEY_MOST * qsa_sqrt((double)dim);             /* ||copy|| <= copy * step */
    *query = (qsa_screen_query){
        .heads = heads,
        .dim = dim,
        .scale = scale,
        .key_error = (float)(factor * (steepest(iq, heads, dim, norms) + 1.001 * exact) * UP),
        .key_step = (float)(factor * (lost + 1.001 * (exact + combined)) * copy * UP),
        .head_step = parts.head_step,
        .head_bias = parts.head_bias,
        .digits = parts.digits,
        .pairs = parts.pairs,
    };
    return 1;
}

/* ------------------------------------------------------------------------------------------------ pages */

void qsa_screen_run(const qsa_screen_kernels *kernels, const qsa_screen_range *range) {
    int64_t tile = qsa_screen_tile_bytes(range->query->dim), b = range->first;
    while (b < range->last) {
        int64_t in_page = b % range->page_blocks, end = qsa_min(range->last, b - in_page + range->page_blocks);
        qsa_screen_job job = {
            .tiles =
                range->tiles + range->pages[b / range->page_blocks] * range->page_stride + in_page / QSA_TILE * tile,
            .next =
                end < range->last ? range->tiles + range->pages[end / range->page_blocks] * range->page_stride : NULL,
            .count = end - b,
            .query = range->query,
            .low = range->low + b,
            .high = range->high + b,
        };
        kernels->run(&job);
        b = end;
    }
}
