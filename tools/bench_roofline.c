/* SPDX-License-Identifier: MIT */
/* What a step must read and multiply, how long that takes at best, and which figures cannot be true. */
#include "bench.h"

#include <string.h>

enum { ROWS_OF_SCORE = 8 /* that share one reading of the keys */ };

const char *const bench_figure_names[BENCH_FIGURES] = {"score", "select", "attend", "merge", "step", "dense"};

static double longer(double a, double b) {
    return a > b ? a : b;
}

void bench_count_work(bench_result *r, const qsa_shape *s, int64_t attended) {
    const bench_case *c = &r->c;
    int64_t key_bytes = s->index_dim * (c->keys == QSA_F32 ? 4 : 2), macs_per_cell = 2 * s->q_heads * s->head_dim;
    int64_t kv_bytes = qsa_bytes_per_cell(s, c->kv, c->keys) - key_bytes / s->block;
    int64_t copy_bytes = s->index_dim + 8, chosen = s->budget / s->block, cells = 0, visible = 0;
    memset(r->bytes, 0, sizeof r->bytes);
    memset(r->macs, 0, sizeof r->macs);
    for (int64_t t = 0; t < c->rows; t++) {
        int64_t n = c->n - c->rows + t + 1, blocks = n / s->block;
        r->width = qsa_width(s, c->contract, n);
        cells += r->width;
        visible += n;
        if (r->width < n) {
            r->macs[BENCH_SCORE] += (c->screen ? chosen : blocks) * s->index_heads * s->index_dim;
            if (t % ROWS_OF_SCORE == ROWS_OF_SCORE - 1 || t == c->rows - 1) {
                r->bytes[BENCH_SCORE] += c->screen ? blocks * copy_bytes + chosen * key_bytes : blocks * key_bytes;
            }
        }
    }
    r->bytes[BENCH_ATTEND] = (attended < 0 ? cells : attended) * kv_bytes;
    r->macs[BENCH_ATTEND] = cells * macs_per_cell;
    r->bytes[BENCH_STEP] = r->bytes[BENCH_SCORE] + r->bytes[BENCH_ATTEND];
    r->macs[BENCH_STEP] = r->macs[BENCH_SCORE] + r->macs[BENCH_ATTEND];
    r->bytes[BENCH_DENSE] = c->n * kv_bytes;
    r->macs[BENCH_DENSE] = visible * macs_per_cell;
}

static double roofline_of(const bench_result *r, bench_figure figure, double gmacs) {
    return longer((double)r->bytes[figure] / r->read_gbs.median, (double)r->macs[figure] / gmacs) * 1e-3;
}

double bench_gbs(const bench_result *r, bench_figure figure) {
    return r->us[figure].median > 0.0 ? (double)r->bytes[figure] * 1e-3 / r->us[figure].median : 0.0;
}

double bench_ratio(const bench_result *r, bench_figure figure) {
    return r->roofline_us[figure] > 0.0 ? r->us[figure].median / r->roofline_us[figure] : 0.0;
}

/* Nothing reads faster than the fastest pure reading; a figure that says so was served by a cache. */
void bench_judge(bench_result *r) {
    static const bench_figure reading[] = {BENCH_SCORE, BENCH_ATTEND, BENCH_STEP, BENCH_DENSE};
    memset(r->roofline_us, 0, sizeof r->roofline_us);
    r->roofline_us[BENCH_SCORE] = roofline_of(r, BENCH_SCORE, r->float_gmacs.median);
    r->roofline_us[BENCH_ATTEND] = roofline_of(r, BENCH_ATTEND, r->attend_gmacs.median);
    r->roofline_us[BENCH_STEP] = r->roofline_us[BENCH_SCORE] + r->roofline_us[BENCH_ATTEND];
    r->roofline_us[BENCH_DENSE] = roofline_of(r, BENCH_DENSE, r->attend_gmacs.median);
    memset(r->is_refused, 0, sizeof r->is_refused);
    r->refused[0] = '\0';
    for (size_t i = 0; i < sizeof reading / sizeof *reading; i++) {
        bench_figure figure = reading[i];
        double gbs = bench_gbs(r, figure);
        r->is_refused[figure] = gbs > r->read_gbs.most;
        if (r->is_refused[figure]) {
            snprintf(r->refused, sizeof r->refused, "%s reads %.1f GB/s, above the measured bandwidth of %.1f GB/s",
                     bench_figure_names[figure], gbs, r->read_gbs.most);
        }
    }
    if (r->is_refused[BENCH_SCORE] || r->is_refused[BENCH_ATTEND]) {
        r->is_refused[BENCH_STEP] = 1;
    }
}

int bench_same_but_n(const bench_case *a, const bench_case *b) {
    return a->rows == b->rows && a->threads == b->threads && a->kv == b->kv && a->keys == b->keys && a->cpu == b->cpu &&
           a->contract == b->contract && a->screen == b->screen;
}
