/* SPDX-License-Identifier: MIT */
/*
 * qsa bench: what a decode step takes, against what this machine could do at best.
 *
 * One CASE is a length, a format, a number of threads, ... Its cache has a few PLACES (layers of one sequence). A ROUND
 * reads a buffer of twice the last-level cache, which is the measure of bandwidth and throws the places out of all
 * caches, then the peaks of multiply-adds are measured, then each place is decoded at once. Rounds of dense attention
 * take turns with rounds of steps: what disturbs the machine disturbs all figures alike.
 *
 * The ROOFLINE of a stage is the longer of its bytes at the read bandwidth and its multiply-adds at their peak, the
 * peak of the instruction set that the kernel is made of:
 *   - score: the keys of all blocks, once for up to 8 rows; rows x blocks x index_heads x index_dim in f32
 *   - score, screening: the int8 copies of all keys, once for up to 8 rows, and at least the keys of the blocks
 * selected
 *   - attend: K/V and scales of the cells that the rows read; rows x width x q_heads x head_dim x 2, 16-bit for i8
 *   - select, merge: none, for what they read was just written and lies in caches
 *
 * The roofline of the step is the sum of its stages'. A time in which the bytes could not have been read is refused.
 */
#ifndef QSA_TOOLS_BENCH_H
#define QSA_TOOLS_BENCH_H

#include "report.h"

#include <qsa/qsa.h>

#include <stdio.h>

typedef struct bench_case {
    int64_t n, rows, threads; /* row t of rows sees n - rows + t + 1 cells */
    qsa_type kv, keys;
    qsa_cpu cpu;           /* not AUTO */
    qsa_contract contract; /* BLOCKS or CELLS */
    int screen;            /* the cache's option */
    double seconds;        /* of measuring; filling the cache comes on top */
    int64_t memory;        /* bytes that the cache may take */
} bench_case;

typedef struct bench_spread {
    double q1, median, q3, most;
    int64_t count;
} bench_spread;

/* What is timed: the stages in the order of qsa_decode_args.stage_ns, the whole step, dense attention over all cells.
 */
typedef enum bench_figure {
    BENCH_SCORE,
    BENCH_SELECT,
    BENCH_ATTEND,
    BENCH_MERGE,
    BENCH_STEP,
    BENCH_DENSE
} bench_figure;
enum { BENCH_STAGES = 4, BENCH_FIGURES = 6 };
extern const char *const bench_figure_names[BENCH_FIGURES];

typedef struct bench_result {
    bench_case c;
    int64_t width;               /* cells that the last row attends to */
    int64_t places, cache_bytes; /* of all places */
    int64_t flush_bytes;         /* read between two rounds */
    int64_t last_level_cache;
    int cold; /* what is read between two visits of a place is twice the last-level cache */
    int64_t bytes[BENCH_FIGURES], macs[BENCH_FIGURES];
    bench_spread us[BENCH_FIGURES]; /* microseconds */
    bench_spread read_gbs;
    bench_spread float_gmacs;   /* f32, as the score kernel makes them */
    bench_spread integer_gmacs; /* 16-bit, as the attend kernel for i8 makes them */
    bench_spread attend_gmacs;  /* of the attend kernel that ran */
    double roofline_us[BENCH_FIGURES];
    int is_refused[BENCH_FIGURES];
    char refused[200]; /* why, or empty */
} bench_result;

/* ------------------------------------------------------------------------------------------------ a case */

/* Memory that is read between rounds; made once for all cases. */
typedef struct bench_flush {
    char *memory;
    int64_t bytes, last_level_cache;
} bench_flush;

/* At most `most` bytes. EXIT_OK, or EXIT_USAGE with a message on stderr; destroy it in both cases. */
int bench_flush_create(bench_flush *flush, int64_t most);
void bench_flush_destroy(bench_flush *flush);

/* Bytes of one place. */
int64_t bench_place_bytes(const bench_case *c, const qsa_shape *shape);

/* Case `index` of `count`, for the bar. */
typedef struct bench_turn {
    progress *bar;
    int64_t index, count;
} bench_turn;

/* EXIT_OK, or EXIT_USAGE with a message on stderr. */
int bench_run(const bench_case *c, const bench_flush *flush, const bench_turn *turn, bench_result *result);

/* ------------------------------------------------------------------------------------------------ arithmetic */

/* Fills bytes and macs. attended: cells that the rows read together, each counted once; below 0: no two rows read the
 * same one. */
void bench_count_work(bench_result *r, const qsa_shape *shape, int64_t attended);

/* Fills roofline_us, is_refused and refused from what was measured. */
void bench_judge(bench_result *r);

/* Bytes read a nanosecond; time over roofline. 0 where that means nothing. */
double bench_gbs(const bench_result *r, bench_figure figure);
double bench_ratio(const bench_result *r, bench_figure figure);

/* ------------------------------------------------------------------------------------------------ the cache of a case */

typedef struct bench_data {
    qsa_context *context;
    qsa_cache *cache;
    qsa_sequence *sequence;  /* layer i is place i: n cells */
    qsa_sequence *short_one; /* 64 cells in layer 0: to wake the threads */
    float *pool;             /* K, V and raw index keys of the cells that are appended at once */
} bench_data;

/* EXIT_OK, or EXIT_USAGE with a message on stderr; destroy it in both cases. */
int bench_data_create(bench_data *data, const bench_case *c, const qsa_shape *shape, int64_t places);
void bench_data_destroy(bench_data *data);

/* Random numbers about as wide as a normed head's: near normal, of variance 1. */
void bench_fill_normal(uint64_t seed, float *x, int64_t count);

/* ------------------------------------------------------------------------------------------------ output */

void bench_print_case(FILE *file, const bench_result *r);

/* A line for each case. */
void bench_print_overview(FILE *file, const bench_result *results, int64_t count);

/* On stdout, under the same names: one object (or {"results": [...]}), or a line for each case behind a line of names.
 * EXIT_OK, or EXIT_USAGE with a message on stderr. */
int bench_print_json(const bench_result *results, int64_t count);
int bench_print_csv(const bench_result *results, int64_t count);

/* Time against n; a panel for each set of cases that differ in n alone. 0, or -1 if the file cannot be written. */
int bench_print_svg(FILE *file, const bench_result *results, int64_t count);

/* a and b differ in n at most. */
int bench_same_but_n(const bench_case *a, const bench_case *b);

#endif
