/* SPDX-License-Identifier: MIT */
/* Results as tables, JSON and CSV. */
#include "bench.h"

#include "options.h"
#include "settings.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------------ tables */

static void print_cell(FILE *file, int width, const char *format, double value) {
    char text[32];
    snprintf(text, sizeof text, format, value);
    fprintf(file, " %*s", width, value > 0.0 ? text : "-");
}

static void print_figure(FILE *file, const bench_result *r, bench_figure figure) {
    const bench_spread *us = &r->us[figure];
    fprintf(file, "  %-7s", bench_figure_names[figure]);
    if (r->is_refused[figure]) {
        fprintf(file, " %10s\n", "refused");
        return;
    }
    fprintf(file, " %10.1f %10.1f %10.1f", us->median, us->q1, us->q3);
    print_cell(file, 8, "%.1f", bench_gbs(r, figure));
    print_cell(file, 10, "%.1f", r->roofline_us[figure]);
    print_cell(file, 7, "%.2f", bench_ratio(r, figure));
    fprintf(file, "\n");
}

void bench_print_case(FILE *file, const bench_result *r) {
    const bench_case *c = &r->c;
    fprintf(file, "n %lld: K/V %s, keys %s%s, contract %s, %s, %lld thread%s, %lld row%s\n", (long long)c->n,
            type_word(c->kv), type_word(c->keys), c->screen ? " screened" : "",
            c->contract == QSA_CELLS ? "cells" : "blocks", qsa_cpu_name(c->cpu), (long long)c->threads,
            c->threads == 1 ? "" : "s", (long long)c->rows, c->rows == 1 ? "" : "s");
    fprintf(file, "  %-7s %10s %10s %10s %8s %10s %7s\n", "us", "median", "quartile", "quartile", "GB/s", "roofline",
            "ratio");
    for (int i = 0; i < BENCH_FIGURES; i++) {
        print_figure(file, r, (bench_figure)i);
    }
    fprintf(file, "  peaks   %.1f GB/s read, %.1f G/s multiply-adds in f32, %.1f in int16; %lld steps, %lld dense%s\n",
            r->read_gbs.median, r->float_gmacs.median, r->integer_gmacs.median, (long long)r->us[BENCH_STEP].count,
            (long long)r->us[BENCH_DENSE].count, r->cold ? "" : "; WARM: too little memory to empty the caches");
    if (r->refused[0]) {
        fprintf(file, "  refused: %s\n", r->refused);
    }
    fprintf(file, "\n");
    fflush(file);
}

void bench_print_overview(FILE *file, const bench_result *results, int64_t count) {
    fprintf(file, "%9s %4s %7s %7s %4s %10s %10s %10s %7s %8s\n", "n", "K/V", "level", "threads", "rows", "step us",
            "roofline", "dense us", "ratio", "speedup");
    for (int64_t i = 0; i < count; i++) {
        const bench_result *r = &results[i];
        int step = !r->is_refused[BENCH_STEP], dense = !r->is_refused[BENCH_DENSE];
        fprintf(file, "%9lld %4s %7s %7lld %4lld", (long long)r->c.n, type_word(r->c.kv), qsa_cpu_name(r->c.cpu),
                (long long)r->c.threads, (long long)r->c.rows);
        print_cell(file, 10, "%.1f", step ? r->us[BENCH_STEP].median : 0.0);
        print_cell(file, 10, "%.1f", r->roofline_us[BENCH_STEP]);
        print_cell(file, 10, "%.1f", dense ? r->us[BENCH_DENSE].median : 0.0);
        print_cell(file, 7, "%.2f", step ? bench_ratio(r, BENCH_STEP) : 0.0);
        print_cell(file, 8, "%.2f", step && dense ? r->us[BENCH_DENSE].median / r->us[BENCH_STEP].median : 0.0);
        fprintf(file, "%s%s\n", r->refused[0] ? "  refused" : "", r->cold ? "" : "  warm");
    }
    fprintf(file, "step, dense: median of a step and of attention over all cells; ratio: step to roofline; "
                  "speedup: dense to step\n");
}

/* ------------------------------------------------------------------------------------------------ JSON */

static void set_number(json_t *object, const char *before, const char *after, double value, int is_there) {
    char key[64];
    snprintf(key, sizeof key, "%s%s", before, after);
    json_object_set_new(object, key, is_there ? json_number(value) : json_null());
}

static void set_integer(json_t *object, const char *before, const char *after, int64_t value) {
    char key[64];
    snprintf(key, sizeof key, "%s%s", before, after);
    json_object_set_new(object, key, json_integer(value));
}

/* Of a figure that reads: what it must do, at best and in truth. */
static void set_limits(json_t *object, const bench_result *r, bench_figure figure) {
    const char *name = bench_figure_names[figure];
    int step = figure == BENCH_STEP, timed = !r->is_refused[figure];
    set_integer(object, name, "_bytes", r->bytes[figure]);
    set_integer(object, name, "_macs", r->macs[figure]);
    set_number(object, name, "_gbs", bench_gbs(r, figure), timed);
    set_number(object, step ? "" : name, step ? "roofline_us" : "_roofline_us", r->roofline_us[figure], 1);
    set_number(object, step ? "" : name, step ? "ratio" : "_ratio", bench_ratio(r, figure),
               timed && r->roofline_us[figure] > 0.0);
}

static void set_spread(json_t *object, const char *name, const bench_spread *spread, int is_there) {
    set_number(object, name, "", spread->median, is_there);
    set_number(object, name, "_q1", spread->q1, is_there);
    set_number(object, name, "_q3", spread->q3, is_there);
}

static json_t *result_json(const bench_result *r) {
    static const bench_figure reading[] = {BENCH_SCORE, BENCH_ATTEND, BENCH_STEP, BENCH_DENSE};
    const bench_case *c = &r->c;
    json_t *o = json_pack("{s:I, s:s, s:s, s:b, s:s, s:s, s:I, s:I, s:I}", "n", (json_int_t)c->n, "kv",
                          type_word(c->kv), "keys", type_word(c->keys), "screen", c->screen, "contract",
                          c->contract == QSA_CELLS ? "cells" : "blocks", "cpu", qsa_cpu_name(c->cpu), "threads",
                          (json_int_t)c->threads, "rows", (json_int_t)c->rows, "width", (json_int_t)r->width);
    for (int i = 0; i < BENCH_FIGURES; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s_us", bench_figure_names[i]);
        set_spread(o, name, &r->us[i], !r->is_refused[i]);
    }
    set_spread(o, "read_gbs", &r->read_gbs, 1);
    set_number(o, "read_gbs", "_most", r->read_gbs.most, 1);
    set_spread(o, "float_gmacs", &r->float_gmacs, 1);
    set_spread(o, "integer_gmacs", &r->integer_gmacs, 1);
    set_spread(o, "attend_gmacs", &r->attend_gmacs, 1);
    for (size_t i = 0; i < sizeof reading / sizeof *reading; i++) {
        set_limits(o, r, reading[i]);
    }
    int both = !r->is_refused[BENCH_STEP] && !r->is_refused[BENCH_DENSE];
    set_number(o, "speedup", "", r->us[BENCH_DENSE].median / r->us[BENCH_STEP].median, both);
    set_integer(o, "steps", "", r->us[BENCH_STEP].count);
    set_integer(o, "dense_steps", "", r->us[BENCH_DENSE].count);
    set_integer(o, "places", "", r->places);
    set_integer(o, "cache_bytes", "", r->cache_bytes);
    set_integer(o, "flush_bytes", "", r->flush_bytes);
    set_integer(o, "last_level_cache", "", r->last_level_cache);
    json_object_set_new(o, "cold", json_boolean(r->cold));
    json_object_set_new(o, "refused", r->refused[0] ? json_string(r->refused) : json_null());
    return o;
}

int bench_print_json(const bench_result *results, int64_t count) {
    if (count == 1) {
        return print_json("bench", result_json(results));
    }
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++) {
        json_array_append_new(list, result_json(&results[i]));
    }
    return print_json("bench", json_pack("{s:o}", "results", list));
}

/* ------------------------------------------------------------------------------------------------ CSV */

static void print_field(FILE *file, const json_t *value) {
    if (json_is_real(value)) {
        fprintf(file, "%.9g", json_real_value(value));
    } else if (json_is_integer(value)) {
        fprintf(file, "%lld", (long long)json_integer_value(value));
    } else if (json_is_boolean(value)) {
        fprintf(file, "%d", json_is_true(value));
    } else if (json_is_string(value)) { /* none of ours has a quote; a refusal has commas */
        fprintf(file, "\"%s\"", json_string_value(value));
    }
}

int bench_print_csv(const bench_result *results, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        json_t *object = result_json(&results[i]), *value;
        const char *key, *comma = "";
        if (!object) {
            return complain("bench", "no memory for the result");
        }
        if (i == 0) {
            json_object_foreach(object, key, value) {
                printf("%s%s", comma, key);
                comma = ",";
            }
            printf("\n");
            comma = "";
        }
        json_object_foreach(object, key, value) {
            printf("%s", comma);
            print_field(stdout, value);
            comma = ",";
        }
        printf("\n");
        json_decref(object);
    }
    return fflush(stdout) || ferror(stdout) ? complain("bench", "stdout cannot be written") : EXIT_OK;
}
