/* SPDX-License-Identifier: MIT */
/* The frame: runs a stage at a level and with the portable kernel, watches what it touches, compares, times. */
#define _DEFAULT_SOURCE
#include "checker.h"

#include "runtime/fpenv.h"
#include "runtime/numerics.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { POISON = 0xff }; /* reads as NaN in every float format */

/* ------------------------------------------------------------------------------------------------ one guarded call */

static sigjmp_buf crash_return;
static volatile sig_atomic_t crash_signal;

static void on_crash(int number) {
    crash_signal = number;
    siglongjmp(crash_return, 1);
}

static void catch_crashes(void (*handler)(int)) {
    const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction action = {.sa_flags = 0};
        action.sa_handler = handler;
        sigemptyset(&action.sa_mask);
        sigaction(numbers[i], &action, NULL);
    }
}

/* The rounding and masking bits, without the flags that arithmetic raises. */
static uint64_t float_control(void) {
#if defined(QSA_X86)
    return _mm_getcsr() & ~0x3fu;
#elif defined(QSA_ARM)
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control;
#else
    return 0;
#endif
}

static const char *what_crashed(void) {
    switch (crash_signal) {
    case SIGILL: return "ran an instruction that this machine lacks";
    case SIGFPE: return "divided by zero";
    default: return "touched memory outside its arrays";
    }
}

/* NULL, or what went wrong. */
static const char *run_caught(void (*run)(const kernel_set *, void *), const kernel_set *set, void *out) {
    if (sigsetjmp(crash_return, 1) != 0) {
        return what_crashed();
    }
    run(set, out);
    return NULL;
}

static const char *run_guarded(void (*run)(const kernel_set *, void *), const kernel_set *set, void *out) {
    uint64_t saved = qsa_fpenv_enter(), before = float_control();
    catch_crashes(on_crash);
    const char *problem = run_caught(run, set, out);
    if (!problem && float_control() != before) {
        problem = "changed the floating-point control register";
    }
    catch_crashes(SIG_DFL);
    qsa_fpenv_leave(saved);
    return problem;
}

/* ------------------------------------------------------------------------------------------------ comparing */

static size_t element_bytes(element e) {
    return e == ELEMENT_BYTE ? 1 : e == ELEMENT_F16 || e == ELEMENT_BF16 ? 2 : 4;
}

static uint32_t element_bits(const char *array, element e, int64_t i) {
    size_t bytes = element_bytes(e);
    unsigned char b[4] = {0};
    memcpy(b, array + (size_t)i * bytes, bytes);
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static int is_nan(element e, uint32_t bits) {
    switch (e) {
    case ELEMENT_F32: return (bits & 0x7fffffffu) > 0x7f800000u;
    case ELEMENT_F16: return (bits & 0x7fffu) > 0x7c00u;
    case ELEMENT_BF16: return (bits & 0x7fffu) > 0x7f80u;
    default: return 0;
    }
}

static int64_t first_difference(element e, int64_t count, const char *got, const char *expected) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t a = element_bits(got, e, i), b = element_bits(expected, e, i);
        if (a != b && !(is_nan(e, a) && is_nan(e, b))) {
            return i;
        }
    }
    return -1;
}

static int64_t first_overwritten(const stage *s, const case_info *d, const char *array) {
    size_t bytes = element_bytes(d->element);
    for (int64_t i = 0; s->written && i < d->count; i++) {
        for (size_t b = 0; !s->written(i) && b < bytes; b++) {
            if ((unsigned char)array[(size_t)i * bytes + b] != POISON) {
                return i;
            }
        }
    }
    return -1;
}

static verdict fail(const stage *s, const kernel_set *set, const case_info *d, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static verdict fail(const stage *s, const kernel_set *set, const case_info *d, const char *format, ...) {
    verdict v = {.failed = 1};
    char what[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    snprintf(v.text, sizeof v.text, "%s, %s, trial %lld: %s (%s)", s->name, qsa_cpu_name(set->cpu), (long long)d->trial, what,
             d->text);
    return v;
}

static verdict compare(const stage *s, const kernel_set *set, const case_info *d, const guarded *got, const guarded *expected) {
    int64_t i;
    if (!guarded_intact(got)) {
        return fail(s, set, d, "wrote beside its output");
    }
    if (!s->inputs_intact()) {
        return fail(s, set, d, "wrote beside an input");
    }
    if ((i = first_overwritten(s, d, got->at)) >= 0) {
        return fail(s, set, d, "wrote element %lld, which is none of its outputs", (long long)i);
    }
    if ((i = first_difference(d->element, d->count, got->at, expected->at)) >= 0) {
        return fail(s, set, d, "element %lld of %lld is 0x%08x, expected 0x%08x", (long long)i, (long long)d->count,
                    element_bits(got->at, d->element, i), element_bits(expected->at, d->element, i));
    }
    return (verdict){.failed = 0};
}

/* ------------------------------------------------------------------------------------------------ trials */

static dice dice_of(const stage *s, uint64_t seed, int64_t trial) {
    uint64_t hash = seed;
    for (const char *c = s->name; *c; c++) {
        hash = hash * 1099511628211u + (unsigned char)*c;
    }
    return (dice){.state = hash * 1000003u + (uint64_t)trial};
}

static verdict check_trial(const stage *s, const kernel_set *portable, const kernel_set *tested, dice d, int64_t trial,
                           guarded *got, guarded *expected) {
    case_info job = {.trial = trial};
    s->draw(&d, &job);
    size_t align = element_bytes(job.element), bytes = (size_t)job.count * align;
    memset(guarded_place(got, &d, bytes, align), POISON, bytes);
    const char *problem = run_guarded(s->run, tested, got->at);
    if (problem) {
        return fail(s, tested, &job, "%s", problem);
    }
    memset(guarded_place(expected, &d, bytes, align), POISON, bytes);
    if ((problem = run_guarded(s->reference ? s->reference : s->run, portable, expected->at))) {
        return fail(s, portable, &job, "%s", problem);
    }
    return compare(s, tested, &job, got, expected);
}

verdict check_stage(const stage *s, const kernel_set *portable, const kernel_set *tested, uint64_t seed) {
    verdict v = {.failed = 0};
    guarded got, expected;
    guarded_open(&got, 1 << 16);
    guarded_open(&expected, 1 << 16);
    for (int64_t trial = 0; trial < s->trials && !v.failed; trial++) {
        v = check_trial(s, portable, tested, dice_of(s, seed, trial), trial, &got, &expected);
    }
    guarded_close(&got);
    guarded_close(&expected);
    return v;
}

/* ------------------------------------------------------------------------------------------------ timing */

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double ns_per_call(const stage *s, const kernel_set *set, void *out, int64_t calls) {
    int64_t start = now_ns();
    for (int64_t i = 0; i < calls; i++) {
        s->run(set, out);
    }
    return (double)(now_ns() - start) / (double)calls;
}

double time_stage(const stage *s, const kernel_set *set, uint64_t seed) {
    enum { BATCHES = 9, BATCH_NS = 2000000 };
    dice d = dice_of(s, seed, 0);
    case_info job = {.typical = 1};
    guarded out;
    s->draw(&d, &job);
    guarded_open(&out, (size_t)job.count * element_bytes(job.element));
    void *array = guarded_place(&out, &d, (size_t)job.count * element_bytes(job.element), 64);
    uint64_t saved = qsa_fpenv_enter();
    double once = ns_per_call(s, set, array, 1), batch[BATCHES];
    int64_t calls = once > BATCH_NS ? 1 : (int64_t)(BATCH_NS / (once + 1)) + 1;
    for (int i = 0; i < BATCHES; i++) {
        batch[i] = ns_per_call(s, set, array, calls);
    }
    qsa_fpenv_leave(saved);
    guarded_close(&out);
    qsort(batch, BATCHES, sizeof *batch, ascending);
    return batch[BATCHES / 2];
}
