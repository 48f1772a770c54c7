/* SPDX-License-Identifier: MIT */
/* qsa run FILE: decodes rows of a layer and says what each read and took, and how far it is from what is recorded. */
#include "overlap.h"
#include "picture.h"
#include "replay.h"
#include "report.h"
#include "settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const stages[REPLAY_STAGES] = {"score", "select", "attend", "merge"};

typedef struct row_result {
    int64_t position, n, cells, bytes;
    double stage_us[REPLAY_STAGES];
    double gated, out, overlap; /* below 0: nothing is recorded */
} row_result;

/* ------------------------------------------------------------------------------------------------ decoding */

static row_result result_of(const replay *p) {
    const recording *r = p->recording;
    row_result result = {
        .position = p->length - 1,
        .n = p->length,
        .cells = p->id_count,
        .bytes = replay_bytes_read(p, p->length),
        .gated = -1,
        .out = -1,
        .overlap = -1,
    };
    for (int i = 0; i < REPLAY_STAGES; i++) {
        result.stage_us[i] = (double)p->stage_ns[i] / 1000;
    }
    int64_t row = recording_row_of(r, p->length - 1);
    if (row >= 0 && r->gated) {
        result.gated = relative_difference(p->gated, r->gated + row * r->gated_size, r->gated_size);
    }
    if (row >= 0 && r->out) {
        result.out = relative_difference(p->out, r->out + row * r->hidden_size, r->hidden_size);
    }
    if (row >= 0 && r->ids) {
        result.overlap = overlap_share(p->ids, p->id_count, r->ids + row * r->id_stride, recording_id_count(r, row));
    }
    return result;
}

/* The position of row i: a recorded one, or of the last `rows` tokens. */
static int64_t position_of(const recording *r, int recorded, int64_t rows, int64_t i) {
    return recorded ? r->position[i] : r->tokens - rows + i;
}

static int decode_rows(replay *p, int recorded, int64_t rows, row_result *results, picture *drawn) {
    const recording *r = p->recording;
    int64_t end = position_of(r, recorded, rows, rows - 1) + 1;
    progress bar = progress_start("qsa run");
    int failed = EXIT_OK;
    picture_start(drawn, rows, end);
    for (int64_t i = 0; !failed && i < rows; i++) {
        int64_t n = position_of(r, recorded, rows, i) + 1;
        while (!failed && p->length < n) {
            failed = replay_advance(p, n - p->length > 1024 ? p->length + 1024 : n);
            progress_step(&bar, p->length, end);
        }
        failed = failed ? failed : replay_decode(p, NULL, 0);
        if (!failed) {
            results[i] = result_of(p);
            picture_add(drawn, i, n, p->ids, p->id_count);
        }
    }
    progress_end(&bar);
    return failed;
}

/* ------------------------------------------------------------------------------------------------ printing */

static json_t *number_or_null(double x) {
    return x < 0 ? json_null() : json_number(x);
}

static json_t *row_json(const row_result *r) {
    json_t *row = json_pack("{s:I, s:I, s:I, s:I}", "position", (json_int_t)r->position, "n", (json_int_t)r->n,
                            "cells_read", (json_int_t)r->cells, "bytes_read", (json_int_t)r->bytes);
    for (int i = 0; i < REPLAY_STAGES; i++) {
        char key[16];
        snprintf(key, sizeof key, "%s_us", stages[i]);
        json_object_set_new(row, key, json_number(r->stage_us[i]));
    }
    json_object_set_new(row, "gated_rel", number_or_null(r->gated));
    json_object_set_new(row, "out_rel", number_or_null(r->out));
    json_object_set_new(row, "id_overlap", number_or_null(r->overlap));
    return row;
}

static int print_rows_json(const arguments *args, const replay *p, const row_result *results, int64_t count) {
    json_t *rows = json_array();
    for (int64_t i = 0; i < count; i++) {
        json_array_append_new(rows, row_json(&results[i]));
    }
    return print_json(args->command->name,
                      json_pack("{s:o, s:s, s:s, s:s, s:b, s:s, s:s, s:I, s:I, s:I, s:I, s:o}", "file",
                                json_text(p->recording->path), "prefix", qsa_layer_prefix(p->layer), "kv",
                                option_text(args, "kv"), "keys", option_text(args, "keys"), "screen", p->settings.screen, "contract",
                                option_text(args, "contract"), "cpu", qsa_cpu_name(qsa_context_cpu(p->context)),
                                "threads", (json_int_t)qsa_context_threads(p->context), "tokens",
                                (json_int_t)p->recording->tokens, "block", (json_int_t)p->shape->block, "budget",
                                (json_int_t)p->shape->budget, "rows", rows));
}

static void print_share(const char *format, double x) {
    if (x < 0) {
        printf("%10s", "-");
    } else {
        printf(format, x);
    }
}

static int print_rows(const arguments *args, const replay *p, const row_result *results, int64_t count) {
    printf("%s: %lld tokens, K/V %s, keys %s%s, contract %s, %s, %lld threads\n", p->recording->path,
           (long long)p->recording->tokens, option_text(args, "kv"), option_text(args, "keys"),
           p->settings.screen ? " screened" : "", option_text(args, "contract"), qsa_cpu_name(qsa_context_cpu(p->context)),
           (long long)qsa_context_threads(p->context));
    printf("%9s %9s %7s %10s", "position", "n", "cells", "bytes");
    for (int i = 0; i < REPLAY_STAGES; i++) {
        printf(" %6s us", stages[i]);
    }
    printf("%10s%10s%10s\n", "gated", "out", "ids");
    for (int64_t i = 0; i < count; i++) {
        const row_result *r = &results[i];
        printf("%9lld %9lld %7lld %10lld", (long long)r->position, (long long)r->n, (long long)r->cells,
               (long long)r->bytes);
        for (int s = 0; s < REPLAY_STAGES; s++) {
            printf(" %9.1f", r->stage_us[s]);
        }
        print_share("%10.1e", r->gated);
        print_share("%10.1e", r->out);
        print_share("%10.4f", r->overlap);
        printf("\n");
    }
    printf("gated, out: difference from what the file records, relative to the row's size; ids: share of its cells "
           "selected\n");
    return fflush(stdout) ? complain(args->command->name, "stdout cannot be written") : EXIT_OK;
}

static int write_picture(const arguments *args, const replay *p, const picture *drawn) {
    const char *path = option_text(args, "svg");
    char title[512];
    json_t *name = json_text(p->recording->path);
    snprintf(title, sizeof title, "%.300s: contract %s, blocks of %lld cells, budget %lld",
             name ? json_string_value(name) : "", option_text(args, "contract"), (long long)p->shape->block,
             (long long)p->shape->budget);
    json_decref(name);
    FILE *file = fopen(path, "w");
    if (!file) {
        return complain(args->command->name, "--svg is '%s': it cannot be written (%s)", path, strerror(errno));
    }
    int failed = picture_print(file, drawn, title);
    failed |= fclose(file);
    return failed ? complain(args->command->name, "--svg is '%s': writing it failed", path) : EXIT_OK;
}

static int run_recording(const arguments *args, const recording *r, replay *p) {
    int recorded = r->rows > 0 && !option_given(args, "tokens");
    int64_t last = option_number(args, "tokens"), rows = recorded ? r->rows : last < r->tokens ? last : r->tokens;
    row_result *results = take_memory(r->command, rows, sizeof *results);
    picture *drawn = take_memory(r->command, 1, sizeof *drawn);
    int failed = decode_rows(p, recorded, rows, results, drawn);
    if (!failed) {
        failed =
            option_given(args, "json") ? print_rows_json(args, p, results, rows) : print_rows(args, p, results, rows);
    }
    if (!failed && option_given(args, "svg")) {
        failed = write_picture(args, p, drawn);
    }
    free(results), free(drawn);
    return failed;
}

static int run(const arguments *args) {
    replay_settings settings = {
        .kv = type_named(option_text(args, "kv")),
        .keys = type_named(option_text(args, "keys")),
        .cpu = cpu_named(option_text(args, "cpu")),
        .contract = contract_named(option_text(args, "contract")),
        .threads = option_number(args, "threads"),
        .chunk = option_number(args, "chunk"),
        .block = option_number(args, "block"),
        .budget = option_number(args, "budget"),
        .prefix = option_text(args, "prefix"),
        .screen = option_given(args, "screen"),
    };
    recording r;
    replay p = {0};
    int failed = recording_open(args->command->name, args->operands[0], &r);
    if (!failed) {
        failed = replay_open(&r, &settings, &p);
        failed = failed ? failed : run_recording(args, &r, &p);
    }
    replay_close(&p);
    recording_close(&r);
    return failed;
}

static const option options[] = {
    OPTION_KV("i8", "how K and V are stored"),
    OPTION_KEYS("bf16", "how the index keys are stored"),
    {"contract", 'c', OPTION_CHOICE, "NAME", "blocks cells dense", 0, 0, "blocks", "which cells a row may read"},
    {"block", 0, OPTION_CHOICE, "CELLS", "2 4 8", 0, 0, "4", "cells in a block"},
    {"budget", 0, OPTION_INTEGER, "CELLS", NULL, 2, 1 << 30, "2048", "cells that selection may take besides the tail"},
    {"tokens", 'n', OPTION_INTEGER, "N", NULL, 1, INT32_MAX, "8",
     "decode the last N tokens instead of the positions that the file records"},
    {"screen", 0, OPTION_FLAG, NULL, NULL, 0, 0, NULL,
     "rule out most blocks by int8 copies of their keys: the same cells, fewer bytes in long contexts"},
    OPTION_PREFIX,
    OPTION_CPU("auto", "instruction set of the kernels"),
    OPTION_THREADS,
    OPTION_CHUNK,
    {"svg", 0, OPTION_FILE, "FILE", NULL, 0, 0, NULL, "draw which cells each row read, as SVG"},
    OPTION_JSON,
    OPTION_HELP,
    OPTION_END,
};

static const example examples[] = {
    {"qsa run layer.safetensors", "Decode the recorded positions with int8 K/V and print a table."},
    {"qsa run --tokens 64 --svg cells.svg layer.safetensors", "Decode the last 64 tokens and draw what they read."},
    {"qsa run --contract dense --json layer.safetensors", "Read all cells, for comparison; print JSON."},
    {NULL, NULL},
};

const subcommand command_run = {
    .name = "run",
    .summary = "decode rows of one layer and print what each read and took",
    .operands = "FILE",
    .least_operands = 1,
    .most_operands = 1,
    .description = "Runs one attention layer of a safetensors file over the hidden states in its tensor `hidden` "
                   "[tokens][hidden size]: "
                   "every token's cell is appended to a cache, and some tokens are decoded in it.\n"
                   "These are the positions in the tensor `rows` if there is one, else the last N tokens. Where the "
                   "file records what a "
                   "reference got (`gated`, `out`, `ids`), the difference from it is printed. Stage times are of one "
                   "cold call each; "
                   "`qsa bench` measures.",
    .options = options,
    .examples = examples,
    .run = run,
};
