/* SPDX-License-Identifier: MIT */
/* The caller's floating-point environment: whatever it is, the bits are the same, nothing traps, and it is left as it
 * was. */
#include <fenv.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "support/layer_model.h"
#include "support/sample.h"

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#define HAVE_CSR 1
#endif

enum { CELLS = 150, ROWS = 4, LAYER_TOKENS = 5 };

/* ------------------------------------------------------------------------------------------------ environments */

typedef struct environment {
    const char *name;
    int rounding;
    unsigned csr_on, csr_off; /* bits of MXCSR to set and to clear, on x86 */
} environment;

enum { FLUSH = 0x8000, DENORMALS_ARE_ZERO = 0x0040, MASKS = 0x1f80, FLAGS = 0x003f, INVALID_DIVIDE_OVERFLOW = 0x0680 };

static const environment environments[] = {
    {"upward", FE_UPWARD, 0, 0},
    {"downward", FE_DOWNWARD, 0, 0},
    {"toward zero", FE_TOWARDZERO, 0, 0},
#ifdef HAVE_CSR
    {"flush to zero", FE_TONEAREST, FLUSH, 0},
    {"denormals are zero", FE_TONEAREST, DENORMALS_ARE_ZERO, 0},
    {"both, upward", FE_UPWARD, FLUSH | DENORMALS_ARE_ZERO, 0},
    {"traps", FE_TONEAREST, 0, INVALID_DIVIDE_OVERFLOW},
    {"traps, downward", FE_DOWNWARD, 0, INVALID_DIVIDE_OVERFLOW},
#endif
};
enum { ENVIRONMENTS = sizeof environments / sizeof *environments };

static void enter(const environment *e) {
    assert_int_equal(fesetround(e->rounding), 0);
#ifdef HAVE_CSR
    _mm_setcsr((_mm_getcsr() & ~(unsigned)FLAGS & ~e->csr_off) | e->csr_on);
#endif
}

/* Compared before anything is asserted, and left before anything is computed. */
static int is_intact(const environment *e) {
    int intact = fegetround() == e->rounding;
#ifdef HAVE_CSR
    unsigned csr = _mm_getcsr();
    intact = intact && (csr & e->csr_on) == e->csr_on && !(csr & e->csr_off);
    intact = intact && ((csr | e->csr_off) & MASKS) == MASKS; /* no trap that was not there */
    intact = intact && (csr & (FLUSH | DENORMALS_ARE_ZERO) & ~e->csr_on) == 0;
#endif
    return intact;
}

static void leave(void) {
#ifdef HAVE_CSR
    _mm_setcsr(MASKS);
#endif
    fesetround(FE_TONEAREST);
}

/* ------------------------------------------------------------------------------------------------ all calls */

/* Bytes of everything that the library computes, one after the other. */
typedef struct record {
    unsigned char *bytes;
    size_t size, room;
} record;

static void note(record *r, const void *bytes, size_t size) {
    if (r->size + size > r->room) {
        r->room = 2 * (r->size + size);
        r->bytes = realloc(r->bytes, r->room);
        assert_non_null(r->bytes);
    }
    memcpy(r->bytes + r->size, bytes, size);
    r->size += size;
}

/* The inputs, made before any environment is entered. */
typedef struct inputs {
    sample cells;
    float *wild; /* [4][64]: NaN, infinities, subnormals, the largest numbers */
    model m;
    qsa_tensors *tensors;
    float *hidden;
} inputs;

static inputs make_inputs(float size) {
    qsa_shape shape = sample_shape();
    uint64_t seed = 151;
    inputs in = {.cells = sample_make(&shape, CELLS, 152), .wild = sample_floats(&seed, 4 * 64, 1e-39f)};
    for (int64_t i = 0; i < CELLS * 2 * 64; i++) {
        in.cells.v[i] *= size;
    }
    const float odd[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, FLT_MIN / 3, -FLT_MIN / 5, 6e-8f, 65520.0f, 0.0f};
    for (int i = 0; i < 10; i++) {
        in.wild[64 + 3 * i] = odd[i];
        in.wild[128 + 5 * i] = odd[9 - i];
    }
    in.m = random_model(small_sizes, 153);
    in.tensors = model_tensors(&in.m, "");
    in.hidden = random_floats(&seed, LAYER_TOKENS * in.m.hidden, 1.0f);
    return in;
}

static void free_inputs(inputs *in) {
    sample_free(&in->cells);
    free(in->wild), free(in->hidden);
    qsa_tensors_close(in->tensors);
    free_model(&in->m);
}

static void note_codecs(const inputs *in, record *r) {
    unsigned char encoded[4 * 64 * 4];
    uint16_t scales[4];
    float back[4 * 64];
    for (int type = QSA_F32; type <= QSA_I8_G64; type++) {
        memset(encoded, 0, sizeof encoded);
        uint16_t *at = type == QSA_I8_G64 ? scales : NULL;
        assert_int_equal(qsa_kv_encode((qsa_type)type, 2, 2, in->wild, encoded, at, NULL), QSA_OK);
        assert_int_equal(qsa_kv_decode((qsa_type)type, 2, 2, encoded, at, back, NULL), QSA_OK);
        note(r, encoded, sizeof encoded);
        note(r, back, sizeof back);
    }
    note(r, scales, sizeof scales);
}

static void note_sequences(qsa_context *context, const inputs *in, record *r) {
    for (int type = QSA_F32; type <= QSA_I8_G64; type++) {
        qsa_cache_options options =
            sample_options(&in->cells, (qsa_type)type, type % 2 ? QSA_F32 : QSA_BF16, 2 * CELLS);
        qsa_cache *cache = sample_cache(context, &options);
        qsa_sequence *s = sample_sequence(cache);
        for (int64_t length = 10; length <= CELLS; length += 35) {
            sample_grow(s, &in->cells, length);
        }
        for (int contract = QSA_BLOCKS; contract <= QSA_DENSE; contract++) {
            sample_result result = sample_decode(cache, s, &in->cells, 1, ROWS, (qsa_contract)contract);
            note(r, result.out, result.out_bytes);
            note(r, result.ids, result.id_bytes);
            sample_result_free(&result);
        }
        qsa_sequence_destroy(s);
        qsa_cache_destroy(cache);
    }
}

static void note_rotations(record *r) {
    static const int64_t positions[] = {0, 1, 4, 1000000, INT32_MAX};
    float row[32][2];
    qsa_shape shape;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(qsa_rope_row(NULL, positions[i], row[0], NULL), QSA_OK);
        note(r, row, sizeof row);
    }
    qsa_shape_qwen38_flash_next(&shape);
    note(r, &shape.scale, sizeof shape.scale);
    note(r, &shape.index_scale, sizeof shape.index_scale);
}

static void note_layer(qsa_context *context, const inputs *in, record *r) {
    qsa_layer_options options = options_of(16);
    qsa_layer *layer;
    qsa_error error;
    sample_ok(qsa_layer_load(context, in->tensors, &options, &layer, &error), &error);
    const qsa_shape *shape = qsa_layer_shape(layer);
    note(r, &shape->scale, sizeof shape->scale);
    note(r, &shape->index_scale, sizeof shape->index_scale);
    outputs o = new_outputs(shape, LAYER_TOKENS);
    qsa_layer_args args = args_of(&o, in->hidden, in->m.hidden, 0, LAYER_TOKENS, ALL_OUTPUTS);
    sample_ok(qsa_layer_project(context, layer, &args, &error), &error);
    for (int i = 0; i < OUTPUTS; i++) {
        note(r, o.x[i], (size_t)(o.width[i] * LAYER_TOKENS) * sizeof(float));
    }
    float out[LAYER_TOKENS * 37];
    sample_ok(qsa_layer_output(context, layer, o.x[0], LAYER_TOKENS, out, &error), &error);
    note(r, out, sizeof out);
    free_outputs(&o);
    qsa_layer_destroy(layer);
}

static record run_all(qsa_context *context, const inputs *in) {
    record r = {NULL, 0, 0};
    note_codecs(in, &r);
    note_rotations(&r);
    note_sequences(context, in, &r);
    note_layer(context, in, &r);
    return r;
}

static void callers_loop(void *user, int64_t items, void (*body)(void *arg, int64_t item), void *arg) {
    (void)user;
    for (int64_t i = items - 1; i >= 0; i--) {
        body(arg, i);
    }
}

/* threads 0: the caller's loop. */
static qsa_context *make_context(int threads) {
    QSA_INIT(qsa_options, options);
    qsa_context *context;
    qsa_error error;
    options.threads = threads ? threads : 1;
    options.parallel_for = threads ? NULL : callers_loop;
    sample_ok(qsa_open(&options, &context, &error), &error);
    return context;
}

/* size: of the values V. 1e-38: outputs are subnormal numbers. */
static void check_environments(float size) {
    inputs in = make_inputs(size);
    qsa_context *plain = make_context(1);
    record expected = run_all(plain, &in);
    qsa_close(plain);
    for (int i = 0; i < ENVIRONMENTS; i++) {
        for (int threads = 0; threads <= 3; threads++) {
            enter(&environments[i]);
            qsa_context *context = make_context(threads); /* its threads inherit the environment */
            record got = run_all(context, &in);
            int intact = is_intact(&environments[i]);
            leave();
            if (!intact) {
                fail_msg("%s, %d threads: the environment is another one", environments[i].name, threads);
            }
            assert_int_equal(got.size, expected.size);
            for (size_t b = 0; b < got.size; b++) {
                if (got.bytes[b] != expected.bytes[b]) {
                    fail_msg("%s, %d threads: byte %zu of %zu differs", environments[i].name, threads, b, got.size);
                }
            }
            free(got.bytes);
            qsa_close(context);
        }
    }
    free(expected.bytes);
    free_inputs(&in);
}

static void any_environment_gives_the_same_bits(void **state) {
    (void)state;
    check_environments(1.0f);
}

static void subnormal_values_are_kept(void **state) {
    (void)state;
    check_environments(1e-39f);
}

/* That the test above tests something: V in f32 below the normal numbers gives an output there, not zeros. */
static void subnormal_outputs_are_numbers(void **state) {
    (void)state;
    inputs in = make_inputs(1e-39f);
    qsa_context *context = make_context(2);
    qsa_cache_options options = sample_options(&in.cells, QSA_F32, QSA_F32, CELLS);
    qsa_cache *cache = sample_cache(context, &options);
    qsa_sequence *s = sample_sequence(cache);
    sample_grow(s, &in.cells, CELLS);
    sample_result r = sample_decode(cache, s, &in.cells, 0, ROWS, QSA_BLOCKS);
    int64_t subnormal = 0, count = (int64_t)(r.out_bytes / sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        subnormal += fpclassify(r.out[i]) == FP_SUBNORMAL;
    }
    assert_true(subnormal > count * 9 / 10);
    sample_result_free(&r);
    qsa_sequence_destroy(s);
    qsa_cache_destroy(cache);
    qsa_close(context);
    free_inputs(&in);
}

/* NaN and infinity in what a decode reads: no trap where the caller has them on. */
static void nothing_traps(void **state) {
    (void)state;
    inputs in = make_inputs(1.0f);
    in.cells.q[(CELLS - 1) * 4 * 64] = NAN;
    in.cells.q[(CELLS - 2) * 4 * 64] = INFINITY;
    in.cells.iq[(CELLS - 3) * 2 * 32] = -INFINITY;
    in.cells.k[70 * 2 * 64] = NAN;
    in.cells.v[71 * 2 * 64] = INFINITY;
    in.cells.raw[72 * 32] = FLT_MAX;
    for (int i = 0; i < ENVIRONMENTS; i++) {
        record r = {NULL, 0, 0};
        enter(&environments[i]);
        qsa_context *context = make_context(2);
        note_sequences(context, &in, &r);
        int intact = is_intact(&environments[i]);
        leave();
        assert_true(intact && r.size > 0);
        free(r.bytes);
        qsa_close(context);
    }
    free_inputs(&in);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_environment_gives_the_same_bits),
        cmocka_unit_test(subnormal_values_are_kept),
        cmocka_unit_test(subnormal_outputs_are_numbers),
        cmocka_unit_test(nothing_traps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
