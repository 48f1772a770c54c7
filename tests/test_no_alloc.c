/* SPDX-License-Identifier: MIT */
/*
 * Nothing is allocated in a step. The program has a malloc of its own, in front of the system's, that counts: the
 * library behind it is linked in, so all its calls come through here, and those of its threads too.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "support/layer_model.h"
#include "support/sample.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED

int main(void) {
    puts("skipped: the sanitizer of this build has a malloc of its own, which ours would have to replace");
    return 0;
}

#else

static _Atomic int64_t requests, releases;

/* ------------------------------------------------------------------------------------------------ in front of libc */

/* What dlsym() may ask for while the real functions are looked up. Never given back. */
static _Alignas(64) char early[16384];
static _Atomic size_t early_used;

static void *early_alloc(size_t bytes) {
    size_t at = atomic_fetch_add(&early_used, (bytes + 63) / 64 * 64);
    return at + bytes <= sizeof early ? early + at : NULL;
}

static int is_early(const void *memory) {
    return (uintptr_t)memory >= (uintptr_t)early && (uintptr_t)memory < (uintptr_t)early + sizeof early;
}

static struct {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    void (*free)(void *);
} real;

static _Atomic int looking_up, found;

/* ISO C has no conversion from an object's pointer to a function's; POSIX says that their bytes are the same. */
static void look_up(void *function, const char *name) {
    void *symbol = dlsym(RTLD_NEXT, name);
    memcpy(function, &symbol, sizeof symbol);
}

/* 0 while looking up. The first allocation comes long before there is a second thread. */
static int ready(void) {
    if (!atomic_load(&found) && !atomic_exchange(&looking_up, 1)) {
        look_up(&real.malloc, "malloc");
        look_up(&real.calloc, "calloc");
        look_up(&real.realloc, "realloc");
        look_up(&real.aligned_alloc, "aligned_alloc");
        look_up(&real.posix_memalign, "posix_memalign");
        look_up(&real.free, "free");
        atomic_store(&found, 1);
    }
    return atomic_load(&found);
}

void *malloc(size_t bytes) {
    atomic_fetch_add(&requests, 1);
    return ready() ? real.malloc(bytes) : early_alloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    atomic_fetch_add(&requests, 1);
    return ready() ? real.calloc(count, bytes) : early_alloc(count * bytes);
}

void *realloc(void *memory, size_t bytes) {
    atomic_fetch_add(&requests, 1);
    if (is_early(memory) || !ready()) {
        void *moved = ready() ? real.malloc(bytes) : early_alloc(bytes);
        size_t left = memory ? sizeof early - (size_t)((char *)memory - early) : 0;
        if (moved && memory) {
            memcpy(moved, memory, bytes < left ? bytes : left);
        }
        return moved;
    }
    return real.realloc(memory, bytes);
}

void *aligned_alloc(size_t align, size_t bytes) {
    atomic_fetch_add(&requests, 1);
    return ready() ? real.aligned_alloc(align, bytes) : NULL;
}

int posix_memalign(void **memory, size_t align, size_t bytes) {
    atomic_fetch_add(&requests, 1);
    return ready() ? real.posix_memalign(memory, align, bytes) : 12; /* ENOMEM */
}

void free(void *memory) {
    atomic_fetch_add(&releases, 1);
    if (memory && !is_early(memory) && ready()) {
        real.free(memory);
    }
}

static int64_t calls(void) {
    return atomic_load(&requests) + atomic_load(&releases);
}

/* ------------------------------------------------------------------------------------------------ tests */

enum { CELLS = 300, ROWS = 20 };

/* Through a pointer that the compiler cannot see through: a pair of malloc and free may otherwise be left out. */
static void *(*volatile opaque_malloc)(size_t) = malloc;

static void the_counter_counts(void **state) {
    (void)state;
    int64_t before = calls();
    void *memory = opaque_malloc(100);
    assert_int_equal(calls(), before + 1);
    memory = realloc(memory, 200);
    assert_int_equal(calls(), before + 2);
    free(memory);
    assert_int_equal(calls(), before + 3);
    void *(*volatile zeroed)(size_t, size_t) = calloc, *(*volatile aligned)(size_t, size_t) = aligned_alloc;
    memory = zeroed(3, 5);
    void *other = aligned(64, 128);
    assert_true(memory && other);
    assert_int_equal(calls(), before + 5);
    free(memory), free(other);
    assert_int_equal(calls(), before + 7);
    assert_int_equal(posix_memalign(&memory, 64, 64), 0);
    free(memory);
    assert_int_equal(calls(), before + 9);
    char *printed = NULL; /* libc's own calls come through here, too */
    before = calls();
    assert_true(asprintf(&printed, "%d", 7) == 1);
    assert_true(calls() > before);
    free(printed);
}

/* The library's calls are seen: what it says it allocates, it does. */
static void the_library_is_counted(void **state) {
    (void)state;
    int64_t before = calls();
    qsa_context *context = sample_context(QSA_CPU_AUTO, 3);
    assert_true(calls() >= before + 2);
    before = calls();
    qsa_close(context);
    assert_true(calls() >= before + 2);
    uint64_t seed = 3;
    model m = random_model(small_sizes, seed);
    context = sample_context(QSA_CPU_AUTO, 1);
    qsa_layer *layer = load(context, &m, 16);
    float *hidden = random_floats(&seed, m.hidden, 1.0f);
    outputs out = new_outputs(qsa_layer_shape(layer), 1);
    qsa_layer_args args = args_of(&out, hidden, m.hidden, 0, 1, ALL_OUTPUTS);
    before = calls();
    assert_int_equal(qsa_layer_project(context, layer, &args, NULL), QSA_OK);
    assert_int_equal(calls(), before + 2); /* its scratch, taken and given back */
    qsa_layer_destroy(layer);
    qsa_close(context);
    free_outputs(&out);
    free(hidden);
    free_model(&m);
}

/* Appends, decodes and truncates of all kinds on one sequence; how many allocator calls they made. */
static int64_t count_steps(qsa_cache *cache, qsa_sequence *s, const sample *cells) {
    int64_t made = 0, before, ns[4] = {0};
    qsa_error error;
    size_t bytes;
    void *workspace = sample_workspace(cache, QSA_DENSE, 16, CELLS, &bytes);
    size_t sparse_bytes;
    assert_int_equal(qsa_plan(cache, QSA_CELLS, 16, CELLS, 0, 0, &sparse_bytes, NULL), QSA_OK);
    if (sparse_bytes > bytes) {
        free(workspace);
        workspace = sample_workspace(cache, QSA_CELLS, 16, CELLS, &bytes);
    }
    sample_result r = sample_result_make(&cells->shape, ROWS, CELLS),
                  own = sample_result_make(&cells->shape, ROWS, CELLS);
    for (int64_t length = 0, step = 1; length + step <= CELLS;
         length += step, step = step * 2 > 90 ? 3 : step * 2 + 1) {
        for (int64_t layer = 0; layer < SAMPLE_LAYERS; layer++) {
            qsa_append_args args = sample_append_args(cells, layer, length, step);
            before = calls();
            qsa_status status = qsa_append(s, &args, &error);
            made += calls() - before;
            sample_ok(status, &error);
        }
        r.rows = own.rows = length + step < ROWS ? length + step : ROWS;
        qsa_item items[2] = {sample_item(s, cells, 1, &r), sample_item(s, cells, 1, &own)};
        for (int contract = QSA_BLOCKS; contract <= QSA_DENSE; contract++) {
            static const qsa_type types[] = {QSA_F32, QSA_F16, QSA_BF16, QSA_Q8_0};
            QSA_INIT(qsa_decode_args, args);
            args.layer = 1;
            args.items = items;
            args.item_count = 2;
            args.contract = (qsa_contract)contract;
            args.out_type = types[(length + contract) % 4];
            args.workspace = workspace;
            args.workspace_bytes = bytes;
            args.stage_ns = ns;
            items[1].ids = contract ? r.ids : NULL; /* the ids that the contract before has selected */
            items[1].ids_out = contract ? NULL : own.ids;
            before = calls();
            qsa_status status = qsa_decode(cache, &args, &error);
            made += calls() - before;
            sample_ok(status, &error);
        }
    }
    static const int64_t lengths[] = {CELLS, CELLS - 20, 128, 0};
    for (int i = 0; i < 4; i++) {
        before = calls();
        qsa_status status = qsa_truncate(s, lengths[i], &error);
        made += calls() - before;
        sample_ok(status, &error);
    }
    sample_result_free(&r), sample_result_free(&own);
    free(workspace);
    return made;
}

static void steps_allocate_nothing(void **state) {
    (void)state;
    static const qsa_type kv_types[] = {QSA_F32, QSA_F16, QSA_BF16, QSA_I8_G64}, key_types[] = {QSA_F32, QSA_BF16};
    qsa_shape shape = sample_shape();
    sample cells = sample_make(&shape, CELLS, 121);
    for (int cpu = QSA_CPU_AUTO; cpu <= QSA_CPU_C; cpu++) {
        for (int64_t threads = 1; threads <= 3; threads += 2) {
            qsa_context *context = sample_context((qsa_cpu)cpu, threads);
            for (int i = 0; i < 8; i++) {
                qsa_cache_options options = sample_options(&cells, kv_types[i / 2], key_types[i % 2], CELLS);
                qsa_cache *cache = sample_cache(context, &options);
                qsa_sequence *s = sample_sequence(cache);
                assert_int_equal(count_steps(cache, s, &cells), 0);
                qsa_sequence_destroy(s);
                qsa_cache_destroy(cache);
            }
            qsa_close(context);
        }
    }
    sample_free(&cells);
}

/* What is refused allocates nothing either: not even for its message. */
static void refusals_allocate_nothing(void **state) {
    (void)state;
    qsa_shape shape = sample_shape();
    sample cells = sample_make(&shape, 200, 122);
    qsa_context *context = sample_context(QSA_CPU_AUTO, 2);
    qsa_cache_options options = sample_options(&cells, QSA_F32, QSA_F32, 64);
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *s = sample_sequence(cache);
    qsa_append_args args = sample_append_args(&cells, 0, 0, 65);
    QSA_INIT(qsa_decode_args, decode);
    decode.layer = 5;
    qsa_error error;
    int64_t before = calls();
    qsa_status append = qsa_append(s, &args, &error), truncate = qsa_truncate(s, -1, &error);
    qsa_status refused = qsa_decode(cache, &decode, &error);
    assert_int_equal(calls(), before);
    assert_int_equal(append, QSA_E_CAPACITY);
    assert_int_equal(truncate, QSA_E_ARGUMENT);
    assert_int_equal(refused, QSA_E_ARGUMENT);
    qsa_sequence_destroy(s);
    qsa_cache_destroy(cache);
    qsa_close(context);
    sample_free(&cells);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_counter_counts),
        cmocka_unit_test(the_library_is_counted),
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(refusals_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
