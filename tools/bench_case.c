/* SPDX-License-Identifier: MIT */
/* Measures one case: rounds of steps and of dense attention, each behind a reading that empties the caches. */
#define _DEFAULT_SOURCE
#include "bench.h"

#include "bench_peaks.h"
#include "options.h"
#include "settings.h"

#include <stdlib.h>
#include <string.h>

enum {
    QUERIES = 16,         /* sets of rows that steps take in turn */
    PLACES = 12,          /* the model's layers that decode sparsely */
    CELLS_MOST = 1 << 19, /* of all places together: filling them takes about a second */
    STEPS_LEAST = 11,
    DENSE_LEAST = 3,
    WAKING_STEPS = 8,
    ATTEMPTS = 2, /* before a figure is refused */
    HUGE_PAGE = 2 << 20,
    SLICE_LEAST = 2 << 20, /* so that the smallest flush has one */
    SLICE_MOST = 32 << 20
};

typedef struct samples {
    double *value;
    int64_t count, room;
} samples;

typedef struct measuring {
    const bench_case *c;
    const bench_flush *flush;
    const bench_turn *turn;
    qsa_shape shape;
    bench_data data;
    int64_t places, visits;     /* visits: of steps and dense attention so far, to take queries in turn */
    float *q, *gate, *iq, *out; /* [QUERIES][rows][heads][dim] q and iq */
    void *workspace;            /* large enough for both contracts */
    size_t workspace_bytes;
    bench_isa score_isa, integer_isa, attend_isa;
    int64_t slice;  /* bytes of one sample of bandwidth */
    double *slices; /* room for those of a round */
    samples us[BENCH_FIGURES], read, float_rate, integer_rate, attend_rate;
} measuring;

/* ------------------------------------------------------------------------------------------------ samples */

static int keep(samples *s, double value) {
    if (s->count == s->room) {
        int64_t room = s->room ? 2 * s->room : 64;
        double *grown = realloc(s->value, (size_t)room * sizeof *grown);
        if (!grown) {
            return complain("bench", "no memory for the times");
        }
        s->value = grown;
        s->room = room;
    }
    s->value[s->count++] = value;
    return EXIT_OK;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bench_spread spread_of(samples *s) {
    bench_spread r = {.count = s->count};
    if (s->count) {
        qsort(s->value, (size_t)s->count, sizeof *s->value, ascending);
        r.q1 = s->value[s->count / 4];
        r.median = s->value[s->count / 2];
        r.q3 = s->value[s->count * 3 / 4];
        r.most = s->value[s->count - 1];
    }
    return r;
}

/* ------------------------------------------------------------------------------------------------ one call */

typedef struct call {
    const qsa_sequence *sequence;
    int64_t layer, rows, query;
    qsa_contract contract;
    int64_t stage_ns[BENCH_STAGES], taken_ns;
    int32_t *ids; /* [rows][id_stride] out, or NULL */
    int64_t id_stride;
} call;

static int decode(const measuring *m, call *x) {
    int64_t heads = m->c->rows * m->shape.q_heads * m->shape.head_dim;
    qsa_error error;
    qsa_item item = {
        .sequence = x->sequence,
        .rows = x->rows,
        .q = m->q + x->query * heads,
        .gate = m->gate,
        .iq = m->iq + x->query * m->c->rows * m->shape.index_heads * m->shape.index_dim,
        .out = m->out,
        .ids_out = x->ids,
        .id_stride = x->id_stride,
    };
    QSA_INIT(qsa_decode_args, args);
    args.layer = x->layer;
    args.items = &item;
    args.item_count = 1;
    args.contract = x->contract;
    args.workspace = m->workspace;
    args.workspace_bytes = m->workspace_bytes;
    args.stage_ns = x->stage_ns;
    int64_t start = bench_now_ns();
    if (qsa_decode(m->data.cache, &args, &error)) {
        return complain_library("bench", "a step failed", &error);
    }
    x->taken_ns = bench_now_ns() - start;
    return EXIT_OK;
}

/* ------------------------------------------------------------------------------------------------ rounds */

/* Bandwidth in slices about as long as a step, so that what disturbs the machine disturbs both alike. */
static int sample_reading(measuring *m) {
    int64_t count = bench_read(m->c->threads, m->flush->memory, m->flush->bytes, m->slice, m->slices);
    int failed = count ? EXIT_OK : complain("bench", "no memory for the times");
    for (int64_t i = 0; !failed && i < count; i++) {
        failed = keep(&m->read, m->slices[i]);
    }
    return failed;
}

static int sample_peaks(measuring *m) {
    double integers = bench_integer_rate(m->c->threads, m->integer_isa);
    double attend = m->c->kv == QSA_I8_G64 ? integers : bench_float_rate(m->c->threads, m->attend_isa);
    int failed = keep(&m->float_rate, bench_float_rate(m->c->threads, m->score_isa));
    failed = failed ? failed : keep(&m->integer_rate, integers);
    return failed ? failed : keep(&m->attend_rate, attend);
}

/* Empties the caches, measures the peaks, then wakes the context's threads, which slept meanwhile. */
static int begin_round(measuring *m) {
    int failed = sample_reading(m);
    failed = failed ? failed : sample_peaks(m);
    for (int i = 0; !failed && i < WAKING_STEPS; i++) {
        call x = {.sequence = m->data.short_one, .rows = 1, .contract = QSA_DENSE};
        failed = decode(m, &x);
    }
    return failed;
}

static int visit(measuring *m, int64_t place, qsa_contract contract) {
    call x = {
        .sequence = m->data.sequence,
        .layer = place,
        .rows = m->c->rows,
        .query = m->visits++ % QUERIES,
        .contract = contract,
    };
    int failed = decode(m, &x), dense = contract == QSA_DENSE;
    for (int i = 0; !failed && !dense && i < BENCH_STAGES; i++) {
        failed = keep(&m->us[i], (double)x.stage_ns[i] * 1e-3);
    }
    return failed ? failed : keep(&m->us[dense ? BENCH_DENSE : BENCH_STEP], (double)x.taken_ns * 1e-3);
}

/* Each place once, or as many as fit into limit_ns. */
static int run_round(measuring *m, qsa_contract contract, int64_t limit_ns) {
    int64_t start = bench_now_ns();
    int failed = begin_round(m);
    for (int64_t place = 0; !failed && place < m->places; place++) {
        failed = visit(m, place, contract);
        if (bench_now_ns() - start > limit_ns) {
            break;
        }
    }
    return failed;
}

/* Dense attention gets a third of the time. */
static int measure(measuring *m) {
    int64_t start = bench_now_ns(), limit = (int64_t)(m->c->seconds * 1e9), dense_ns = 0, gone = 0;
    const samples *steps = &m->us[BENCH_STEP], *dense = &m->us[BENCH_DENSE];
    int failed = EXIT_OK;
    while (!failed && (gone < limit || steps->count < STEPS_LEAST || dense->count < DENSE_LEAST)) {
        if (steps->count && dense_ns < gone / 3) {
            int64_t before = bench_now_ns();
            failed = run_round(m, QSA_DENSE, limit / 6);
            dense_ns += bench_now_ns() - before;
        } else {
            failed = run_round(m, m->c->contract, limit / 3);
        }
        gone = bench_now_ns() - start;
        int64_t part = gone < limit ? gone * 1000 / limit : 1000;
        progress_step(m->turn->bar, m->turn->index * 1000 + part, m->turn->count * 1000);
    }
    return failed;
}

/* ------------------------------------------------------------------------------------------------ a case */

int bench_flush_create(bench_flush *flush, int64_t most) {
    flush->last_level_cache = bench_last_level_cache();
    flush->bytes = 2 * flush->last_level_cache < most ? 2 * flush->last_level_cache : most;
    flush->bytes = (flush->bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    flush->memory = bench_huge_memory(flush->bytes);
    return flush->memory ? EXIT_OK : complain("bench", "%lld bytes to read were refused", (long long)flush->bytes);
}

void bench_flush_destroy(bench_flush *flush) {
    free(flush->memory);
}

static bench_isa isa_of(const qsa_context *context, const char *stage, const char *format) {
    char start[64];
    const char *name;
    int length = snprintf(start, sizeof start, "qsa_%s_%s_", stage, format);
    for (int64_t i = 0; (name = qsa_context_kernel(context, i)); i++) {
        if (!strncmp(name, start, (size_t)length)) {
            return bench_isa_of(name);
        }
    }
    return BENCH_C;
}

static float *normal_array(uint64_t seed, int64_t count) {
    float *x = take_memory("bench", count, sizeof *x);
    bench_fill_normal(seed, x, count);
    return x;
}

static int prepare(measuring *m) {
    const bench_case *c = m->c;
    int64_t heads = c->rows * m->shape.q_heads * m->shape.head_dim;
    int failed = bench_data_create(&m->data, c, &m->shape, m->places);
    if (failed) {
        return failed;
    }
    size_t one = 0, other = 0;
    qsa_error error;
    if (qsa_plan(m->data.cache, c->contract, c->rows, c->n, 0, 0, &one, &error) ||
        qsa_plan(m->data.cache, QSA_DENSE, c->rows, c->n, 0, 0, &other, &error)) {
        return complain_library("bench", "a step cannot be planned", &error);
    }
    m->workspace_bytes = one > other ? one : other;
    m->workspace = take_memory("bench", (int64_t)m->workspace_bytes, 1);
    m->q = normal_array(2, QUERIES * heads);
    m->iq = normal_array(3, QUERIES * c->rows * m->shape.index_heads * m->shape.index_dim);
    m->gate = normal_array(4, heads);
    m->out = take_memory("bench", heads, sizeof *m->out);
    m->slices = take_memory("bench", m->flush->bytes / SLICE_LEAST, sizeof *m->slices);
    m->score_isa = isa_of(m->data.context, c->screen ? "score_rows" : "score_tiles", qsa_type_name(c->keys));
    m->integer_isa = isa_of(m->data.context, "attend", "i8");
    m->attend_isa = isa_of(m->data.context, "attend", type_word(c->kv));
    return EXIT_OK;
}

static void release(measuring *m) {
    for (int i = 0; i < BENCH_FIGURES; i++) {
        free(m->us[i].value);
    }
    free(m->read.value);
    free(m->float_rate.value);
    free(m->integer_rate.value);
    free(m->attend_rate.value);
    bench_data_destroy(&m->data);
    free(m->q);
    free(m->iq);
    free(m->gate);
    free(m->out);
    free(m->workspace);
    free(m->slices);
}

/* Cells that the rows of a step read together, each counted once: rows choose apart, but many choose the same. */
static int count_attended(measuring *m, int64_t *attended) {
    const bench_case *c = m->c;
    int64_t stride = m->shape.budget + m->shape.block;
    int32_t *ids = take_memory("bench", c->rows * stride, sizeof *ids);
    char *seen = take_memory("bench", c->n, 1);
    call x = {.sequence = m->data.sequence, .rows = c->rows, .contract = c->contract, .ids = ids, .id_stride = stride};
    int failed = decode(m, &x);
    *attended = 0;
    for (int64_t i = 0; !failed && i < c->rows * stride; i++) {
        if (ids[i] >= 0 && !seen[ids[i]]) {
            seen[ids[i]] = 1;
            ++*attended;
        }
    }
    free(ids);
    free(seen);
    return failed;
}

static void summarize(measuring *m, bench_result *r) {
    for (int i = 0; i < BENCH_FIGURES; i++) {
        r->us[i] = spread_of(&m->us[i]);
    }
    r->read_gbs = spread_of(&m->read);
    r->float_gmacs = spread_of(&m->float_rate);
    r->integer_gmacs = spread_of(&m->integer_rate);
    r->attend_gmacs = spread_of(&m->attend_rate);
    bench_judge(r);
}

static int64_t choose_places(const bench_case *c, const qsa_shape *shape) {
    int64_t places = CELLS_MOST / c->n, fit = c->memory / bench_place_bytes(c, shape);
    places = places < PLACES ? places : PLACES;
    places = places < fit ? places : fit;
    return places > 1 ? places : 1;
}

static int64_t choose_slice(int64_t step, int64_t flush) {
    int64_t slice = step < SLICE_LEAST ? SLICE_LEAST : step < SLICE_MOST ? step : SLICE_MOST;
    return slice < flush ? slice : flush;
}

int bench_run(const bench_case *c, const bench_flush *flush, const bench_turn *turn, bench_result *r) {
    measuring m = {.c = c, .flush = flush, .turn = turn};
    qsa_shape_qwen38_flash_next(&m.shape);
    m.places = choose_places(c, &m.shape);
    *r = (bench_result){.c = *c, .places = m.places, .flush_bytes = flush->bytes};
    r->cache_bytes = m.places * bench_place_bytes(c, &m.shape);
    r->last_level_cache = flush->last_level_cache;
    r->cold = flush->bytes >= 2 * flush->last_level_cache;
    int64_t attended = 0;
    int failed = prepare(&m);
    failed = failed ? failed : count_attended(&m, &attended);
    bench_count_work(r, &m.shape, attended);
    m.slice = choose_slice(r->bytes[BENCH_STEP], flush->bytes);
    for (int i = 0; !failed && i < ATTEMPTS && (i == 0 || r->refused[0]); i++) {
        failed = measure(&m);
        if (!failed) {
            summarize(&m, r);
        }
    }
    release(&m);
    return failed;
}
