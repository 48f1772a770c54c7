/* SPDX-License-Identifier: MIT */
/* qsa bench: times steps over lengths, formats, threads, ... and compares them with what the machine could do. */
#include "bench.h"

#include "bench_peaks.h"
#include "options.h"
#include "settings.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_MAX = 64, ROWS_MOST = 256, CELLS_MOST = 1 << 30, GIGABYTE = 1000000000 };

typedef struct list {
    int64_t count, value[LIST_MAX];
} list;

typedef struct plan {
    list n, kv, threads, rows, cpu;
    bench_case common;
    int64_t memory; /* bytes, of cache and flush */
    int n_given;
    bench_case *cases;
    int64_t count;
} plan;

/* ------------------------------------------------------------------------------------------------ lists */

/* 1 if the word is one of the list's kind. */
typedef int word_parser(const char *word, int64_t *value);

static int parse_count(const char *word, int64_t most, int64_t *value) {
    char *end;
    errno = 0;
    long long x = strtoll(word, &end, 10);
    long long unit = *end == 'K' ? 1 << 10 : *end == 'M' ? 1 << 20 : 1;
    end += unit > 1;
    *value = x > 0 && x <= most / unit ? x * unit : x;
    return !errno && *word >= '0' && *word <= '9' && !*end && x >= 0 && x <= most / unit;
}

static int parse_n(const char *word, int64_t *value) {
    return parse_count(word, CELLS_MOST, value) && *value > 0;
}

static int parse_threads(const char *word, int64_t *value) {
    return parse_count(word, 1024, value);
}

static int parse_rows(const char *word, int64_t *value) {
    return parse_count(word, ROWS_MOST, value) && *value > 0;
}

static int parse_kv(const char *word, int64_t *value) {
    *value = type_named(word);
    return !strcmp(word, type_word((qsa_type)*value));
}

static int parse_cpu(const char *word, int64_t *value) {
    *value = cpu_named(word);
    return !strcmp(word, qsa_cpu_name((qsa_cpu)*value));
}

static int parse_list(const arguments *args, const char *name, word_parser *parse, const char *expected, list *l) {
    const char *text = option_text(args, name);
    l->count = 0;
    for (const char *at = text; at;) {
        char word[32];
        size_t length = strcspn(at, ",");
        int fits = length < sizeof word && l->count < LIST_MAX;
        if (fits) {
            memcpy(word, at, length);
            word[length] = '\0';
        }
        if (!fits || !parse(word, &l->value[l->count])) {
            return complain("bench", "--%s is '%s': expected %s, with commas between several", name, text, expected);
        }
        l->count++;
        at = at[length] ? at + length + 1 : NULL;
    }
    return EXIT_OK;
}

static int parse_positive(const arguments *args, const char *name, double most, double *value) {
    const char *text = option_text(args, name);
    char *end;
    *value = strtod(text, &end);
    if (end == text || *end || !(*value > 0.0) || *value > most) {
        return complain("bench", "--%s is '%s': expected a number above 0, at most %g", name, text, most);
    }
    return EXIT_OK;
}

/* ------------------------------------------------------------------------------------------------ cases */

/* AUTO and 0 threads become what the library makes of them; a level that is missing is refused. */
static int resolve_machine(plan *p) {
    for (int64_t i = 0; i < p->cpu.count; i++) {
        qsa_context *context = open_context("bench", (qsa_cpu)p->cpu.value[i], 0);
        if (!context) {
            return EXIT_USAGE;
        }
        p->cpu.value[i] = qsa_context_cpu(context);
        for (int64_t j = 0; j < p->threads.count; j++) {
            p->threads.value[j] = p->threads.value[j] ? p->threads.value[j] : qsa_context_threads(context);
        }
        qsa_close(context);
    }
    return EXIT_OK;
}

static int parse_plan(const arguments *args, plan *p) {
    int quick = option_given(args, "quick");
    double gigabytes = 0.0;
    int failed = parse_list(args, "kv", parse_kv, "one of " KV_CHOICES, &p->kv);
    failed = failed ? failed : parse_list(args, "cpu", parse_cpu, "one of " CPU_CHOICES, &p->cpu);
    failed = failed ? failed : parse_list(args, "threads", parse_threads, "an integer in 0..1024", &p->threads);
    failed = failed ? failed : parse_list(args, "rows", parse_rows, "an integer in 1..256", &p->rows);
    p->n_given = option_given(args, "n");
    if (!failed && p->n_given) {
        failed = parse_list(args, "n", parse_n, "an integer in 1..1024M", &p->n);
    } else {
        for (int64_t n = quick ? 8192 : 2048; n <= (quick ? 131072 : 1 << 20); n *= quick ? 16 : 2) {
            p->n.value[p->n.count++] = n;
        }
    }
    p->common.keys = type_named(option_text(args, "keys"));
    p->common.contract = contract_named(option_text(args, "contract"));
    p->common.screen = option_given(args, "screen");
    p->common.seconds = 0.3;
    if (!failed && (!quick || option_given(args, "seconds"))) {
        failed = parse_positive(args, "seconds", 3600.0, &p->common.seconds);
    }
    p->memory = bench_free_memory() / 2;
    if (!failed && option_given(args, "memory")) {
        failed = parse_positive(args, "memory", 1e6, &gigabytes);
        p->memory = (int64_t)(gigabytes * GIGABYTE);
    }
    return failed ? failed : resolve_machine(p);
}

/* Unless n was given, lengths that memory does not hold are left out. */
static int add_case(plan *p, const bench_case *c) {
    qsa_shape shape;
    qsa_shape_qwen38_flash_next(&shape);
    int64_t place = bench_place_bytes(c, &shape);
    if (c->rows > c->n) {
        return complain("bench", "--rows is %lld with --n %lld: expected at most n", (long long)c->rows,
                        (long long)c->n);
    }
    if (place <= c->memory) {
        p->cases[p->count++] = *c;
    } else if (p->n_given) {
        return complain("bench", "--n is %lld: its cache takes %.2f GB, and --memory leaves %.2f GB for it",
                        (long long)c->n, (double)place / GIGABYTE, (double)c->memory / GIGABYTE);
    }
    return EXIT_OK;
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* n runs fastest and upwards, so that the cases of one curve stand together. */
static int list_cases(plan *p) {
    int64_t all = p->n.count * p->kv.count * p->threads.count * p->rows.count * p->cpu.count;
    int failed = EXIT_OK;
    qsort(p->n.value, (size_t)p->n.count, sizeof *p->n.value, ascending);
    p->cases = take_memory("bench", all, sizeof *p->cases);
    for (int64_t i = 0; !failed && i < all; i++) {
        int64_t at = i;
        bench_case c = p->common;
        c.n = p->n.value[at % p->n.count];
        at /= p->n.count;
        c.kv = (qsa_type)p->kv.value[at % p->kv.count];
        at /= p->kv.count;
        c.rows = p->rows.value[at % p->rows.count];
        at /= p->rows.count;
        c.threads = p->threads.value[at % p->threads.count];
        at /= p->threads.count;
        c.cpu = (qsa_cpu)p->cpu.value[at];
        failed = add_case(p, &c);
    }
    return failed || p->count ? failed : complain("bench", "no length fits into %.2f GB", (double)p->memory / GIGABYTE);
}

/* ------------------------------------------------------------------------------------------------ running */

static int print_results(const arguments *args, const bench_result *results, int64_t count) {
    if (option_given(args, "json")) {
        return bench_print_json(results, count);
    }
    if (option_given(args, "csv")) {
        return bench_print_csv(results, count);
    }
    if (count > 1) {
        bench_print_overview(stdout, results, count);
    }
    return fflush(stdout) || ferror(stdout) ? complain("bench", "stdout cannot be written") : EXIT_OK;
}

static int measure_cases(const arguments *args, const plan *p, const bench_flush *flush, FILE *svg) {
    bench_result *results = take_memory("bench", p->count, sizeof *results);
    int tables = !option_given(args, "json") && !option_given(args, "csv"), failed = EXIT_OK, refused = 0;
    progress bar = progress_start("qsa bench");
    for (int64_t i = 0; !failed && i < p->count; i++) {
        bench_turn turn = {&bar, i, p->count};
        failed = bench_run(&p->cases[i], flush, &turn, &results[i]);
        refused |= results[i].refused[0] != '\0';
        if (!failed && tables) {
            progress_end(&bar);
            bench_print_case(stdout, &results[i]);
        }
    }
    progress_end(&bar);
    failed = failed ? failed : print_results(args, results, p->count);
    if (!failed && svg && bench_print_svg(svg, results, p->count)) {
        failed = complain("bench", "--svg is '%s': writing it failed", option_text(args, "svg"));
    }
    free(results);
    return failed ? failed : refused ? EXIT_CHECK_FAILED : EXIT_OK;
}

static int run_plan(const arguments *args, plan *p, FILE *svg) {
    bench_flush flush;
    int failed = bench_flush_create(&flush, p->memory / 2);
    p->common.memory = p->memory - flush.bytes;
    failed = failed ? failed : list_cases(p);
    failed = failed ? failed : measure_cases(args, p, &flush, svg);
    bench_flush_destroy(&flush);
    free(p->cases);
    return failed;
}

static int run(const arguments *args) {
    plan p = {0};
    const char *path = option_text(args, "svg");
    FILE *svg = NULL;
    if (option_given(args, "json") && option_given(args, "csv")) {
        return complain("bench", "--json and --csv are given: expected one of them");
    }
    int failed = parse_plan(args, &p);
    if (!failed && path) {
        svg = fopen(path, "w");
        failed = svg ? EXIT_OK : complain("bench", "--svg is '%s': it cannot be written (%s)", path, strerror(errno));
    }
    failed = failed ? failed : run_plan(args, &p, svg);
    if (svg && fclose(svg) && !failed) {
        failed = complain("bench", "--svg is '%s': writing it failed", path);
    }
    return failed;
}

static const option options[] = {
    {"n", 'n', OPTION_STRING, "CELLS", NULL, 0, 0, NULL,
     "lengths, such as 8192,128K; otherwise 2K to 1M in powers of two, as far as memory allows"},
    {"kv", 0, OPTION_STRING, "FORMATS", NULL, 0, 0, "i8", "how K and V are stored, one or more of f32,bf16,f16,i8"},
    OPTION_KEYS("bf16", "how the index keys are stored"),
    {"screen", 0, OPTION_FLAG, NULL, NULL, 0, 0, NULL,
     "keep int8 copies of the index keys, and rule blocks out by them"},
    {"contract", 'c', OPTION_CHOICE, "NAME", "blocks cells", 0, 0, "blocks", "which cells a row may read"},
    {"cpu", 0, OPTION_STRING, "LEVELS", NULL, 0, 0, "auto",
     "instruction sets, one or more of auto,c,avx2,avx512,amx,neon"},
    {"threads", 't', OPTION_STRING, "COUNTS", NULL, 0, 0, "0",
     "threads that take part, one or more numbers; 0: one for each online core"},
    {"rows", 'r', OPTION_STRING, "COUNTS", NULL, 0, 0, "1", "query tokens in a step, one or more numbers"},
    {"seconds", 's', OPTION_STRING, "S", NULL, 0, 0, "2", "time to measure each case; filling its cache comes on top"},
    {"memory", 'm', OPTION_STRING, "GB", NULL, 0, 0, NULL, "memory to take at most; otherwise half of what is free"},
    {"quick", 'q', OPTION_FLAG, NULL, NULL, 0, 0, NULL, "8K and 128K cells in 0.3 seconds each, unless given"},
    {"svg", 0, OPTION_FILE, "FILE", NULL, 0, 0, NULL, "draw time against length, as SVG"},
    {"csv", 0, OPTION_FLAG, NULL, NULL, 0, 0, NULL, "print CSV instead of a table"},
    OPTION_JSON,
    OPTION_HELP,
    OPTION_END,
};

static const example examples[] = {
    {"qsa bench --svg bench.svg", "Walk all lengths that memory holds, with int8 K/V; draw the curves."},
    {"qsa bench --json --n 131072 --kv i8 --threads 2", "Measure one case; print one flat JSON object."},
    {"qsa bench --n 32K,256K --kv i8,f32 --threads 1,2 --csv", "Measure eight cases; print CSV."},
    {NULL, NULL},
};

const subcommand command_bench = {
    .name = "bench",
    .summary = "time a decode step against what this machine could do",
    .operands = "",
    .least_operands = 0,
    .most_operands = 0,
    .description = "Times whole decode steps and each of their stages at the model's real shape on random cells, and "
                   "attention over all cells "
                   "with the same kernels. Between rounds it reads twice the last-level cache, so that each step reads "
                   "from memory.\n"
                   "The roofline is the time that the step's bytes take at the read bandwidth, or its multiply-adds at "
                   "their peak, both "
                   "measured in the same run with as many threads. A figure above the measured bandwidth is refused, "
                   "and the exit code is 1. "
                   "Times are in microseconds: median and quartiles.",
    .options = options,
    .examples = examples,
    .run = run,
};
