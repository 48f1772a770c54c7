/* SPDX-License-Identifier: MIT */
/* The n-th request for memory is refused, once and for ever, for every n: a status, nothing lost, and a retry works. */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "support/layer_model.h"
#include "support/sample.h"
#include "support/stream.h"

/* Requests from `refuse_from` to `refuse_to` (1, 2, ...) are refused. Sizes and alignments are checked as they come
 * back. */
typedef struct refuser {
    int64_t requests, refuse_from, refuse_to;
    int64_t blocks, bytes, mistakes;
} refuser;

typedef struct block_note {
    size_t bytes, align;
    void *block;
} block_note;

static void *refuser_alloc(void *user, size_t bytes, size_t align) {
    refuser *r = user;
    r->requests++;
    r->mistakes += align == 0 || (align & (align - 1)) != 0 || align > (size_t)2 << 20 || bytes == 0;
    if (r->requests >= r->refuse_from && r->requests <= r->refuse_to) {
        return NULL;
    }
    size_t room = align < 32 ? 32 : align; /* for a note */
    char *block = aligned_alloc(room, (room + bytes + room - 1) / room * room);
    assert_non_null(block);
    memset(block, 0x7b, room + bytes); /* so that nobody relies on zeros */
    block_note note = {bytes, align, block};
    memcpy(block + room - sizeof note, &note, sizeof note);
    r->blocks++;
    r->bytes += (int64_t)bytes;
    return block + room;
}

static void refuser_release(void *user, void *memory, size_t bytes, size_t align) {
    refuser *r = user;
    block_note note;
    memcpy(&note, (char *)memory - sizeof note, sizeof note);
    r->mistakes += note.bytes != bytes || note.align != align;
    r->blocks--;
    r->bytes -= (int64_t)note.bytes;
    free(note.block);
}

/* What is made, step after step, each from those before. */
typedef struct world {
    refuser memory;
    sample cells;
    qsa_tensors *tensors;
    qsa_context *context;
    qsa_cache *cache;
    qsa_sequence *sequence, *fork, *restored, *from_file;
    qsa_layer *layer;
    stream saved;
    char path[64];
    int saved_file;
} world;

static qsa_status make_context(world *w, qsa_error *error) {
    QSA_INIT(qsa_options, options);
    options.threads = 3;
    options.allocator = (qsa_allocator){&w->memory, refuser_alloc, refuser_release};
    return qsa_open(&options, &w->context, error);
}

static qsa_status make_cache(world *w, qsa_error *error) {
    qsa_cache_options options = sample_options(&w->cells, QSA_I8_G64, QSA_BF16, 600);
    return qsa_cache_create(w->context, &options, &w->cache, error);
}

static qsa_status make_sequence(world *w, qsa_error *error) {
    return qsa_sequence_create(w->cache, &w->sequence, error);
}

static qsa_status make_layer(world *w, qsa_error *error) {
    qsa_layer_options options = options_of(16);
    return qsa_layer_load(w->context, w->tensors, &options, &w->layer, error);
}

static qsa_status make_fork(world *w, qsa_error *error) {
    return qsa_sequence_fork(w->sequence, 87, &w->fork, error);
}

static qsa_status save(world *w, qsa_error *error) {
    return qsa_sequence_save(w->sequence, 90, stream_write, &w->saved, error);
}

static qsa_status save_file(world *w, qsa_error *error) {
    qsa_status status = qsa_sequence_save_file(w->sequence, 90, w->path, error);
    w->saved_file = access(w->path, F_OK) == 0; /* refused: there is none */
    return status;
}

static qsa_status restore(world *w, qsa_error *error) {
    return stream_restore(w->cache, &w->saved, &w->restored, error);
}

static qsa_status restore_file(world *w, qsa_error *error) {
    return qsa_sequence_restore_file(w->cache, w->path, &w->from_file, error);
}

static qsa_status (*const steps[])(world *w, qsa_error *error) = {make_context, make_cache, make_sequence, make_layer, make_fork,
                                                                  save, save_file, restore, restore_file};
static const int64_t least_requests[] = {2, 4, 1, 3, 1, 1, 2, 2, 2};
enum { STEPS = sizeof steps / sizeof *steps, SEQUENCE = 2 };

static const void *made_by(const world *w, int step) {
    const void *const made[STEPS] = {w->context, w->cache, w->sequence, w->layer, w->fork, w->saved.data,
                                     w->saved_file ? w->path : NULL, w->restored, w->from_file};
    return made[step];
}

static void unmake(world *w) {
    stream_free(&w->saved);
    qsa_sequence_destroy(w->fork);
    qsa_sequence_destroy(w->restored);
    qsa_sequence_destroy(w->from_file);
    qsa_layer_destroy(w->layer);
    qsa_sequence_destroy(w->sequence);
    qsa_cache_destroy(w->cache);
    qsa_close(w->context);
}

/* Refuses each request of a step in turn until the step needs no more. */
static void refuse_each(world *w, int step, int for_ever) {
    qsa_error error;
    int64_t refused = 0;
    for (int64_t n = 1; !made_by(w, step); n++) {
        int64_t blocks = w->memory.blocks, bytes = w->memory.bytes;
        w->memory.requests = 0;
        w->memory.refuse_from = n;
        w->memory.refuse_to = for_ever ? INT64_MAX : n;
        memset(&error, 0x7b, sizeof error);
        qsa_status status = steps[step](w, &error);
        if (made_by(w, step)) {
            assert_int_equal(status, QSA_OK);
            break;
        }
        refused++;
        assert_int_equal(status, QSA_E_MEMORY);
        assert_int_equal(error.status, QSA_E_MEMORY);
        assert_true(error.message[0] != '\0');
        assert_int_equal(w->memory.blocks, blocks);
        assert_int_equal(w->memory.bytes, bytes);
    }
    assert_true(refused >= least_requests[step]);
}

/* What was made under refusals is as good as any. */
static void every_request_is_refused_in_turn(void **state) {
    (void)state;
    qsa_shape shape = sample_shape();
    model m = random_model(small_sizes, 131);
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        world w = {.cells = sample_make(&shape, 100, 132), .tensors = model_tensors(&m, "")};
        char folder[] = "/tmp/qsa-refused-XXXXXX";
        assert_non_null(mkdtemp(folder));
        snprintf(w.path, sizeof w.path, "%s/saved.qsa", folder);
        for (int step = 0; step < STEPS; step++) {
            refuse_each(&w, step, for_ever);
            if (step == SEQUENCE) {
                sample_grow(w.sequence, &w.cells, 90);
            }
        }
        sample_same_cells(w.sequence, w.restored, 1);
        sample_same_cells(w.sequence, w.from_file, 1);
        w.memory.refuse_from = 1, w.memory.refuse_to = INT64_MAX, w.memory.requests = 0; /* a step needs none */
        sample_grow(w.sequence, &w.cells, 100);
        sample_result r = sample_decode(w.cache, w.sequence, &w.cells, 1, 4, QSA_BLOCKS);
        assert_int_equal(w.memory.requests, 0);
        qsa_context *plain = sample_context(QSA_CPU_AUTO, 1);
        qsa_cache_options options = sample_options(&w.cells, QSA_I8_G64, QSA_BF16, 300);
        qsa_cache *cache = sample_cache(plain, &options);
        qsa_sequence *sequence = sample_sequence(cache);
        sample_grow(sequence, &w.cells, 100);
        sample_result expected = sample_decode(cache, sequence, &w.cells, 1, 4, QSA_BLOCKS);
        sample_same_bits(&r, &expected);
        sample_result_free(&r), sample_result_free(&expected);
        qsa_sequence_destroy(sequence);
        qsa_cache_destroy(cache);
        qsa_close(plain);
        unmake(&w);
        assert_int_equal(remove(w.path), 0);
        assert_int_equal(rmdir(folder), 0); /* no temporary file was left */
        assert_int_equal(w.memory.blocks, 0);
        assert_int_equal(w.memory.bytes, 0);
        assert_int_equal(w.memory.mistakes, 0);
        sample_free(&w.cells);
        qsa_tensors_close(w.tensors);
    }
    free_model(&m);
}

/* A sequence that is refused leaves the cache and its other sequences alone. */
static void a_refused_sequence_changes_nothing(void **state) {
    (void)state;
    qsa_shape shape = sample_shape();
    qsa_error error;
    world w = {.cells = sample_make(&shape, 100, 133)};
    for (int step = 0; step < 3; step++) {
        sample_ok(steps[step](&w, &error), &error);
    }
    sample_grow(w.sequence, &w.cells, 90);
    QSA_INIT(qsa_cache_stats, before);
    QSA_INIT(qsa_cache_stats, after);
    assert_int_equal(qsa_cache_get_stats(w.cache, &before, NULL), QSA_OK);
    sample_result a = sample_decode(w.cache, w.sequence, &w.cells, 0, 2, QSA_CELLS);
    qsa_sequence *other;
    w.memory.requests = 0, w.memory.refuse_from = w.memory.refuse_to = 1;
    assert_int_equal(qsa_sequence_create(w.cache, &other, &error), QSA_E_MEMORY);
    assert_null(other);
    assert_int_equal(qsa_cache_get_stats(w.cache, &after, NULL), QSA_OK);
    assert_memory_equal(&before, &after, sizeof before);
    sample_result b = sample_decode(w.cache, w.sequence, &w.cells, 0, 2, QSA_CELLS);
    sample_same_bits(&a, &b);
    sample_ok(qsa_sequence_create(w.cache, &other, &error), &error);
    qsa_sequence_destroy(other);
    sample_result_free(&a), sample_result_free(&b);
    unmake(&w);
    assert_int_equal(w.memory.blocks, 0);
    sample_free(&w.cells);
}

/* More threads than a process may have: refused or made, and nothing lost either way. */
static void many_threads_are_made_or_refused(void **state) {
    (void)state;
    world w = {.memory = {0}};
    QSA_INIT(qsa_options, options);
    options.threads = 1024;
    options.allocator = (qsa_allocator){&w.memory, refuser_alloc, refuser_release};
    qsa_error error;
    qsa_status status = qsa_open(&options, &w.context, &error);
    assert_true(status == QSA_OK || status == QSA_E_MEMORY);
    assert_int_equal(status == QSA_OK, w.context != NULL);
    if (w.context) {
        assert_int_equal(qsa_context_threads(w.context), 1024);
    }
    qsa_close(w.context);
    assert_int_equal(w.memory.blocks, 0);
    assert_int_equal(w.memory.mistakes, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_is_refused_in_turn),
        cmocka_unit_test(a_refused_sequence_changes_nothing),
        cmocka_unit_test(many_threads_are_made_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
