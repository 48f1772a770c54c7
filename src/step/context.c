/* SPDX-License-Identifier: MIT */
/* qsa_open() and what the rooms ask of a context. */
#include "step/context.h"

#include "runtime/cpu.h"
#include "runtime/fpenv.h"
#include "runtime/memory.h"
#include "runtime/status.h"

enum { THREADS_MAX = 1024 };

/* Whether this build has kernels of the level at all; on one machine a level holds those before it. */
static int level_runs(qsa_cpu cpu) {
    qsa_cpu best = qsa_cpu_detect();
    if (cpu == QSA_CPU_AUTO || cpu == QSA_CPU_C) {
        return 1;
    }
    if (cpu == QSA_CPU_NEON || best == QSA_CPU_NEON) {
        return cpu == best;
    }
    return cpu <= best;
}

int qsa_cpu_available(qsa_cpu cpu) {
    return cpu >= QSA_CPU_AUTO && cpu <= QSA_CPU_NEON && level_runs(cpu) && qsa_cpu_permit(cpu);
}

static qsa_cpu best_level(void) {
    qsa_cpu best = qsa_cpu_detect();
    return best == QSA_CPU_AMX && !qsa_cpu_permit(best) ? QSA_CPU_AVX512 : best;
}

static qsa_status check_options(const qsa_options *o, qsa_error *error) {
    if (o->size != sizeof *o) {
        return qsa_fail(error, QSA_E_ARGUMENT, "options.size is %zu: expected %zu", o->size, sizeof *o);
    }
    if (o->threads < 0 || o->threads > THREADS_MAX) {
        return qsa_fail(error, QSA_E_ARGUMENT, "options.threads is %lld: expected 0..%d", (long long)o->threads, THREADS_MAX);
    }
    if ((o->allocator.alloc == NULL) != (o->allocator.release == NULL)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "options.allocator.%s is NULL: expected both functions or neither",
                        o->allocator.alloc ? "release" : "alloc");
    }
    if (o->cpu < QSA_CPU_AUTO || o->cpu > QSA_CPU_NEON) {
        return qsa_fail(error, QSA_E_ARGUMENT, "options.cpu is %d: expected 0..%d", (int)o->cpu, (int)QSA_CPU_NEON);
    }
    if (!qsa_cpu_available(o->cpu)) {
        return qsa_fail(error, QSA_E_UNSUPPORTED, "options.cpu is %s: the best level here is %s", qsa_cpu_name(o->cpu),
                        qsa_cpu_name(best_level()));
    }
    return QSA_OK;
}

qsa_status qsa_open(const qsa_options *options, qsa_context **context, qsa_error *error) {
    qsa_options o = {.size = sizeof o};
    if (!context) {
        return qsa_fail(error, QSA_E_ARGUMENT, "context is NULL: expected where to put the handle");
    }
    *context = NULL;
    o = options ? *options : o;
    qsa_status status = check_options(&o, error);
    if (status) {
        return status;
    }
    if (!o.allocator.alloc) {
        o.allocator = qsa_system_allocator;
    }
    qsa_context *c = qsa_allocate(&o.allocator, sizeof *c, 64);
    if (!c) {
        return qsa_fail(error, QSA_E_MEMORY, "%zu bytes for a context were refused", sizeof *c);
    }
    *c = (qsa_context){
        .allocator = o.allocator,
        .cpu = o.cpu == QSA_CPU_AUTO ? best_level() : o.cpu,
        .threads = o.parallel_for ? 1 : o.threads ? o.threads : qsa_min(qsa_cpu_count(), THREADS_MAX),
        .parallel_for = o.parallel_for,
        .parallel_user = o.parallel_user,
    };
    (void)qsa_cpu_permit(c->cpu);
    if (c->threads > 1) {
        c->pool = qsa_pool_create(&c->allocator, c->threads);
        if (!c->pool) {
            qsa_release(&o.allocator, c, sizeof *c, 64);
            return qsa_fail(error, QSA_E_MEMORY, "options.threads is %lld: the threads could not be made", (long long)o.threads);
        }
    }
    qsa_cell_init(&c->cell, c->cpu);
    qsa_score_init(&c->score, c->cpu);
    qsa_screen_init(&c->screen, c->cpu);
    qsa_select_init(&c->select, c->cpu);
    qsa_attend_init(&c->attend, c->cpu);
    qsa_merge_init(&c->merge, c->cpu);
    *context = c;
    return qsa_ok(error);
}

void qsa_close(qsa_context *context) {
    if (context) {
        qsa_allocator allocator = context->allocator;
        qsa_pool_destroy(context->pool);
        qsa_release(&allocator, context, sizeof *context, 64);
    }
}

qsa_cpu qsa_context_cpu(const qsa_context *context) {
    return context ? context->cpu : QSA_CPU_AUTO;
}

int64_t qsa_context_threads(const qsa_context *context) {
    return context ? context->threads : 0;
}

const char *qsa_context_kernel(const qsa_context *context, int64_t i) {
    if (!context || i < 0) {
        return NULL;
    }
    const char *names[QSA_KERNEL_NAMES];
    int64_t count = 0;
    for (int layout = 0; layout < 2; layout++) {
        for (int type = 0; type < 2; type++) {
            names[count++] = context->score.name[layout][type];
        }
    }
    names[count++] = context->score.list_name[0];
    names[count++] = context->score.list_name[1];
    names[count++] = context->screen.name;
    names[count++] = context->select.name;
    names[count++] = context->select.candidates_name;
    names[count++] = context->select.maxima_name;
    names[count++] = context->attend.prepare_name;
    for (int type = QSA_F32; type <= QSA_I8_G64; type++) {
        names[count++] = context->attend.name[type];
    }
    names[count++] = context->merge.name;
    for (int type = QSA_F16; type <= QSA_I8_G64; type++) {
        names[count++] = context->cell.encode_name[type];
        names[count++] = context->cell.decode_name[type];
    }
    names[count++] = context->cell.block_key_name;
    names[count++] = context->cell.angles_name;
    return i < count ? names[i] : NULL;
}

const qsa_allocator *qsa_context_allocator(const qsa_context *context) {
    return &context->allocator;
}

const qsa_cell_kernels *qsa_context_cell(const qsa_context *context) {
    return &context->cell;
}

const qsa_score_kernels *qsa_context_score(const qsa_context *context) {
    return &context->score;
}

const qsa_screen_kernels *qsa_context_screen(const qsa_context *context) {
    return &context->screen;
}

const qsa_select_kernels *qsa_context_select(const qsa_context *context) {
    return &context->select;
}

const qsa_attend_kernels *qsa_context_attend(const qsa_context *context) {
    return &context->attend;
}

const qsa_merge_kernels *qsa_context_merge(const qsa_context *context) {
    return &context->merge;
}

/* An item for the caller's parallel_for: on a thread of whatever setting. */
typedef struct guarded {
    void (*body)(void *arg, int64_t item);
    void *arg;
} guarded;

static void run_guarded(void *arg, int64_t item) {
    const guarded *g = arg;
    uint64_t saved = qsa_fpenv_enter();
    g->body(g->arg, item);
    qsa_fpenv_leave(saved);
}

void qsa_run(qsa_context *context, int64_t items, void (*body)(void *arg, int64_t item), void *arg) {
    if (items <= 0) {
        return;
    }
    if (context->parallel_for) {
        guarded g = {body, arg};
        context->parallel_for(context->parallel_user, items, run_guarded, &g);
    } else if (context->pool) {
        qsa_pool_run(context->pool, items, body, arg);
    } else {
        qsa_serial_run(items, body, arg);
    }
}
