/* SPDX-License-Identifier: MIT */
/* `qsa bench`: what it prints holds together, it refuses what cannot be true, it counts bytes and multiply-adds. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <qsa/qsa.h>

#include "support/shell.h"
#include "support/tensor_fixture.h"

/* Impossible figures do not come on demand: the sources that judge and print are tested with made-up ones. */
#include "../tools/bench_print.c"
#include "../tools/bench_roofline.c"
#include "../tools/report.c"
#include "../tools/settings.c"

/* ------------------------------------------------------------------------------------------------ running */

/* On a busy machine a figure may well be refused: then again. */
static result bench(const char *rest) {
    char line[3072];
    assert_true(snprintf(line, sizeof line, "'%s' bench %s", QSA_COMMAND, rest) < (int)sizeof line);
    result r = run_shell(line);
    for (int i = 0; i < 5 && r.code == 1; i++) {
        done(&r);
        r = run_shell(line);
    }
    return r;
}

static json_t *bench_json(const char *rest) {
    result r = bench(rest);
    if (r.code) {
        fail_msg("qsa bench %s: exit code %d\n%s%s", rest, r.code, r.out, r.err);
    }
    assert_string_equal(r.err, "");
    json_error_t error;
    json_t *value = json_loads(r.out, JSON_REJECT_DUPLICATES, &error);
    if (!value) {
        fail_msg("qsa bench %s: line %d: %s", rest, error.line, error.text);
    }
    done(&r);
    return value;
}

static double number_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) {
        fail_msg("%s is no number", key);
    }
    return json_number_value(value);
}

static void check_near(const json_t *object, const char *key, double want) {
    double x = number_of(object, key);
    if (!(fabs(x - want) <= 1e-6 * fabs(want))) {
        fail_msg("%s is %.9g, expected %.9g", key, x, want);
    }
}

static const char *text_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value)) {
        fail_msg("%s is no text", key);
    }
    return json_string_value(value);
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* ------------------------------------------------------------------------------------------------ what is printed */

/* Rooflines, rates and ratios follow from the bytes, multiply-adds and medians that stand beside them. */
static void check_arithmetic(const json_t *o) {
    static const char *const spreads[] = {"score_us", "select_us", "attend_us",   "merge_us",      "step_us",
                                          "dense_us", "read_gbs",  "float_gmacs", "integer_gmacs", "attend_gmacs"};
    for (size_t i = 0; i < sizeof spreads / sizeof *spreads; i++) {
        char low[32], high[32];
        snprintf(low, sizeof low, "%s_q1", spreads[i]);
        snprintf(high, sizeof high, "%s_q3", spreads[i]);
        double median = number_of(o, spreads[i]);
        assert_true(median > 0.0 && number_of(o, low) > 0.0);
        assert_true(number_of(o, low) <= median && median <= number_of(o, high));
    }
    static const char *const reading[] = {"score", "attend", "dense"};
    double read = number_of(o, "read_gbs"), sum = 0.0;
    for (size_t i = 0; i < 3; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s_bytes", reading[i]);
        double bytes = number_of(o, key);
        snprintf(key, sizeof key, "%s_macs", reading[i]);
        double macs = number_of(o, key), rate = number_of(o, i ? "attend_gmacs" : "float_gmacs");
        double roofline = larger(bytes / read, macs / rate) * 1e-3;
        snprintf(key, sizeof key, "%s_roofline_us", reading[i]);
        check_near(o, key, roofline);
        sum += i < 2 ? roofline : 0.0;
        snprintf(key, sizeof key, "%s_us", reading[i]);
        double us = number_of(o, key);
        snprintf(key, sizeof key, "%s_gbs", reading[i]);
        check_near(o, key, bytes / us * 1e-3);
        assert_true(number_of(o, key) <= number_of(o, "read_gbs_most"));
        if (bytes > 0.0) {
            snprintf(key, sizeof key, "%s_ratio", reading[i]);
            check_near(o, key, us / roofline);
        }
    }
    check_near(o, "roofline_us", sum);
    check_near(o, "ratio", number_of(o, "step_us") / sum);
    check_near(o, "speedup", number_of(o, "dense_us") / number_of(o, "step_us"));
    assert_true(number_of(o, "steps") >= 11 && number_of(o, "dense_steps") >= 3);
    int cold = number_of(o, "flush_bytes") >= 2 * number_of(o, "last_level_cache");
    assert_int_equal(json_is_true(json_object_get(o, "cold")), cold);
    assert_true(json_is_null(json_object_get(o, "refused")));
}

static void one_case_is_a_flat_object(void **state) {
    (void)state;
    json_t *o = bench_json("--json --n 4099 --seconds 0.05 --threads 2 --kv i8");
    check_arithmetic(o);
    assert_int_equal(number_of(o, "n"), 4099);
    assert_int_equal(number_of(o, "threads"), 2);
    assert_int_equal(number_of(o, "rows"), 1);
    assert_int_equal(number_of(o, "width"), 2051);
    assert_string_equal(text_of(o, "kv"), "i8");
    assert_string_equal(text_of(o, "keys"), "bf16");
    assert_string_equal(text_of(o, "contract"), "blocks");
    assert_int_equal(number_of(o, "score_bytes"), 1024 * 256);
    assert_int_equal(number_of(o, "score_macs"), 1024 * 512);
    assert_int_equal(number_of(o, "attend_bytes"), 2051 * 1056);
    assert_int_equal(number_of(o, "attend_macs"), 2051 * 24 * 512);
    assert_int_equal(number_of(o, "dense_bytes"), 4099 * 1056);
    assert_true(number_of(o, "cache_bytes") >= number_of(o, "places") * 4099 * 1120);
    qsa_context *context;
    assert_int_equal(qsa_open(NULL, &context, NULL), QSA_OK);
    assert_string_equal(text_of(o, "cpu"), qsa_cpu_name(qsa_context_cpu(context)));
    qsa_close(context);
    json_decref(o);
}

/* Half the bytes for the same selection; the copies take (128 + 8) / 4 bytes a cell. */
static void screening_reads_the_copies(void **state) {
    (void)state;
    json_t *o = bench_json("--json -n 32K --screen --seconds 0.05 -t 2"),
           *plain = bench_json("--json -n 32K --seconds 0.05 -t 2");
    check_arithmetic(o);
    assert_true(json_is_true(json_object_get(o, "screen")));
    assert_true(json_is_false(json_object_get(plain, "screen")));
    assert_int_equal(number_of(o, "score_bytes"), 8192 * 136 + 512 * 256);
    assert_int_equal(number_of(plain, "score_bytes"), 8192 * 256);
    assert_int_equal(number_of(o, "cache_bytes") - number_of(plain, "cache_bytes"),
                     number_of(o, "places") * (32768 + 256) * 34);
    assert_int_equal(number_of(o, "attend_bytes"), number_of(plain, "attend_bytes"));
    json_decref(o), json_decref(plain);
}

/* Another level, format, key type, contract and two rows; and too little memory for a cold cache, which it says. */
static void every_option_reaches_the_case(void **state) {
    (void)state;
    json_t *o = bench_json("--json -n 3K --seconds 0.01 -t 1 -r 2 --kv f32 --keys f32 --cpu c -c cells --memory 0.08");
    check_arithmetic(o);
    assert_int_equal(number_of(o, "n"), 3072);
    assert_int_equal(number_of(o, "threads"), 1);
    assert_int_equal(number_of(o, "rows"), 2);
    assert_int_equal(number_of(o, "width"), 2051);
    assert_string_equal(text_of(o, "kv"), "f32");
    assert_string_equal(text_of(o, "keys"), "f32");
    assert_string_equal(text_of(o, "contract"), "cells");
    assert_string_equal(text_of(o, "cpu"), "c");
    assert_int_equal(number_of(o, "score_bytes"), 768 * 512);
    assert_int_equal(number_of(o, "score_macs"), (768 + 767) * 512);
    /* two rows that choose 2,051 of 3,072 cells have between 1,030 and 2,051 in common, each of which is read once */
    assert_in_range((int64_t)number_of(o, "attend_bytes") / 4096, 2051, 3072);
    assert_int_equal(number_of(o, "attend_macs"), 2 * 2051 * 24 * 512);
    assert_int_equal(number_of(o, "dense_bytes"), 3072 * 4096);
    assert_true(number_of(o, "cache_bytes") + number_of(o, "flush_bytes") <= 0.08e9);
    json_decref(o);
}

static int fields_of(const char *line) {
    int fields = 1;
    for (; *line && *line != '\n'; line++) {
        fields += *line == ',';
    }
    return fields;
}

static void csv_has_a_line_for_each_case(void **state) {
    (void)state;
    result r = bench("--csv --n 4096,2560 --kv bf16,i8 --seconds 0.01 --threads 1");
    assert_int_equal(r.code, 0);
    assert_string_equal(r.err, "");
    char *line = r.out;
    int lines = 0, fields = fields_of(line);
    static const char *const starts[] = {"n,kv,keys,screen,", "2560,\"bf16\",", "4096,\"bf16\",", "2560,\"i8\",",
                                         "4096,\"i8\","};
    assert_true(fields > 40);
    for (; *line; line = strchr(line, '\n') + 1, lines++) {
        assert_true(lines < 5);
        assert_int_equal(fields_of(line), fields);
        assert_memory_equal(line, starts[lines], strlen(starts[lines]));
    }
    assert_int_equal(lines, 5);
    done(&r);
}

static void several_cases_are_a_list_and_a_picture(void **state) {
    (void)state;
    char rest[2048];
    char *path = st_path(folder, "b.svg");
    snprintf(rest, sizeof rest, "--json --n 2048,4096,8192 --kv i8,f32 --seconds 0.01 --threads 1 --svg '%s'", path);
    json_t *all = bench_json(rest);
    const json_t *list = json_object_get(all, "results");
    assert_int_equal(json_array_size(list), 6);
    for (size_t i = 0; i < 6; i++) {
        const json_t *o = json_array_get(list, i);
        assert_int_equal(number_of(o, "n"), 2048 << i % 3);
        assert_string_equal(text_of(o, "kv"), i < 3 ? "i8" : "f32");
        assert_int_equal(number_of(o, "score_bytes"), i % 3 ? number_of(o, "n") / 4 * 256 : 0);
    }
    json_decref(all);
    char *picture = read_file(path);
    check_well_formed(picture);
    assert_non_null(strstr(picture, "K/V i8"));
    assert_non_null(strstr(picture, "K/V f32"));
    assert_non_null(strstr(picture, "prefers-color-scheme:dark"));
    int dots = 0;
    for (const char *at = picture; (at = strstr(at, "<circle")); at++) {
        dots++;
    }
    assert_int_equal(dots, 12); /* a step and dense attention for each case */
    assert_null(strstr(picture, "nan"));
    assert_null(strstr(picture, "inf"));
    free(picture), free(path);
}

static void tables_name_every_stage(void **state) {
    (void)state;
    result r = bench("--n 2560,4096 --seconds 0.01 --threads 1");
    assert_int_equal(r.code, 0);
    static const char *const words[] = {"n 2560:", "n 4096:", "score", "select",   "attend",
                                        "merge",   "step",    "dense", "roofline", "speedup"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        assert_non_null(strstr(r.out, words[i]));
    }
    done(&r);
}

/* ------------------------------------------------------------------------------------------------ what is refused */

static void wrong_options_are_named(void **state) {
    (void)state;
    static const char *const refusals[][2] = {
        {"x", "'x'"},
        {"--n 0", "--n is '0'"},
        {"--n 8192,", "--n is '8192,'"},
        {"--n 8k", "--n is '8k'"},
        {"--n 2M5", "--n is '2M5'"},
        {"--n -4", "--n is '-4'"},
        {"--n 9223372036854775807K", "--n is"},
        {"--n 1M --memory 0.5", "--memory"},
        {"--memory 0.001", "no length fits"},
        {"--memory 0", "--memory is '0'"},
        {"--memory 1GB", "--memory is '1GB'"},
        {"--seconds nan", "--seconds is 'nan'"},
        {"--seconds -1", "--seconds is '-1'"},
        {"--kv i8,q4", "--kv is 'i8,q4'"},
        {"--kv ''", "--kv is empty"},
        {"--keys i8", "--keys"},
        {"--cpu sse2", "--cpu is 'sse2'"},
        {"--threads 1025", "--threads is '1025'"},
        {"--rows 0", "--rows is '0'"},
        {"--rows 8 --n 4", "--rows is 8"},
        {"--contract dense", "--contract"},
        {"--json --csv", "--json and --csv"},
        {"--svg /no/such/folder/x.svg", "/no/such/folder/x.svg"},
        {"--cpu avx2,neon", "this machine or this build lacks it"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        result r = bench(refusals[i][0]);
        if (r.code != 2 || *r.out || !strstr(r.err, refusals[i][1])) {
            fail_msg("qsa bench %s: exit code %d, \"%s\" does not name %s", refusals[i][0], r.code, r.err,
                     refusals[i][1]);
        }
        done(&r);
    }
}

/* A case of n = 131,072 with i8 on a machine that reads 20 GB/s and multiplies 100 and 1,000 G/s. */
static bench_result made_up(void) {
    bench_result r = {
        .c = {.n = 131072, .rows = 1, .threads = 2, .kv = QSA_I8_G64, .keys = QSA_BF16, .cpu = QSA_CPU_AVX2},
        .cold = 1,
        .read_gbs = {18, 20, 21, 22, 9},
        .float_gmacs = {100, 100, 100, 100, 9},
        .integer_gmacs = {1000, 1000, 1000, 1000, 9},
        .attend_gmacs = {1000, 1000, 1000, 1000, 9},
    };
    const double us[BENCH_FIGURES] = {500, 10, 300, 10, 830, 8000};
    for (int i = 0; i < BENCH_FIGURES; i++) {
        r.us[i] = (bench_spread){us[i] * 0.9, us[i], us[i] * 1.1, us[i] * 2, 9};
    }
    qsa_shape shape;
    qsa_shape_qwen38_flash_next(&shape);
    bench_count_work(&r, &shape, -1);
    return r;
}

static void work_is_counted_and_bounded(void **state) {
    (void)state;
    bench_result r = made_up();
    bench_judge(&r);
    assert_int_equal(r.bytes[BENCH_SCORE], 32768 * 256);
    assert_int_equal(r.macs[BENCH_SCORE], 32768 * 512);
    assert_int_equal(r.bytes[BENCH_ATTEND], 2048 * 1056);
    assert_int_equal(r.macs[BENCH_ATTEND], 2048 * 24 * 512);
    assert_true(fabs(r.roofline_us[BENCH_SCORE] - 8388608 / 20e3) < 1e-9); /* reading takes longer than 168 us of f32 */
    assert_true(fabs(r.roofline_us[BENCH_ATTEND] - 2162688 / 20e3) < 1e-9);
    assert_true(fabs(r.roofline_us[BENCH_STEP] - (8388608 + 2162688) / 20e3) < 1e-9);
    assert_string_equal(r.refused, "");
    r.attend_gmacs.median = 200; /* now multiplying does */
    bench_judge(&r);
    assert_true(fabs(r.roofline_us[BENCH_ATTEND] - 25165824 / 200e3) < 1e-9);
    assert_true(fabs(r.roofline_us[BENCH_DENSE] - 131072.0 * 24 * 512 / 200e3) < 1e-6);
    /* rows 0 to 16 see 131,056 to 131,072 cells: three readings of the keys, each as long as its last row's */
    r.c.rows = 17;
    qsa_shape shape;
    qsa_shape_qwen38_flash_next(&shape);
    bench_count_work(&r, &shape, 5000);
    assert_int_equal(r.bytes[BENCH_SCORE], (131063 / 4 + 131071 / 4 + 131072 / 4) * 256);
    assert_int_equal(r.bytes[BENCH_ATTEND], 5000 * 1056);
    assert_int_equal(r.bytes[BENCH_DENSE], 131072 * 1056);
}

/* Fault 45: a time in which the bytes cannot have been read came from a cache. It is no figure. */
static void impossible_figures_are_refused(void **state) {
    (void)state;
    static const struct {
        bench_figure figure;
        double us; /* refused below */
        int step_refused;
    } limits[] = {
        {BENCH_SCORE, 8388608 / 22e3, 1}, {BENCH_ATTEND, 2162688 / 22e3, 1}, {BENCH_DENSE, 131072 * 1056 / 22e3, 0}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        bench_result r = made_up();
        const char *name = bench_figure_names[limits[i].figure];
        char key[32];
        snprintf(key, sizeof key, "%s_us", name);
        r.us[limits[i].figure].median = limits[i].us * 1.001;
        bench_judge(&r);
        assert_string_equal(r.refused, "");
        r.us[limits[i].figure].median = limits[i].us * 0.999;
        bench_judge(&r);
        assert_ptr_equal(strstr(r.refused, name), r.refused);
        assert_int_equal(r.is_refused[BENCH_STEP], limits[i].step_refused);
        json_t *o = result_json(&r);
        assert_true(json_is_null(json_object_get(o, key)));
        assert_int_equal(json_is_null(json_object_get(o, "step_us")), limits[i].step_refused);
        assert_true(json_is_null(json_object_get(o, "speedup")));
        assert_string_equal(text_of(o, "refused"), r.refused);
        assert_true(number_of(o, "merge_us") > 0.0);
        json_decref(o);
        char *path = st_path(folder, "table");
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        bench_print_case(file, &r);
        bench_print_overview(file, &r, 1);
        assert_int_equal(fclose(file), 0);
        char *table = read_file(path);
        assert_non_null(strstr(table, "   refused\n"));
        assert_non_null(strstr(table, "refused: "));
        free(table), free(path);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(one_case_is_a_flat_object),
        IN_FOLDER(screening_reads_the_copies),
        IN_FOLDER(every_option_reaches_the_case),
        IN_FOLDER(csv_has_a_line_for_each_case),
        IN_FOLDER(several_cases_are_a_list_and_a_picture),
        IN_FOLDER(tables_name_every_stage),
        IN_FOLDER(wrong_options_are_named),
        IN_FOLDER(work_is_counted_and_bounded),
        IN_FOLDER(impossible_figures_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
