/* SPDX-License-Identifier: MIT */
/*
 * The self-test. For each K/V format and needle qsa_decode() gives a row; then, on every level and with one and all
 * threads, the four stages run on the same cache, and must give that row's bits, a full sort's selection, and double
 * precision's numbers.
 */
#include "self_test.h"

#include "haystack.h"
#include "report.h"
#include "settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct check {
    qsa_cpu cpu;
    int64_t threads, n, needle;
    qsa_type kv;
    int found;     /* the needle's cells were selected */
    int selection; /* ids are those of a full sort of the scores */
    int bits;      /* ids and output are qsa_decode()'s */
    double score_error, error, needle_error;
    double limit, needle_limit;
    int ok;
} check;

enum { FORMATS = 2, CHECKS_MAX = FORMATS * NEEDLES * QSA_CPU_NEON * 2 };
static const qsa_type formats[FORMATS] = {QSA_I8_G64, QSA_F32};

/* Of a row: what decode gave, what double precision gives from the same cells, and what the stages give. */
typedef struct row {
    const haystack *h;
    const needle *x;
    int64_t chunk, parts, id_count, blocks;
    int32_t *decoded_ids, *ids, *sorted_ids; /* [id_count] */
    float *decoded, *out;                    /* [q_heads][head_dim] */
    double *want;                            /* [q_heads][head_dim] */
    float *scores, *partials;
    qsa_kv kv;
    qsa_keys keys;
} row;

typedef struct self_test_run {
    const arguments *args;
    check checks[CHECKS_MAX];
    int count;
    progress bar;
    int64_t steps, all_steps;
} self_test_run;

static const char *const command_name = "verify";

static int64_t out_size(const row *r) {
    return r->h->shape.q_heads * r->h->shape.head_dim;
}

/* ------------------------------------------------------------------------------------------------ double precision */

/* K or V of a cell and KV head as f32, by the view's strides; x has head_dim places. */
static void read_head(const row *r, int is_v, int64_t cell, int64_t head, float *x) {
    const qsa_kv *kv = &r->kv;
    int64_t page = kv->pages[cell / kv->page_cells], in_page = cell % kv->page_cells;
    const char *values = is_v ? kv->v : kv->k;
    const char *scales = (const char *)(is_v ? kv->v_scale : kv->k_scale);
    values += page * kv->page_stride + in_page * kv->cell_stride + head * kv->head_stride;
    if (scales) {
        scales += page * kv->scale_page_stride + in_page * kv->scale_cell_stride + head * kv->scale_head_stride;
    }
    (void)qsa_kv_decode(kv->type, 1, r->h->shape.head_dim / 64, values, (const uint16_t *)(const void *)scales, x,
                        NULL);
}

static double dot(const float *a, const float *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)a[i] * (double)b[i];
    }
    return sum;
}

/* One head: softmax over the decoded ids, K and V [id_count][head_dim] of its KV head; times the gate's sigmoid. */
static void attend_head(const row *r, int64_t head, const float *k, const float *v, double *weights) {
    int64_t dim = r->h->shape.head_dim;
    const float *q = r->x->q + head * dim, *gate = r->x->gate + head * dim;
    double *want = r->want + head * dim, most = -HUGE_VAL, sum = 0;
    for (int64_t i = 0; i < r->id_count; i++) {
        weights[i] = dot(q, k + i * dim, dim) * (double)r->h->shape.scale;
        most = fmax(most, weights[i]);
    }
    memset(want, 0, (size_t)dim * sizeof *want);
    for (int64_t i = 0; i < r->id_count; i++) {
        double weight = exp(weights[i] - most);
        sum += weight;
        for (int64_t d = 0; d < dim; d++) {
            want[d] += weight * (double)v[i * dim + d];
        }
    }
    for (int64_t d = 0; d < dim; d++) {
        want[d] /= sum * (1 + exp(-(double)gate[d]));
    }
}

static void attend_in_double(row *r) {
    const qsa_shape *s = &r->h->shape;
    int64_t dim = s->head_dim, group = s->q_heads / s->kv_heads;
    float *k = take_memory(command_name, r->id_count * dim, sizeof *k),
          *v = take_memory(command_name, r->id_count * dim, sizeof *v);
    double *weights = take_memory(command_name, r->id_count, sizeof *weights);
    for (int64_t g = 0; g < s->kv_heads; g++) {
        for (int64_t i = 0; i < r->id_count; i++) {
            read_head(r, 0, r->decoded_ids[i], g, k + i * dim);
            read_head(r, 1, r->decoded_ids[i], g, v + i * dim);
        }
        for (int64_t head = g * group; head < (g + 1) * group; head++) {
            attend_head(r, head, k, v, weights);
        }
    }
    free(k), free(v), free(weights);
}

/* Channel i of block b's key in tiles of bf16: [index_dim / 2][16 blocks][2]. */
static float read_key(const row *r, int64_t b, int64_t i) {
    const qsa_keys *keys = &r->keys;
    int64_t in_page = b % keys->page_blocks, tile = in_page / 16, dim = r->h->shape.index_dim;
    const char *page = (const char *)keys->data + keys->pages[b / keys->page_blocks] * keys->page_stride;
    uint16_t half;
    float value;
    memcpy(&half, page + (((tile * (dim / 2) + i / 2) * 16 + in_page % 16) * 2 + i % 2) * 2, sizeof half);
    uint32_t bits = (uint32_t)half << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Largest difference of scores from double precision, relative to 1 and above: of every 61st block, and the needle's.
 */
static double score_error(const row *r) {
    const qsa_shape *s = &r->h->shape;
    double worst = 0;
    float *key = take_memory(command_name, s->index_dim, sizeof *key);
    for (int64_t at = -1; at < r->blocks; at += at < 0 ? 1 : 61) {
        int64_t b = at < 0 ? r->x->cell / s->block : at;
        double sum = 0;
        for (int64_t i = 0; i < s->index_dim; i++) {
            key[i] = read_key(r, b, i);
        }
        for (int64_t head = 0; head < s->index_heads; head++) {
            sum += fmax(0, dot(r->x->iq + head * s->index_dim, key, s->index_dim));
        }
        sum *= (double)s->index_scale;
        double error = fabs((double)r->scores[b] - sum) / fmax(1, sum);
        worst = error <= worst ? worst : error;
    }
    free(key);
    return worst;
}

/* ------------------------------------------------------------------------------------------------ a full sort */

typedef struct ranked {
    float score;
    int32_t block;
} ranked;

/* Higher scores first; among equals the lower block. */
static int by_rank(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score) - (x->score > y->score)
                                : (x->block > y->block) - (x->block < y->block);
}

static int by_cell(const void *a, const void *b) {
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void select_by_sorting(row *r) {
    int64_t block = r->h->shape.block, most = r->h->shape.budget / block, count = 0;
    ranked *all = take_memory(command_name, r->blocks, sizeof *all);
    for (int64_t b = 0; b < r->blocks; b++) {
        all[b] = (ranked){r->scores[b], (int32_t)b};
    }
    qsort(all, (size_t)r->blocks, sizeof *all, by_rank);
    for (int64_t i = 0; i < most * block; i++) {
        r->sorted_ids[count++] = all[i / block].block * (int32_t)block + (int32_t)(i % block);
    }
    for (int64_t cell = r->blocks * block; cell < r->x->n; cell++) {
        r->sorted_ids[count++] = (int32_t)cell;
    }
    qsort(r->sorted_ids, (size_t)count, sizeof *r->sorted_ids, by_cell);
    free(all);
}

/* ------------------------------------------------------------------------------------------------ the row */

static int decode_row(row *r) {
    const haystack *h = r->h;
    size_t bytes = 0;
    qsa_error error;
    if (qsa_plan(h->cache, QSA_BLOCKS, 1, r->x->n, r->chunk, 1, &bytes, &error)) {
        return complain_library(command_name, "the self-test's plan", &error);
    }
    qsa_item item = {
        .sequence = h->sequence,
        .rows = 1,
        .q = r->x->q,
        .gate = r->x->gate,
        .iq = r->x->iq,
        .out = r->decoded,
        .id_stride = r->id_count,
        .ids_out = r->decoded_ids,
    };
    QSA_INIT(qsa_decode_args, args);
    args.items = &item;
    args.item_count = 1;
    args.chunk = r->chunk;
    args.fold = 1;
    args.workspace = take_memory(command_name, (int64_t)bytes, 1);
    args.workspace_bytes = bytes;
    qsa_status status = qsa_decode(h->cache, &args, &error);
    free(args.workspace);
    return status ? complain_library(command_name, "the self-test's decode", &error) : EXIT_OK;
}

static void free_row(row *r) {
    free(r->decoded_ids), free(r->ids), free(r->sorted_ids), free(r->decoded), free(r->out);
    free(r->want), free(r->scores), free(r->partials);
}

static int make_row(const haystack *h, const needle *x, int64_t chunk, row *r) {
    const qsa_shape *s = &h->shape;
    *r = (row){.h = h, .x = x, .chunk = chunk, .blocks = x->n / s->block, .id_count = qsa_width(s, QSA_BLOCKS, x->n)};
    r->parts = (r->id_count + chunk - 1) / chunk;
    r->decoded_ids = take_memory(command_name, r->id_count, sizeof(int32_t));
    r->ids = take_memory(command_name, r->id_count, sizeof(int32_t));
    r->sorted_ids = take_memory(command_name, r->id_count, sizeof(int32_t));
    r->decoded = take_memory(command_name, out_size(r), sizeof(float));
    r->out = take_memory(command_name, out_size(r), sizeof(float));
    r->want = take_memory(command_name, out_size(r), sizeof(double));
    r->scores = take_memory(command_name, r->blocks + 1, sizeof(float));
    r->partials = take_memory(command_name, r->parts * s->q_heads * (s->head_dim + 2), sizeof(float));
    qsa_error error;
    if (qsa_sequence_kv(h->sequence, 0, &r->kv, &error) || qsa_sequence_keys(h->sequence, 0, &r->keys, &error)) {
        return complain_library(command_name, "the self-test's cache", &error);
    }
    return decode_row(r);
}

/* score > select > attend > merge, each by its own call. */
static int run_stages(qsa_context *context, row *r) {
    const qsa_shape *s = &r->h->shape;
    qsa_error error;
    int64_t id_count = 0;
    QSA_INIT(qsa_score_args, score);
    score.iq = r->x->iq;
    score.rows = 1;
    score.n = &r->x->n;
    score.keys = &r->keys;
    score.scores = r->scores;
    score.score_stride = r->blocks + 1;
    QSA_INIT(qsa_select_args, select);
    select.scores = r->scores;
    select.score_stride = r->blocks + 1;
    select.rows = 1;
    select.n = &r->x->n;
    select.ids = r->ids;
    select.id_stride = r->id_count;
    select.n_ids = &id_count;
    QSA_INIT(qsa_attend_args, attend);
    attend.q = r->x->q;
    attend.rows = 1;
    attend.ids = r->ids;
    attend.id_stride = r->id_count;
    attend.n_ids = &id_count;
    attend.kv = &r->kv;
    attend.chunk = r->chunk;
    attend.partials = r->partials;
    attend.parts = r->parts;
    QSA_INIT(qsa_merge_args, merge);
    merge.partials = r->partials;
    merge.parts = r->parts;
    merge.rows = 1;
    merge.gate = r->x->gate;
    merge.out = r->out;
    if (qsa_score(context, s, &score, &error) || qsa_select(context, s, &select, &error) ||
        qsa_attend(context, s, &attend, &error) || qsa_merge(context, s, &merge, &error)) {
        return complain_library(command_name, "the self-test's stages", &error);
    }
    return EXIT_OK;
}

/* ------------------------------------------------------------------------------------------------ judging */

/* Largest difference from double precision, relative to the largest value of the same head. */
static double output_error(const row *r) {
    int64_t dim = r->h->shape.head_dim;
    double worst = 0;
    for (int64_t first = 0; first < out_size(r); first += dim) {
        double difference = 0, size = 0;
        for (int64_t i = first; i < first + dim; i++) {
            double d = fabs((double)r->out[i] - r->want[i]);
            difference = d <= difference ? difference : d;
            size = fmax(size, fabs(r->want[i]));
        }
        worst = difference / size <= worst ? worst : difference / size;
    }
    return worst;
}

/* Largest difference of the heads that look for the needle from its V times the sigmoid of the gate; V is within -1..1.
 */
static double needle_error(const row *r) {
    const qsa_shape *s = &r->h->shape;
    int64_t group = s->q_heads / s->kv_heads;
    double worst = 0;
    for (int64_t head = 0; head < s->q_heads; head++) {
        for (int64_t d = 0; (head % group) % 2 == 0 && d < s->head_dim; d++) {
            int64_t at = head * s->head_dim + d;
            double v = (double)r->x->v[head / group * s->head_dim + d];
            double error = fabs((double)r->out[at] - v / (1 + exp(-(double)r->x->gate[at])));
            worst = error <= worst ? worst : error;
        }
    }
    return worst;
}

static int has_needle(const row *r) {
    int64_t seen = 0;
    for (int64_t i = 0; i < r->id_count; i++) {
        seen += r->ids[i] >= r->x->cell && r->ids[i] < r->x->cell + r->h->shape.block;
    }
    return seen == r->h->shape.block;
}

static check judge(row *r, const qsa_context *context) {
    check c = {
        .cpu = qsa_context_cpu(context),
        .threads = qsa_context_threads(context),
        .n = r->x->n,
        .needle = r->x->cell,
        .kv = r->kv.type,
        .limit = r->kv.type == QSA_F32 ? 1e-4 : 1e-3,
        .needle_limit = r->kv.type == QSA_F32 ? 1e-4 : 1.0 / 127, /* half a step of int8, and as much again */
    };
    size_t id_bytes = (size_t)r->id_count * sizeof(int32_t), out_bytes = (size_t)out_size(r) * sizeof(float);
    select_by_sorting(r);
    c.found = has_needle(r);
    c.selection = !memcmp(r->ids, r->sorted_ids, id_bytes);
    c.bits = !memcmp(r->ids, r->decoded_ids, id_bytes) && !memcmp(r->out, r->decoded, out_bytes);
    c.score_error = score_error(r);
    c.error = output_error(r);
    c.needle_error = needle_error(r);
    c.ok = c.found && c.selection && c.bits && c.score_error <= 1e-5 && c.error <= c.limit &&
           c.needle_error <= c.needle_limit;
    return c;
}

/* ------------------------------------------------------------------------------------------------ all of it */

static int check_level(self_test_run *t, row *r, qsa_cpu cpu) {
    int64_t all = option_number(t->args, "threads");
    for (int i = 0; i < 2; i++) {
        qsa_context *context = open_context(command_name, cpu, i ? all : 1);
        if (!context) {
            return EXIT_USAGE;
        }
        int seen = i && qsa_context_threads(context) == 1, failed = seen ? EXIT_OK : run_stages(context, r);
        if (!failed && !seen) {
            t->checks[t->count++] = judge(r, context);
        }
        qsa_close(context);
        if (failed) {
            return failed;
        }
    }
    return EXIT_OK;
}

static int check_row(self_test_run *t, const haystack *h, const needle *x) {
    qsa_cpu only = cpu_named(option_text(t->args, "cpu"));
    row r;
    int failed = make_row(h, x, option_number(t->args, "chunk"), &r);
    if (!failed) {
        attend_in_double(&r);
    }
    for (int cpu = QSA_CPU_C; !failed && cpu <= QSA_CPU_NEON; cpu++) {
        if (qsa_cpu_available((qsa_cpu)cpu) && (only == QSA_CPU_AUTO || only == (qsa_cpu)cpu)) {
            failed = check_level(t, &r, (qsa_cpu)cpu);
        }
    }
    free_row(&r);
    return failed;
}

static int check_format(self_test_run *t, qsa_context *context, qsa_type kv) {
    enum { STEP = 4096 };
    haystack h;
    int failed = haystack_create(command_name, context, kv, &h);
    for (int i = 0; !failed && i < NEEDLES; i++) {
        int64_t n = h.needles[i].n;
        while (!failed && h.length < n) {
            failed = haystack_grow(&h, n, STEP);
            t->steps += STEP;
            progress_step(&t->bar, t->steps < t->all_steps ? t->steps : t->all_steps, t->all_steps);
        }
        failed = failed ? failed : check_row(t, &h, &h.needles[i]);
    }
    haystack_destroy(&h);
    return failed;
}

static int print_checks_json(const self_test_run *t, int passed) {
    json_t *list = json_array();
    for (int i = 0; i < t->count; i++) {
        const check *c = &t->checks[i];
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:s, s:I, s:I, s:b, s:b, s:b, s:o, s:o, s:f, s:o, s:f, s:b}", "cpu",
                            qsa_cpu_name(c->cpu), "threads", (json_int_t)c->threads, "kv", type_word(c->kv), "n",
                            (json_int_t)c->n, "needle", (json_int_t)c->needle, "found", c->found, "selection",
                            c->selection, "bits", c->bits, "score_error", json_number(c->score_error), "error",
                            json_number(c->error), "limit", c->limit, "needle_error", json_number(c->needle_error),
                            "needle_limit", c->needle_limit, "ok", c->ok));
    }
    return print_json(command_name, json_pack("{s:o, s:b}", "self_test", list, "passed", passed));
}

static int print_checks(const self_test_run *t, int passed) {
    static const char *const no_yes[] = {"NO", "yes"};
    printf("%-7s %7s %-4s %8s %8s %6s %9s %6s %9s %9s %9s\n", "cpu", "threads", "kv", "n", "needle", "found",
           "selection", "bits", "scores", "output", "its V");
    for (int i = 0; i < t->count; i++) {
        const check *c = &t->checks[i];
        printf("%-7s %7lld %-4s %8lld %8lld %6s %9s %6s %9.1e %9.1e %9.1e %s\n", qsa_cpu_name(c->cpu),
               (long long)c->threads, type_word(c->kv), (long long)c->n, (long long)c->needle, no_yes[c->found],
               no_yes[c->selection], no_yes[c->bits], c->score_error, c->error, c->needle_error,
               c->ok ? "ok" : "FAILED");
    }
    printf("%s\n", passed ? "passed" : "FAILED");
    return fflush(stdout) ? complain(command_name, "stdout cannot be written") : EXIT_OK;
}

int self_test(const arguments *args) {
    qsa_context *context =
        open_context(command_name, cpu_named(option_text(args, "cpu")), option_number(args, "threads"));
    if (!context) {
        return EXIT_USAGE;
    }
    self_test_run *t = take_memory(command_name, 1, sizeof *t);
    t->args = args;
    t->bar = progress_start("qsa verify");
    t->all_steps = FORMATS * 210000;
    int failed = EXIT_OK, passed = 1;
    for (int i = 0; !failed && i < FORMATS; i++) {
        failed = check_format(t, context, formats[i]);
    }
    progress_end(&t->bar);
    qsa_close(context);
    for (int i = 0; i < t->count; i++) {
        passed &= t->checks[i].ok;
    }
    passed &= t->count > 0;
    if (!failed) {
        failed = option_given(args, "json") ? print_checks_json(t, passed) : print_checks(t, passed);
    }
    free(t);
    return failed ? failed : passed ? EXIT_OK : EXIT_CHECK_FAILED;
}
