/* SPDX-License-Identifier: MIT */
/* The command `qsa` as users meet it: exit codes, streams, tables, JSON, pictures, completions, checks that must fail. */
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

#define F32_FILE  QSA_DATA_DIR "/qwen4exp_layer_f32.safetensors"
#define BF16_FILE QSA_DATA_DIR "/qwen4exp_layer_bf16.safetensors"
#define SNAPSHOT  QSA_DATA_DIR "/snapshot_v1.qsa"

/* ------------------------------------------------------------------------------------------------ running */

static result run(const char *arguments) {
    char line[3072];
    assert_true(snprintf(line, sizeof line, "'%s' %s", QSA_COMMAND, arguments) < (int)sizeof line);
    return run_shell(line);
}

static void check_code(const result *r, const char *arguments, int code) {
    if (r->code != code) {
        fail_msg("qsa %s: exit code %d, expected %d\n%s%s", arguments, r->code, code, r->out, r->err);
    }
}

/* Exit code `code`, nothing on stderr, and stdout is one JSON value. */
static json_t *run_json(const char *arguments, int code) {
    result r = run(arguments);
    check_code(&r, arguments, code);
    assert_string_equal(r.err, "");
    json_error_t error;
    json_t *value = json_loads(r.out, JSON_REJECT_DUPLICATES, &error);
    if (!value) {
        fail_msg("qsa %s: line %d: %s", arguments, error.line, error.text);
    }
    done(&r);
    return value;
}

static const json_t *key_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!value) {
        fail_msg("there is no key %s", key);
    }
    return value;
}

static double number_of(const json_t *object, const char *key) {
    const json_t *value = key_of(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static const char *text_of(const json_t *object, const char *key) {
    const json_t *value = key_of(object, key);
    assert_true(json_is_string(value));
    return json_string_value(value);
}

/* ------------------------------------------------------------------------------------------------ help */

/* The commands that `qsa --help` lists. */
static names list_commands(void) {
    names n = {0};
    result r = run("--help");
    char *line = strstr(r.out, "\nCommands:\n");
    assert_non_null(line);
    for (line += strlen("\nCommands:\n"); *line == ' '; line = strchr(line, '\n') + 1) {
        if (line[2] != ' ') {
            add_name(&n, line + 2, strcspn(line + 2, " "));
        }
    }
    done(&r);
    assert_true(n.count >= 5);
    return n;
}

/* The long options that a command's help lists. */
static names list_options(const char *command) {
    names n = {0};
    char arguments[64];
    snprintf(arguments, sizeof arguments, "%s --help", command);
    result r = run(arguments);
    char *line = strstr(r.out, "\nOptions:\n"), *end = strstr(r.out, "\nExamples:\n");
    assert_true(line && end);
    for (line = strchr(line + 1, '\n') + 1; line < end; line = strchr(line, '\n') + 1) {
        if (!strncmp(line + 6, "--", 2)) {
            add_name(&n, line + 8, strcspn(line + 8, " \n"));
        }
    }
    done(&r);
    assert_true(n.count >= 1);
    return n;
}

static void version_is_the_librarys(void **state) {
    (void)state;
    result r = run("--version");
    assert_int_equal(r.code, 0);
    assert_string_equal(r.out, "qsa " QSA_VERSION "\n");
    assert_string_equal(r.err, "");
    done(&r);
}

static void each_command_explains_itself(void **state) {
    (void)state;
    names commands = list_commands();
    for (int i = 0; i < commands.count; i++) {
        char asked[64], named[64], usage[64], example[64];
        snprintf(asked, sizeof asked, "%s --help", commands.name[i]);
        snprintf(named, sizeof named, "help %s", commands.name[i]);
        snprintf(usage, sizeof usage, "Usage: qsa %s [OPTION...]", commands.name[i]);
        snprintf(example, sizeof example, "\n  qsa %s", commands.name[i]);
        result a = run(asked), b = run(named);
        check_code(&a, asked, 0);
        check_code(&b, named, 0);
        assert_string_equal(a.out, b.out);
        assert_string_equal(a.err, "");
        assert_ptr_equal(strstr(a.out, usage), a.out);
        assert_non_null(strstr(a.out, "--help"));
        int examples = 0;
        for (char *at = strstr(a.out, "\nExamples:\n"); at && (at = strstr(at + 1, example)); examples++) {
        }
        assert_in_range(examples, 2, 3);
        for (char *line = strtok(a.out, "\n"); line; line = strtok(NULL, "\n")) {
            assert_true(strlen(line) <= 80);
        }
        done(&a), done(&b);
    }
}

/* ------------------------------------------------------------------------------------------------ what is refused */

typedef struct refusal {
    const char *arguments, *said[3]; /* each of them on stderr */
} refusal;

static const refusal refusals[] = {
    {"", {"Usage:"}},
    {"frobnicate", {"'frobnicate'", "--help"}},
    {"--frobnicate", {"'--frobnicate'"}},
    {"help frobnicate", {"'frobnicate'"}},
    {"run", {"FILE is missing"}},
    {"run a b", {"'b'", "FILE"}},
    {"run --wide x", {"'--wide'"}},
    {"run -z x", {"'-z'"}},
    {"run --kv int4 x", {"--kv", "'int4'", "f32 bf16 f16 i8"}},
    {"run --kv= x", {"--kv", "''"}},
    {"run --kv f3 x", {"--kv", "'f3'"}},
    {"run --keys i8 x", {"--keys", "'i8'"}},
    {"run --contract all x", {"--contract", "'all'", "blocks cells dense"}},
    {"run --chunk 48 x", {"--chunk", "'48'", "32 64"}},
    {"run --block 6 x", {"--block", "'6'"}},
    {"run --budget 0 x", {"--budget", "'0'", "2..1073741824"}},
    {"run --tokens 0 x", {"--tokens", "'0'"}},
    {"run --tokens 99999999999999999999 x", {"--tokens", "99999999999999999999"}},
    {"run --tokens -n", {"--tokens", "'-n'"}},
    {"run -n 8x x", {"--tokens", "'8x'"}},
    {"run -n ' 8' x", {"--tokens", "' 8'"}},
    {"run --threads -1 x", {"--threads", "'-1'", "0..1024"}},
    {"run --threads 1025 x", {"--threads", "'1025'"}},
    {"run --cpu sse2 x", {"--cpu", "'sse2'"}},
    {"run --prefix '' x", {"--prefix", "empty"}},
    {"run --svg", {"--svg", "FILE"}},
    {"run --svg --json x", {"--svg", "'--json'"}},
    {"run --json=yes x", {"--json", "'yes'", "no value"}},
    {"run /no/such/file", {"/no/such/file", "No such file"}},
    {"run --budget 2050 --block 8 " F32_FILE, {"budget", "2050"}},
    {"run --prefix model. " F32_FILE, {"model."}},
    {"run --svg /no/such/folder/x.svg -n 1 " F32_FILE, {"--svg", "/no/such/folder/x.svg", "No such file"}},
    {"verify --kv q4 x", {"--kv", "'q4'"}},
    {"verify --threads x", {"--threads", "'x'"}},
    {"verify /no/such/file", {"/no/such/file"}},
    {"info --cpu 386", {"--cpu", "'386'"}},
    {"info x", {"'x'", "options only"}},
    {"inspect", {"FILE is missing"}},
    {"inspect --kv f32 x", {"'--kv'"}},
    {"inspect /no/such/file", {"/no/such/file"}},
    {"completion", {"SHELL is missing"}},
    {"completion tcsh", {"'tcsh'", "bash zsh fish man"}},
};

static void wrong_words_are_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *x = &refusals[i];
        result r = run(x->arguments);
        check_code(&r, x->arguments, 2);
        if (strcmp(x->arguments, "run --svg /no/such/folder/x.svg -n 1 " F32_FILE) != 0) {
            assert_string_equal(r.out, "");
        }
        for (int j = 0; j < 3 && x->said[j]; j++) {
            if (!strstr(r.err, x->said[j])) {
                fail_msg("qsa %s says \"%s\", which does not name %s", x->arguments, r.err, x->said[j]);
            }
        }
        done(&r);
    }
}

/* A level that this machine lacks is refused by name; no machine has both AVX2 and NEON. */
static void a_missing_instruction_set_is_refused(void **state) {
    (void)state;
    int lacking = 0;
    for (int cpu = QSA_CPU_C; cpu <= QSA_CPU_NEON; cpu++) {
        char arguments[64];
        snprintf(arguments, sizeof arguments, "info --cpu %s", qsa_cpu_name((qsa_cpu)cpu));
        result r = run(arguments);
        check_code(&r, arguments, qsa_cpu_available((qsa_cpu)cpu) ? 0 : 2);
        if (r.code == 2) {
            lacking++;
            assert_non_null(strstr(r.err, "--cpu"));
            assert_non_null(strstr(r.err, qsa_cpu_name((qsa_cpu)cpu)));
        }
        done(&r);
    }
    assert_true(lacking > 0);
}

static void full_disks_are_noticed(void **state) {
    (void)state;
    static const char *const lines[] = {
        "info", "info --json", "help", "--version", "inspect " F32_FILE, "completion bash", "run -n 1 " F32_FILE};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char line[2048];
        snprintf(line, sizeof line, "test -w /dev/full || exit 77; '%s' %s >/dev/full", QSA_COMMAND, lines[i]);
        result r = run_shell(line);
        if (r.code == 77) {
            skip();
        }
        check_code(&r, lines[i], 2);
        assert_non_null(strstr(r.err, "stdout"));
        done(&r);
    }
}

/* ------------------------------------------------------------------------------------------------ files */

/* A copy of the f32 file in the test's folder with `count` bytes of a tensor, from `at` on, overwritten. From malloc.
 */
static char *damaged_copy(const char *tensor, int64_t at, const void *bytes, size_t count) {
    qsa_tensors *tensors;
    qsa_tensor_info info;
    assert_int_equal(qsa_tensors_open(F32_FILE, NULL, &tensors, NULL), QSA_OK);
    assert_int_equal(qsa_tensors_find(tensors, tensor, &info, NULL), QSA_OK);
    char *path = st_path(folder, "copy.safetensors"), line[3072];
    snprintf(line, sizeof line, "cat '%s' >'%s'", F32_FILE, path);
    result r = run_shell(line);
    assert_int_equal(r.code, 0);
    done(&r);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)(info.offset + at), SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
    qsa_tensors_close(tensors);
    return path;
}

static void check_refused(const char *command, const char *path, const char *said) {
    char arguments[2048];
    snprintf(arguments, sizeof arguments, "%s '%s'", command, path);
    result r = run(arguments);
    check_code(&r, arguments, 2);
    if (!strstr(r.err, said)) {
        fail_msg("qsa %s says \"%s\", which does not name %s", arguments, r.err, said);
    }
    done(&r);
}

static void bad_files_are_refused(void **state) {
    (void)state;
    char *path = st_path(folder, "x.safetensors");
    st_write_bytes(path, "nothing of the kind", 19);
    check_refused("run", path, "x.safetensors");
    check_refused("verify", path, "x.safetensors");
    check_refused("inspect", path, "x.safetensors");
    st_writer *writer = st_new();
    int64_t shape[] = {2, 4};
    static const float values[8] = {0};
    st_add_f32(writer, "weight", 2, shape, values);
    st_write(writer, path);
    check_refused("run", path, "'hidden'");
    check_refused("verify", path, "'hidden'");
    st_add_f32(writer, "hidden", 2, shape, values);
    st_write(writer, path);
    check_refused("run", path, "make a layer");
    check_refused("verify", path, "'rows'");
    static const int32_t backwards[] = {1, 0};
    st_add(writer, "rows", "I32", 1, shape, backwards, sizeof backwards);
    st_write(writer, path);
    check_refused("run", path, "rows[1] is 0");
    st_free(writer);
    free(path);
    static const int32_t early[] = {3, 1}, late[] = {8200}, twice[] = {0, 0};
    path = damaged_copy("ids", 3 * 2051 * 4, early, sizeof early);
    check_refused("verify", path, "ids[3][1] is 1");
    free(path);
    path = damaged_copy("rows", 39 * 4, late, sizeof late);
    check_refused("verify", path, "rows[39] is 8200");
    free(path);
    path = damaged_copy("rows", 0, twice, sizeof twice);
    check_refused("verify", path, "rows[1] is 0");
    free(path);
}

static void inspect_lists_what_the_file_holds(void **state) {
    (void)state;
    json_t *all = run_json("inspect --json " F32_FILE, 0);
    const json_t *list = key_of(all, "tensors");
    qsa_tensors *tensors;
    assert_int_equal(qsa_tensors_open(F32_FILE, NULL, &tensors, NULL), QSA_OK);
    assert_int_equal(json_array_size(list), qsa_tensors_count(tensors));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *tensor = json_array_get(list, i);
        qsa_tensor_info info;
        assert_int_equal(qsa_tensors_find(tensors, text_of(tensor, "name"), &info, NULL), QSA_OK);
        assert_string_equal(text_of(tensor, "dtype"), info.dtype);
        assert_true(number_of(tensor, "bytes") == (double)info.bytes);
        assert_true(number_of(tensor, "offset") == (double)info.offset);
        assert_int_equal(json_array_size(key_of(tensor, "shape")), info.rank);
        for (int64_t d = 0; d < info.rank; d++) {
            assert_int_equal(json_integer_value(json_array_get(key_of(tensor, "shape"), (size_t)d)), info.shape[d]);
        }
    }
    const json_t *metadata = key_of(json_array_get(key_of(all, "files"), 0), "metadata");
    assert_string_equal(text_of(metadata, "source"), qsa_tensors_metadata(tensors, "source"));
    assert_int_equal(json_object_size(metadata), 4);
    qsa_tensors_close(tensors);
    json_decref(all);
    result r = run("inspect " F32_FILE);
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "self_attn.q_proj.weight"));
    assert_non_null(strstr(r.out, "[12288 64]"));
    assert_non_null(strstr(r.out, "rope_theta: 1e7"));
    done(&r);
}

static void inspect_shows_a_snapshot(void **state) {
    (void)state;
    json_t *all = run_json("inspect --json " SNAPSHOT, 0);
    const json_t *shape = key_of(all, "shape");
    assert_int_equal(number_of(all, "snapshot_version"), 1);
    assert_int_equal(number_of(all, "layers"), 2);
    assert_int_equal(number_of(all, "longest"), 37);
    assert_int_equal(number_of(all, "shortest"), 36);
    assert_int_equal(number_of(all, "unkeyed"), 1);
    assert_int_equal(number_of(all, "rope_dims"), 16);
    assert_true(number_of(all, "bytes") > 0 && number_of(all, "rope_theta") > 0 && number_of(all, "eps") > 0);
    assert_string_equal(text_of(all, "file"), SNAPSHOT);
    assert_string_equal(text_of(all, "kv"), "i8_g64");
    assert_string_equal(text_of(all, "keys"), "bf16");
    assert_int_equal(number_of(shape, "head_dim"), 64);
    assert_int_equal(number_of(shape, "budget"), 32);
    json_decref(all);
    result r = run("inspect " SNAPSHOT);
    check_code(&r, "inspect " SNAPSHOT, 0);
    static const char *const said[] = {"format version 1", "37 in the longest layer, 36 in the shortest", "i8_g64", "bf16",
                                       "1 with cells without index keys"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        if (!strstr(r.out, said[i])) {
            fail_msg("\"%s\" does not say \"%s\"", r.out, said[i]);
        }
    }
    done(&r);
    char *path = st_path(folder, "x.qsa"), line[3072];
    snprintf(line, sizeof line, "head -c 20000 '%s' >'%s'", SNAPSHOT, path);
    r = run_shell(line);
    check_code(&r, line, 0);
    done(&r);
    check_refused("inspect", path, "truncated at byte 20000");
    snprintf(line, sizeof line, "{ head -c 20000 '%s'; printf '\\001'; tail -c +20002 '%s'; } >'%s'", SNAPSHOT, SNAPSHOT, path);
    r = run_shell(line);
    check_code(&r, line, 0);
    done(&r);
    check_refused("inspect", path, "checksum");
    free(path);
}

static void info_says_what_is_here(void **state) {
    (void)state;
    qsa_context *context;
    qsa_shape shape;
    qsa_shape_qwen38_flash_next(&shape);
    assert_int_equal(qsa_open(NULL, &context, NULL), QSA_OK);
    json_t *info = run_json("info --json", 0);
    assert_string_equal(text_of(info, "version"), QSA_VERSION);
    assert_string_equal(text_of(info, "cpu"), qsa_cpu_name(qsa_context_cpu(context)));
    const json_t *kernels = key_of(info, "kernels"), *bytes = key_of(info, "bytes_per_cell");
    size_t count = 0;
    for (; qsa_context_kernel(context, (int64_t)count); count++) {
        assert_string_equal(json_string_value(json_array_get(kernels, count)),
                            qsa_context_kernel(context, (int64_t)count));
    }
    assert_int_equal(json_array_size(kernels), count);
    assert_int_equal(number_of(bytes, "i8"), qsa_bytes_per_cell(&shape, QSA_I8_G64, QSA_BF16));
    assert_int_equal(number_of(bytes, "f32"), qsa_bytes_per_cell(&shape, QSA_F32, QSA_BF16));
    assert_int_equal(number_of(bytes, "f16"), qsa_bytes_per_cell(&shape, QSA_F16, QSA_BF16));
    assert_int_equal(number_of(bytes, "bf16"), qsa_bytes_per_cell(&shape, QSA_BF16, QSA_BF16));
    json_decref(info);
    qsa_close(context);
    result r = run("info");
    assert_non_null(strstr(r.out, QSA_VERSION));
    assert_non_null(strstr(r.out, "1120"));
    done(&r);
}

/* ------------------------------------------------------------------------------------------------ run */

static void run_prints_each_recorded_row(void **state) {
    (void)state;
    char arguments[2048];
    char *svg = st_path(folder, "<&.svg");
    snprintf(arguments, sizeof arguments, "run --json --keys f32 --svg '%s' " F32_FILE, svg);
    json_t *all = run_json(arguments, 0);
    const json_t *rows = key_of(all, "rows");
    qsa_shape shape;
    qsa_shape_qwen38_flash_next(&shape);
    assert_int_equal(json_array_size(rows), 40);
    for (size_t i = 0; i < 40; i++) {
        const json_t *row = json_array_get(rows, i);
        int64_t n = (int64_t)number_of(row, "n"), cells = qsa_width(&shape, QSA_BLOCKS, n);
        assert_int_equal(number_of(row, "position"), n - 1);
        assert_int_equal(number_of(row, "cells_read"), cells);
        assert_int_equal(number_of(row, "bytes_read"), cells * 1056 + (n > 2051 ? n / 4 * 512 : 0));
        assert_true(number_of(row, "attend_us") > 0 && number_of(row, "merge_us") > 0);
        assert_true(number_of(row, "id_overlap") > 0.998);
        if (number_of(row, "id_overlap") >= 1) {
            assert_true(number_of(row, "gated_rel") < 0.02 && number_of(row, "out_rel") < 0.03);
        }
    }
    json_decref(all);
    char *picture = read_file(svg);
    assert_in_range(strlen(picture), 2000, 200000);
    check_well_formed(picture);
    free(picture), free(svg);
}

static void run_decodes_the_last_tokens(void **state) {
    (void)state;
    char arguments[2048];
    char *svg = st_path(folder, "x.svg");
    snprintf(arguments, sizeof arguments, "run -n100 --kv=i8 -c cells --threads 1 --chunk 32 --svg '%s' " BF16_FILE,
             svg);
    result r = run(arguments);
    check_code(&r, arguments, 0);
    assert_string_equal(r.err, "");
    int lines = 0;
    for (const char *c = r.out; (c = strchr(c, '\n')); c++) {
        lines++;
    }
    assert_int_equal(lines, 103); /* what ran, the head, the rows, what the last columns mean */
    assert_non_null(strstr(r.out, "     8198      8199    2051"));
    done(&r);
    char *picture = read_file(svg);
    assert_in_range(strlen(picture), 20000, 200000);
    check_well_formed(picture);
    free(picture), free(svg);
    json_t *all = run_json("run --json -n 2 --contract dense --budget 64 --block 2 " F32_FILE, 0);
    const json_t *row = json_array_get(key_of(all, "rows"), 1);
    assert_int_equal(json_array_size(key_of(all, "rows")), 2);
    assert_int_equal(number_of(row, "cells_read"), 8200);
    assert_int_equal(number_of(row, "bytes_read"), 8200 * 1056);
    json_decref(all);
    all = run_json("run --json -n 1 --budget 64 --block 8 " F32_FILE, 0);
    row = json_array_get(key_of(all, "rows"), 0);
    assert_int_equal(number_of(row, "cells_read"), 64);
    assert_int_equal(number_of(row, "bytes_read"), 64 * 1056 + 8200 / 8 * 256);
    json_decref(all);
}

/* ------------------------------------------------------------------------------------------------ verify */

static void check_verdict(const json_t *v, const char *kv, const char *keys, double limit, double overlap) {
    assert_int_equal(number_of(v, "rows"), 40);
    assert_int_equal(number_of(v, "wrong"), 0);
    assert_true(number_of(v, "max_rel") > 0 && number_of(v, "max_rel") <= limit);
    assert_true(number_of(v, "out_rel") > 0 && number_of(v, "out_rel") <= limit);
    assert_true(number_of(v, "limit") == limit);
    assert_true(number_of(v, "id_overlap") >= overlap && number_of(v, "id_overlap") <= 1);
    assert_true(number_of(v, "near_ties") >= 0 && number_of(v, "tolerance") > 0);
    assert_string_equal(text_of(v, "kv"), kv);
    assert_string_equal(text_of(v, "keys"), keys);
    assert_true(json_is_true(key_of(v, "passed")));
    text_of(v, "file");
}

static void the_golden_layers_verify(void **state) {
    (void)state;
    json_t *v = run_json("verify --json " F32_FILE, 0);
    check_verdict(v, "f32", "f32", 1e-4, 0.9999);
    json_decref(v);
    v = run_json("verify --json " BF16_FILE, 0);
    check_verdict(v, "bf16", "bf16", 0.01, 0.99);
    json_decref(v);
}

static void int8_changes_the_output_only(void **state) {
    (void)state;
    json_t *v = run_json("verify --json --kv i8 " F32_FILE " " BF16_FILE, 0);
    const json_t *files = key_of(v, "files");
    assert_int_equal(json_array_size(files), 2);
    assert_true(json_is_true(key_of(v, "passed")));
    check_verdict(json_array_get(files, 0), "i8", "f32", 0.02, 0.9999);
    check_verdict(json_array_get(files, 1), "i8", "bf16", 0.02, 0.99);
    json_decref(v);
    result r = run("verify --kv i8 --keys bf16 --cpu c --threads 1 " F32_FILE);
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "passed"));
    done(&r);
}

/* Row 30 of the copy: its last cell replaced by the first that is missing; row 2: an output that nothing gave. */
static void wrong_results_fail_the_check(void **state) {
    (void)state;
    enum { ROW = 30, WIDTH = 2051 };
    int32_t *ids = calloc(40 * WIDTH, sizeof *ids);
    char arguments[2048];
    qsa_tensors *tensors;
    assert_int_equal(qsa_tensors_open(F32_FILE, NULL, &tensors, NULL), QSA_OK);
    assert_int_equal(qsa_tensors_read_i32(tensors, "ids", ids, 40 * WIDTH, NULL), QSA_OK);
    qsa_tensors_close(tensors);
    int32_t *row = ids + ROW * WIDTH;
    int gap = 0;
    while (row[gap] == gap) {
        gap++;
    }
    assert_true(gap > 0 && gap < 2000);
    row[gap - 1] = gap;
    char *path = damaged_copy("ids", 0, ids, 40 * WIDTH * sizeof *ids);
    snprintf(arguments, sizeof arguments, "verify --kv i8 --json '%s'", path);
    json_t *v = run_json(arguments, 1);
    assert_int_equal(number_of(v, "wrong"), 1);
    assert_true(json_is_false(key_of(v, "passed")));
    json_decref(v);
    free(path), free(ids);
    static const float off = 3;
    path = damaged_copy("gated", 2 * 6144 * 4, &off, sizeof off);
    snprintf(arguments, sizeof arguments, "verify --kv i8 '%s'", path);
    result r = run(arguments);
    check_code(&r, arguments, 1);
    assert_non_null(strstr(r.out, "FAILED"));
    done(&r);
    free(path);
}

static void the_self_test_covers_this_machine(void **state) {
    (void)state;
    json_t *all = run_json("verify --json", 0);
    const json_t *list = key_of(all, "self_test");
    assert_true(json_is_true(key_of(all, "passed")));
    for (int cpu = QSA_CPU_C; cpu <= QSA_CPU_NEON; cpu++) {
        int seen[2][2] = {{0}};
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *check = json_array_get(list, i);
            int64_t n = (int64_t)number_of(check, "n"), needle = (int64_t)number_of(check, "needle");
            assert_true((n == 120000 || n == 210000) && needle > 0 && needle < n);
            assert_true(json_is_true(key_of(check, "ok")));
            if (!strcmp(text_of(check, "cpu"), qsa_cpu_name((qsa_cpu)cpu))) {
                seen[n == 210000][!strcmp(text_of(check, "kv"), "i8")]++;
            }
        }
        for (int i = 0; i < 4; i++) {
            assert_int_equal(seen[i / 2][i % 2] > 0, qsa_cpu_available((qsa_cpu)cpu));
        }
    }
    json_decref(all);
}

/* ------------------------------------------------------------------------------------------------ completion */

static void completions_know_every_option(void **state) {
    (void)state;
    static const struct {
        const char *kind, *before;
    } kinds[] = {{"bash", "--"}, {"zsh", "--"}, {"fish", "-l "}, {"man", "\\-\\-"}};
    names commands = list_commands();
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char arguments[64], word[64];
        snprintf(arguments, sizeof arguments, "completion %s", kinds[k].kind);
        result r = run(arguments);
        check_code(&r, arguments, 0);
        for (int i = 0; i < commands.count; i++) {
            names options = list_options(commands.name[i]);
            assert_true(has_word(r.out, commands.name[i]));
            for (int j = 0; j < options.count; j++) {
                snprintf(word, sizeof word, "%s%s", kinds[k].before, options.name[j]);
                if (!has_word(r.out, word)) {
                    fail_msg("completion %s lacks %s of %s", kinds[k].kind, word, commands.name[i]);
                }
            }
        }
        done(&r);
    }
}

static void bash_completes(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"qsa ver", "verify"},
        {"qsa verify --kv ", "auto f32 bf16 f16 i8"},
        {"qsa run --contract d", "dense"},
        {"qsa run --contr", "--contract"},
        {"qsa completion z", "zsh"},
        {"qsa help insp", "inspect"},
        {"qsa run -n ", ""},
    };
    result shell = run_shell("bash --version");
    if (shell.code) {
        skip();
    }
    done(&shell);
    char line[3072];
    snprintf(line, sizeof line, "'%s' completion bash >'%s/c.sh' && bash -n '%s/c.sh'", QSA_COMMAND, folder, folder);
    result r = run_shell(line);
    check_code(&r, "completion bash", 0);
    assert_string_equal(r.err, "");
    done(&r);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *last = strrchr(cases[i][0], ' ');
        snprintf(line, sizeof line,
                 "bash -c '. \"%s/c.sh\"; COMP_WORDS=(%.*s \"%s\"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _qsa; "
                 "echo ${COMPREPLY[@]}'",
                 folder, (int)(last - cases[i][0]), cases[i][0], last + 1);
        r = run_shell(line);
        r.out[strcspn(r.out, "\n")] = '\0';
        assert_string_equal(r.out, cases[i][1]);
        done(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(version_is_the_librarys),
        IN_FOLDER(each_command_explains_itself),
        IN_FOLDER(wrong_words_are_named),
        IN_FOLDER(a_missing_instruction_set_is_refused),
        IN_FOLDER(full_disks_are_noticed),
        IN_FOLDER(bad_files_are_refused),
        IN_FOLDER(inspect_lists_what_the_file_holds),
        IN_FOLDER(inspect_shows_a_snapshot),
        IN_FOLDER(info_says_what_is_here),
        IN_FOLDER(run_prints_each_recorded_row),
        IN_FOLDER(run_decodes_the_last_tokens),
        IN_FOLDER(the_golden_layers_verify),
        IN_FOLDER(int8_changes_the_output_only),
        IN_FOLDER(wrong_results_fail_the_check),
        IN_FOLDER(the_self_test_covers_this_machine),
        IN_FOLDER(completions_know_every_option),
        IN_FOLDER(bash_completes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
