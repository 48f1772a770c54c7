/* SPDX-License-Identifier: MIT */
/*
 * Same inputs, same bits: 1,000 rows of random batches for each K/V format and contract, hashed. One list of hashes
 * holds for every CPU level, thread count, compiler and machine: golden_hashes.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "golden_hashes.h"
#include "support/layer_model.h"
#include "support/rig.h"

enum { SEQUENCES = 8, ROUNDS = 14, MOST_ROWS = 9, CAPACITY = 8 * 20480 };

static const qsa_type kv_types[4] = {QSA_F32, QSA_F16, QSA_BF16, QSA_I8_G64};
static const qsa_contract contracts[2] = {QSA_BLOCKS, QSA_CELLS};

/* FNV-1a, 64 bits, over 32-bit words, least significant byte first. */
static uint64_t fnv(uint64_t hash, const void *words, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t word;
        memcpy(&word, (const char *)words + i * 4, sizeof word);
        for (int byte = 0; byte < 4; byte++) {
            hash = (hash ^ (word >> (8 * byte) & 0xff)) * UINT64_C(0x100000001b3);
        }
    }
    return hash;
}

static qsa_shape hashed_shape(int which) {
    return which ? shape_of(4, 2, 128, 3, 32, 2, 128) : shape_of(2, 1, 64, 1, 16, 4, 256);
}

typedef struct batch {
    qsa_item items[SEQUENCES];
    queries q;
    int32_t *ids;
    float *out;
    int64_t rows, width, longest;
} batch;

/* An item for each sequence, of 1 to 9 rows, with or without a gate. */
static batch random_batch(const rig *r, rng *random, qsa_sequence *const *sequences) {
    batch b = {.width = qsa_width(&r->shape, QSA_CELLS, INT64_C(1) << 30)};
    int64_t rows[SEQUENCES], width = r->shape.q_heads * r->shape.head_dim;
    for (int i = 0; i < SEQUENCES; i++) {
        int64_t n = qsa_sequence_length(sequences[i], 0);
        rows[i] = rng_range(random, 1, n < MOST_ROWS ? n : MOST_ROWS);
        b.rows += rows[i];
        b.longest = n > b.longest ? n : b.longest;
    }
    b.q = new_queries(random, &r->shape, b.rows);
    b.ids = malloc((size_t)(b.rows * b.width) * sizeof *b.ids);
    b.out = malloc((size_t)(b.rows * width) * sizeof *b.out);
    for (int64_t i = 0, row = 0; i < SEQUENCES; row += rows[i++]) {
        queries part = queries_at(r, &b.q, row, rows[i]);
        b.items[i] = (qsa_item){.sequence = sequences[i], .rows = rows[i], .q = part.q, .iq = part.iq};
        b.items[i].gate = i % 3 ? part.gate : NULL;
        b.items[i].out = b.out + row * width;
        b.items[i].id_stride = b.width;
        b.items[i].ids_out = b.ids + row * b.width;
    }
    return b;
}

static uint64_t decode_batch_hash(const rig *r, batch *b, qsa_contract contract, uint64_t hash) {
    size_t bytes;
    QSA_INIT(qsa_decode_args, args);
    args.items = b->items;
    args.item_count = SEQUENCES;
    args.contract = contract;
    MUST(qsa_plan, r->cache, contract, b->rows, b->longest, 0, 0, &bytes);
    args.workspace_bytes = bytes;
    args.workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
    MUST(qsa_decode, r->cache, &args);
    free(args.workspace);
    hash = fnv(hash, b->ids, b->rows * b->width);
    return fnv(hash, b->out, b->rows * r->shape.q_heads * r->shape.head_dim);
}

static void free_batch(batch *b) {
    free_queries(&b->q);
    free(b->ids), free(b->out);
}

/* Both contracts at once, on the same cells and queries. Returns the rows decoded. */
static int64_t hash_history(const rig_options *options, uint64_t hashes[2]) {
    rig r = open_rig(options);
    rng random = rng_of(options->seed);
    qsa_sequence *sequences[SEQUENCES];
    int64_t rows = 0, stride = options->shape.block == 4 ? 6000 : 500;
    hashes[0] = hashes[1] = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < SEQUENCES; i++) {
        MUST(qsa_sequence_create, r.cache, &sequences[i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < SEQUENCES; i++) {
            append_cells(&r, sequences[i], rng_range(&random, 1, rng_range(&random, 0, 3) ? 40 : stride));
        }
        batch b = random_batch(&r, &random, sequences);
        for (int c = 0; c < 2; c++) {
            hashes[c] = decode_batch_hash(&r, &b, contracts[c], hashes[c]);
        }
        rows += b.rows;
        free_batch(&b);
    }
    for (int i = 0; i < SEQUENCES; i++) {
        qsa_sequence_destroy(sequences[i]);
    }
    close_rig(&r);
    return rows;
}

/* 1,000 rows and more of a format: 14 batches of each of two shapes. */
static void check_format(int type) {
    int wrong = 0;
    for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)) {
        for (int64_t threads = 1; threads <= 3; threads++) {
            int64_t rows = 0;
            for (int shape = 0; shape < 2; shape++) {
                rig_options options = {.shape = hashed_shape(shape), .kv_type = kv_types[type], .cpu = cpu};
                options.key_type = (type + shape) % 2 ? QSA_F32 : QSA_BF16;
                options.threads = threads;
                options.capacity = CAPACITY;
                options.page_cells = 64 * threads; /* rounded below to a power of two */
                options.page_cells = options.page_cells == 192 ? 256 : options.page_cells;
                options.seed = 1000 + (uint64_t)(10 * type + shape);
                uint64_t hashes[2];
                rows += hash_history(&options, hashes);
                for (int c = 0; c < 2; c++) {
                    if (hashes[c] != golden_hashes[type][shape][c]) {
                        wrong++;
                        print_message("%s, shape %d, contract %d, %s, %d threads: 0x%016llx\n",
                                      qsa_type_name(kv_types[type]), shape, c, qsa_cpu_name(cpu), (int)threads,
                                      (unsigned long long)hashes[c]);
                    }
                }
            }
            assert_true(rows >= 1000);
        }
    }
    assert_int_equal(wrong, 0);
}

static void f32_rows_have_the_golden_bits(void **state) {
    (void)state;
    check_format(0);
}

static void f16_rows_have_the_golden_bits(void **state) {
    (void)state;
    check_format(1);
}

static void bf16_rows_have_the_golden_bits(void **state) {
    (void)state;
    check_format(2);
}

static void i8_rows_have_the_golden_bits(void **state) {
    (void)state;
    check_format(3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_rows_have_the_golden_bits),
        cmocka_unit_test(f16_rows_have_the_golden_bits),
        cmocka_unit_test(bf16_rows_have_the_golden_bits),
        cmocka_unit_test(i8_rows_have_the_golden_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
