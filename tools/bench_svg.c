/* SPDX-License-Identifier: MIT */
/* Time against length, both in logarithms: dense attention, the step, its roofline. */
#include "bench.h"

#include "settings.h"

#include <math.h>

enum { WIDTH = 760, LEFT = 76, RIGHT = 28, HEAD = 76, PANEL_HEAD = 44, PLOT = 264, PANEL_FOOT = 56 };

typedef struct scale {
    double low, high; /* of x in base 2, of y in base 10 */
} scale;

typedef struct curve {
    const char *class, *label;
    bench_figure figure;
    int is_roofline;
} curve;

static const curve curves[] = {
    {"dense", "dense: all cells", BENCH_DENSE, 0},
    {"step", "QSA step", BENCH_STEP, 0},
    {"roof", "roofline of the step", BENCH_STEP, 1},
};
enum { CURVES = sizeof curves / sizeof *curves };

static double x_of(const scale *s, int64_t n) {
    return LEFT + (log2((double)n) - s->low) / (s->high - s->low) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const scale *s, double us) {
    return PANEL_HEAD + (s->high - log10(us)) / (s->high - s->low) * PLOT;
}

/* 0 where there is nothing to draw. */
static double value_of(const curve *c, const bench_result *r) {
    return c->is_roofline ? r->roofline_us[c->figure] : r->is_refused[c->figure] ? 0.0 : r->us[c->figure].median;
}

/* ------------------------------------------------------------------------------------------------ scales */

static scale n_scale(const bench_result *results, int64_t count) {
    scale s = {1e9, -1e9};
    for (int64_t i = 0; i < count; i++) {
        s.low = fmin(s.low, log2((double)results[i].c.n));
        s.high = fmax(s.high, log2((double)results[i].c.n));
    }
    return (scale){s.low - 0.25, s.high + 0.25};
}

/* The next of 1, 2, 5 times a power of ten, outwards. */
static double rounded(double us, int up) {
    static const double steps[] = {1, 2, 5, 10};
    double power = pow(10.0, floor(log10(us)));
    int i = up ? 0 : 3;
    while (up ? i < 3 && steps[i] * power < us : i > 0 && steps[i] * power > us) {
        i += up ? 1 : -1;
    }
    return log10(steps[i] * power);
}

static scale time_scale(const bench_result *results, int64_t count) {
    double least = HUGE_VAL, most = 0.0;
    for (int64_t i = 0; i < count; i++) {
        for (int j = 0; j < CURVES; j++) {
            double us = value_of(&curves[j], &results[i]);
            least = us > 0.0 ? fmin(least, us) : least;
            most = fmax(most, us);
        }
    }
    return most > 0.0 ? (scale){rounded(least * 0.9, 0), rounded(most * 1.1, 1)} : (scale){0.0, 1.0};
}

/* ------------------------------------------------------------------------------------------------ axes */

static void print_length(FILE *file, int64_t n) {
    if (n % (1 << 20) == 0) {
        fprintf(file, "%lldM", (long long)(n >> 20));
    } else if (n % 1024 == 0) {
        fprintf(file, "%lldK", (long long)(n >> 10));
    } else {
        fprintf(file, "%lld", (long long)n);
    }
}

static void print_n_axis(FILE *file, const scale *s) {
    for (int power = (int)ceil(s->low); power <= (int)floor(s->high); power++) {
        double x = x_of(s, INT64_C(1) << power);
        fprintf(
            file,
            "<path class=\"grid\" d=\"M%.1f %dv%d\"/>\n<text class=\"dim\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">",
            x, PANEL_HEAD, PLOT, x, PANEL_HEAD + PLOT + 18);
        print_length(file, INT64_C(1) << power);
        fprintf(file, "</text>\n");
    }
    fprintf(file, "<text class=\"ink\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">n, cells in the cache</text>\n",
            LEFT + (WIDTH - LEFT - RIGHT) / 2, PANEL_HEAD + PLOT + 38);
}

static void print_time_axis(FILE *file, const scale *s) {
    static const double steps[] = {1, 2, 5};
    int sparse = s->high - s->low > 4.0;
    for (int power = (int)floor(s->low); power <= (int)ceil(s->high); power++) {
        for (int i = 0; i < 3; i++) {
            double us = steps[i] * pow(10.0, power), at = log10(us);
            if (at < s->low - 1e-9 || at > s->high + 1e-9) {
                continue;
            }
            double y = y_of(s, us);
            fprintf(file, "<path class=\"grid\" d=\"M%d %.1fh%d\"/>\n", LEFT, y, WIDTH - LEFT - RIGHT);
            if (i == 0 || !sparse) {
                fprintf(file, "<text class=\"dim\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g %s</text>\n", LEFT - 8,
                        y + 4, us < 1000 ? us : us / 1000, us < 1000 ? "\xc2\xb5s" : "ms");
            }
        }
    }
}

/* ------------------------------------------------------------------------------------------------ panels */

static void print_curve(FILE *file, const curve *c, const scale *x, const scale *y, const bench_result *r,
                        int64_t count) {
    const char *pen = "M";
    fprintf(file, "<path class=\"line %s\" d=\"", c->class);
    for (int64_t i = 0; i < count; i++) {
        double us = value_of(c, &r[i]);
        if (us > 0.0) {
            fprintf(file, "%s%.1f %.1f", pen, x_of(x, r[i].c.n), y_of(y, us));
            pen = "L";
        }
    }
    fprintf(file, "\"/>\n");
    for (int64_t i = 0; i < count && !c->is_roofline; i++) {
        if (value_of(c, &r[i]) > 0.0) {
            double at = x_of(x, r[i].c.n);
            fprintf(file,
                    "<path class=\"bar %s\" d=\"M%.1f %.1fV%.1f\"/>\n<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" "
                    "r=\"3\"/>\n",
                    c->class, at, y_of(y, r[i].us[c->figure].q1), y_of(y, r[i].us[c->figure].q3), c->class, at,
                    y_of(y, value_of(c, &r[i])));
        }
    }
}

static void print_panel_head(FILE *file, const bench_case *c) {
    fprintf(file,
            "<text class=\"ink name\" x=\"%d\" y=\"24\">K/V %s, keys %s%s, contract %s, %s, %lld thread%s, %lld "
            "row%s</text>\n",
            LEFT, type_word(c->kv), type_word(c->keys), c->screen ? " screened" : "",
            c->contract == QSA_CELLS ? "cells" : "blocks", qsa_cpu_name(c->cpu), (long long)c->threads,
            c->threads == 1 ? "" : "s", (long long)c->rows, c->rows == 1 ? "" : "s");
}

static void print_legend(FILE *file) {
    for (int i = 0; i < CURVES; i++) {
        int x = 24 + i * 160;
        fprintf(file, "<path class=\"line %s\" d=\"M%d 62h26\"/>\n<text class=\"ink\" x=\"%d\" y=\"66\">%s</text>\n",
                curves[i].class, x, x + 34, curves[i].label);
    }
}

static void print_style(FILE *file) {
    fputs("<style>\n"
          ".page{fill:#ffffff}.ink{fill:#1c2733}.dim{fill:#5b6875}.grid{stroke:#e6eaee}\n"
          ".step{stroke:#0b62c4}.dense{stroke:#b4501a}.roof{stroke:#5b6875;stroke-dasharray:5 4}\n"
          ".dot.step{fill:#0b62c4}.dot.dense{fill:#b4501a}.line{fill:none;stroke-width:2}.bar{stroke-width:5;stroke-"
          "opacity:.35}\n"
          "text{font:12px system-ui,'DejaVu "
          "Sans',sans-serif}.title{font-size:16px;font-weight:600}.name{font-weight:600}\n"
          "@media (prefers-color-scheme:dark){\n"
          ".page{fill:#12171d}.ink{fill:#e8edf2}.dim{fill:#9aa7b4}.grid{stroke:#262f39}\n"
          ".step{stroke:#62b0ff}.dense{stroke:#f5965a}.roof{stroke:#9aa7b4}\n"
          ".dot.step{fill:#62b0ff}.dot.dense{fill:#f5965a}}\n"
          "</style>\n",
          file);
}

/* Results from `first` on that belong to one panel; list_cases() keeps them together. */
static int64_t panel_end(const bench_result *results, int64_t first, int64_t count) {
    int64_t end = first + 1;
    while (end < count && bench_same_but_n(&results[first].c, &results[end].c)) {
        end++;
    }
    return end;
}

int bench_print_svg(FILE *file, const bench_result *results, int64_t count) {
    scale x = n_scale(results, count), y = time_scale(results, count);
    int64_t panels = 0;
    for (int64_t i = 0; i < count; i = panel_end(results, i, count)) {
        panels++;
    }
    long long height = HEAD + panels * (PANEL_HEAD + PLOT + PANEL_FOOT);
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %lld\" width=\"%d\" height=\"%lld\" "
            "role=\"img\">\n<title>Time of a decode step against the length of its cache</title>\n",
            WIDTH, height, WIDTH, height);
    print_style(file);
    fprintf(file,
            "<rect class=\"page\" width=\"%d\" height=\"%lld\"/>\n<text class=\"ink title\" x=\"24\" y=\"28\">One "
            "decode step "
            "of one layer</text>\n<text class=\"dim\" x=\"24\" y=\"46\">median and quartiles, read from memory; "
            "roofline: the "
            "read bandwidth and multiply-add peaks of the same run</text>\n",
            WIDTH, height);
    print_legend(file);
    for (int64_t i = 0, panel = 0, end; i < count; i = end, panel++) {
        end = panel_end(results, i, count);
        fprintf(file, "<g transform=\"translate(0 %lld)\">\n",
                (long long)(HEAD + panel * (PANEL_HEAD + PLOT + PANEL_FOOT)));
        print_panel_head(file, &results[i].c);
        print_n_axis(file, &x);
        print_time_axis(file, &y);
        for (int j = 0; j < CURVES; j++) {
            print_curve(file, &curves[j], &x, &y, &results[i], end - i);
        }
        fprintf(file, "</g>\n");
    }
    fputs("</svg>\n", file);
    return fflush(file) || ferror(file) ? -1 : 0;
}
