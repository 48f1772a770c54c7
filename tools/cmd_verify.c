/* SPDX-License-Identifier: MIT */
/* qsa verify [FILE...]: rows that a reference recorded, decoded again and compared; without a file, the self-test. */
#include "overlap.h"
#include "replay.h"
#include "report.h"
#include "self_test.h"
#include "settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a file's rows came to. Blocks count as different when one of their cells is in only one of two selections. */
typedef struct verdict {
    const char *path;
    qsa_type kv, keys;
    int bf16; /* the reference rounded to bf16 */
    int64_t rows;
    double tolerance; /* of a block's score from the cut, for a near-tie */
    double limit;     /* of gated_rel */
    double least_overlap;
    int64_t wrong;     /* different blocks that are no near-ties */
    int64_t near_ties; /* different blocks that are */
    double id_overlap; /* mean share of the recorded cells that were selected */
    double max_rel;    /* of gated on the recorded cells: largest difference relative to the row's size */
    double out_rel;    /* of out, the same */
    int passed;
} verdict;

/* ------------------------------------------------------------------------------------------------ one row */

typedef struct row_check {
    const float *scores;         /* recorded */
    int64_t block, blocks, last; /* cells a block; complete blocks; the last block seen to differ */
    double cut;                  /* lowest score among the recorded cells' complete blocks */
    verdict *v;
} row_check;

static void judge_cell(void *arg, int32_t cell) {
    row_check *c = arg;
    int64_t block = cell / c->block;
    if (block == c->last) {
        return;
    }
    c->last = block;
    if (block < c->blocks && fabs((double)c->scores[block] - c->cut) <= c->v->tolerance) {
        c->v->near_ties++;
    } else {
        c->v->wrong++;
    }
}

static void check_selection(const replay *p, int64_t row, verdict *v) {
    const recording *r = p->recording;
    const int32_t *want = r->ids + row * r->id_stride;
    int64_t want_count = recording_id_count(r, row);
    row_check check = {
        .scores = r->scores + row * r->score_stride,
        .block = p->shape->block,
        .blocks = p->length / p->shape->block,
        .last = -1,
        .cut = HUGE_VAL,
        .v = v,
    };
    for (int64_t i = 0; i < want_count && want[i] / check.block < check.blocks; i++) {
        check.cut = fmin(check.cut, (double)check.scores[want[i] / check.block]);
    }
    overlap_differences(p->ids, p->id_count, want, want_count, judge_cell, &check);
    v->id_overlap += overlap_share(p->ids, p->id_count, want, want_count) / (double)v->rows;
}

/* The larger one; NaN, once seen, stays. */
static double worse(double a, double b) {
    return isnan(a) || a > b ? a : b;
}

static int check_row(replay *p, int64_t row, verdict *v) {
    const recording *r = p->recording;
    if (replay_advance(p, r->position[row] + 1) || replay_decode(p, NULL, 0)) {
        return EXIT_USAGE;
    }
    check_selection(p, row, v);
    if (replay_decode(p, r->ids + row * r->id_stride, recording_id_count(r, row))) {
        return EXIT_USAGE;
    }
    v->max_rel = worse(v->max_rel, relative_difference(p->gated, r->gated + row * r->gated_size, r->gated_size));
    if (r->out) {
        v->out_rel = worse(v->out_rel, relative_difference(p->out, r->out + row * r->hidden_size, r->hidden_size));
    }
    return EXIT_OK;
}

/* ------------------------------------------------------------------------------------------------ one file */

static void set_limits(const arguments *args, const recording *r, verdict *v) {
    v->path = r->path;
    v->bf16 = recording_is_bf16(r);
    v->rows = r->rows;
    const char *kv = option_text(args, "kv"), *keys = option_text(args, "keys"), *own = v->bf16 ? "bf16" : "f32";
    v->kv = type_named(strcmp(kv, "auto") != 0 ? kv : own);
    v->keys = type_named(strcmp(keys, "auto") != 0 ? keys : own);
    int rounded_keys = v->bf16 || v->keys == QSA_BF16;
    v->tolerance = rounded_keys ? 0.1 : 1e-3;
    v->least_overlap = rounded_keys ? 0.99 : 0.999;
    v->limit = v->kv == QSA_I8_G64 ? 0.02 : v->bf16 || v->kv != QSA_F32 ? 0.01 : 1e-4;
}

static int check_recording(const recording *r) {
    static const char *const names[] = {"rows", "ids", "scores", "gated"};
    const void *const arrays[] = {r->position, r->ids, r->scores, r->gated};
    for (int i = 0; i < 4; i++) {
        if (!arrays[i]) {
            return complain(r->command, "%s has no tensor '%s': expected rows that a reference recorded", r->path,
                            names[i]);
        }
    }
    return r->rows ? EXIT_OK : complain(r->command, "%s: tensor 'rows' is empty: there is nothing to compare", r->path);
}

static int check_sizes(const replay *p) {
    const recording *r = p->recording;
    int64_t blocks = (r->position[r->rows - 1] + 1) / p->shape->block;
    if (r->score_stride < blocks) {
        return complain(r->command, "%s: tensor 'scores' is %lld wide: expected %lld blocks at least", r->path,
                        (long long)r->score_stride, (long long)blocks);
    }
    return EXIT_OK;
}

static int verify_recording(const arguments *args, const recording *r, verdict *v) {
    set_limits(args, r, v);
    replay_settings settings = {
        .kv = v->kv,
        .keys = v->keys,
        .cpu = cpu_named(option_text(args, "cpu")),
        .threads = option_number(args, "threads"),
        .chunk = option_number(args, "chunk"),
        .prefix = option_text(args, "prefix"),
    };
    replay p;
    progress bar = progress_start("qsa verify");
    int failed = replay_open(r, &settings, &p);
    failed = failed ? failed : check_sizes(&p);
    for (int64_t row = 0; !failed && row < r->rows; row++) {
        failed = check_row(&p, row, v);
        progress_step(&bar, r->position[row], r->tokens);
    }
    progress_end(&bar);
    replay_close(&p);
    v->passed = !failed && v->wrong == 0 && v->max_rel <= v->limit && v->out_rel <= v->limit &&
                v->id_overlap >= v->least_overlap;
    return failed;
}

static int verify_file(const arguments *args, const char *path, verdict *v) {
    recording r;
    int failed = recording_open(args->command->name, path, &r);
    failed = failed ? failed : check_recording(&r);
    failed = failed ? failed : verify_recording(args, &r, v);
    v->path = path;
    recording_close(&r);
    return failed;
}

/* ------------------------------------------------------------------------------------------------ printing */

static json_t *verdict_json(const verdict *v) {
    return json_pack("{s:o, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:s, s:s, s:f, s:f, s:f, s:b}", "file",
                     json_text(v->path), "dtype", v->bf16 ? "bf16" : "f32", "rows", (json_int_t)v->rows, "wrong",
                     (json_int_t)v->wrong, "near_ties", (json_int_t)v->near_ties, "max_rel", json_number(v->max_rel),
                     "id_overlap", json_number(v->id_overlap), "out_rel", json_number(v->out_rel), "kv",
                     type_word(v->kv), "keys", type_word(v->keys), "tolerance", v->tolerance, "limit", v->limit,
                     "least_overlap", v->least_overlap, "passed", v->passed);
}

static int print_verdicts_json(const char *command, const verdict *v, int count, int passed) {
    if (count == 1) {
        return print_json(command, verdict_json(v));
    }
    json_t *files = json_array();
    for (int i = 0; i < count; i++) {
        json_array_append_new(files, verdict_json(&v[i]));
    }
    return print_json(command, json_pack("{s:o, s:b}", "files", files, "passed", passed));
}

static void print_verdict(const verdict *v) {
    printf("%s: %s (reference in %s, K/V %s, keys %s, %lld rows)\n", v->path, v->passed ? "passed" : "FAILED",
           v->bf16 ? "bf16" : "f32", type_word(v->kv), type_word(v->keys), (long long)v->rows);
    printf("  selection   %lld blocks wrong (limit 0), %lld near-ties (within %g of the cut); overlap %.5f (at least "
           "%g)\n",
           (long long)v->wrong, (long long)v->near_ties, v->tolerance, v->id_overlap, v->least_overlap);
    printf("  on its ids  gated differs by %.2e, out by %.2e (limit %g)\n", v->max_rel, v->out_rel, v->limit);
}

static int verify_files(const arguments *args) {
    int count = args->operand_count, failed = EXIT_OK, passed = 1;
    verdict *v = take_memory(args->command->name, count, sizeof *v);
    for (int i = 0; !failed && i < count; i++) {
        failed = verify_file(args, args->operands[i], &v[i]);
        passed &= v[i].passed;
        if (!failed && !option_given(args, "json")) {
            print_verdict(&v[i]);
        }
    }
    if (!failed && option_given(args, "json")) {
        failed = print_verdicts_json(args->command->name, v, count, passed);
    }
    free(v);
    if (fflush(stdout)) {
        failed = complain(args->command->name, "stdout cannot be written");
    }
    return failed ? failed : passed ? EXIT_OK : EXIT_CHECK_FAILED;
}

static int run(const arguments *args) {
    return args->operand_count ? verify_files(args) : self_test(args);
}

static const option options[] = {
    {"kv", 0, OPTION_CHOICE, "FORMAT", "auto " KV_CHOICES, 0, 0, "auto",
     "how K and V are stored; auto: as the file's reference did"},
    {"keys", 0, OPTION_CHOICE, "FORMAT", "auto bf16 f32", 0, 0, "auto",
     "how the index keys are stored; auto: as the reference did"},
    OPTION_CPU("auto", "instruction set of the kernels; the self-test tries all there are unless one is given"),
    OPTION_THREADS,
    OPTION_CHUNK,
    OPTION_PREFIX,
    OPTION_JSON,
    OPTION_HELP,
    OPTION_END,
};

static const example examples[] = {
    {"qsa verify", "Test this machine: a needle in 120,000 and 210,000 cells, on every instruction set it has."},
    {"qsa verify data/*.safetensors", "Check the layers that Hugging Face transformers computed."},
    {"qsa verify --kv i8 --json data/qwen4exp_layer_f32.safetensors", "See what int8 K/V changes, as JSON."},
    {NULL, NULL},
};

const subcommand command_verify = {
    .name = "verify",
    .summary = "compare with recorded results, or test this machine",
    .operands = "[FILE...]",
    .least_operands = 0,
    .most_operands = INT32_MAX,
    .description = "Decodes every recorded row of each file twice. On its own selection: a block that only one side "
                   "selected must have a "
                   "score within a tolerance of the cut (a near-tie), else it is wrong. On the recorded selection: the "
                   "attention output "
                   "before and after o_proj must agree within a limit that the K/V format sets.\n"
                   "Without a file it tests this machine at the model's real shape: a planted needle must be found and "
                   "read, cells must "
                   "equal a full sort of the scores, outputs must agree with double precision, and all instruction "
                   "sets and thread counts "
                   "must give the same bits. This takes up to 1 GB of memory.",
    .options = options,
    .examples = examples,
    .run = run,
};
