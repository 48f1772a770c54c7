/* SPDX-License-Identifier: MIT */
/* Faults of other engines that are about time. Only ratios taken in one run, of the quickest of several calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include <qsa/qsa.h>

#include "support/rig.h"

enum { CELLS = 131072, WIDTH = 2048, PARTS = WIDTH / 64 };

static int64_t now_ns(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static rig rig_with(qsa_type kv_type) {
    rig_options options = {.shape = model_shape(), .kv_type = kv_type, .threads = 2, .capacity = CELLS, .seed = 41};
    rig r = open_rig(&options);
    grow(&r, r.sequence, CELLS);
    return r;
}

/* The quickest of `repeats` calls of attend on 512 blocks over all cells; each call has others, so that none finds them near. */
static int64_t quickest_attend(const rig *r, qsa_cpu cpu, int repeats) {
    QSA_INIT(qsa_options, options);
    options.threads = 1, options.cpu = cpu;
    qsa_context *context;
    MUST(qsa_open, &options, &context);
    rng numbers = rng_of(test_seed(41));
    queries q = new_queries(&numbers, &r->shape, 1);
    float *partials = malloc((size_t)(PARTS * r->shape.q_heads * (r->shape.head_dim + 2)) * sizeof *partials);
    int32_t ids[WIDTH];
    int64_t width = WIDTH, quickest = INT64_MAX;
    QSA_INIT(qsa_kv, view);
    MUST(qsa_sequence_kv, r->sequence, 0, &view);
    QSA_INIT(qsa_attend_args, a);
    a.q = q.q, a.rows = 1, a.ids = ids, a.id_stride = WIDTH, a.n_ids = &width, a.kv = &view, a.partials = partials, a.parts = PARTS;
    for (int i = 0; i < repeats; i++) {
        for (int j = 0; j < WIDTH; j++) {
            ids[j] = j / 4 * 256 + i * 4 % 256 + j % 4;
        }
        int64_t start = now_ns();
        MUST(qsa_attend, context, &r->shape, &a);
        int64_t taken = now_ns() - start;
        quickest = taken < quickest ? taken : quickest;
    }
    free(partials);
    free_queries(&q);
    qsa_close(context);
    return quickest;
}

static void fault_41_int8_is_no_slower_than_16_bit(void **state) {
    (void)state;
    rig narrow = rig_with(QSA_I8_G64), bf16 = rig_with(QSA_BF16), f16 = rig_with(QSA_F16);
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        int repeats = cpu == QSA_CPU_C ? 3 : 40, rounds = 0;
        double ratio;
        do { /* a slow kernel is slow in each round, a busy machine is not */
            int64_t i8 = quickest_attend(&narrow, cpu, repeats), b = quickest_attend(&bf16, cpu, repeats);
            int64_t h = quickest_attend(&f16, cpu, repeats);
            ratio = (double)i8 / (double)(b < h ? b : h);
            print_message("%s: i8 takes %.2f of bf16, %.2f of f16\n", qsa_cpu_name(cpu), (double)i8 / (double)b, (double)i8 / (double)h);
        } while (ratio > 1.1 && ++rounds < 5);
        assert_true(ratio <= 1.1);
    }
    close_rig(&narrow);
    close_rig(&bf16);
    close_rig(&f16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_41_int8_is_no_slower_than_16_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
