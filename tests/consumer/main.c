/* SPDX-License-Identifier: MIT */
/* A user's program: one sequence, a few cells, one decoded row. Prints a checksum; exits 0 only if the answer is right.
 */
#include <qsa/qsa.h>

#include <stdio.h>
#include <stdlib.h>

enum { CELLS = 200, DIM = 64, INDEX_DIM = 32, KV_WIDTH = DIM, Q_WIDTH = 2 * DIM, BUDGET = 16 };

static float k[CELLS * KV_WIDTH], v[CELLS * KV_WIDTH], raw[CELLS * INDEX_DIM], q[Q_WIDTH], iq[INDEX_DIM],
    norm[INDEX_DIM];
static float out[Q_WIDTH];
static int32_t ids[BUDGET + 3];

static int failed(qsa_status status, const qsa_error *error) {
    if (status) {
        fprintf(stderr, "%s: %s\n", qsa_status_name(status), error->message);
    }
    return status != QSA_OK;
}

/* K is all zeros, so that the softmax is even and the answer is the mean of the selected V. */
static void make_inputs(void) {
    for (int i = 0; i < CELLS * KV_WIDTH; i++) {
        v[i] = (float)(i * 37 % 101) / 8.0f;
    }
    for (int i = 0; i < CELLS * INDEX_DIM; i++) {
        raw[i] = (float)(i * 29 % 97 - 48) / 16.0f;
    }
    for (int i = 0; i < INDEX_DIM; i++) {
        iq[i] = (float)(i % 7 - 3);
    }
}

static int check(void) {
    double sum = 0;
    for (int i = 0; i < BUDGET; i++) { /* 200 = 50 blocks and no tail: 4 blocks of the budget, ascending */
        if (ids[i] < 0 || ids[i] >= CELLS || (i > 0 && ids[i] <= ids[i - 1]) || ids[i] % 4 != i % 4) {
            return 0;
        }
    }
    for (int d = 0; d < Q_WIDTH; d++) {
        double mean = 0, error;
        for (int i = 0; i < BUDGET; i++) {
            mean += (double)v[ids[i] * KV_WIDTH + d % DIM] / BUDGET;
        }
        error = (double)out[d] - mean;
        if (!(error < 1e-4 && error > -1e-4)) {
            return 0;
        }
        sum += (double)out[d] * (d + 1);
    }
    printf("qsa %s, C: checksum %.4f\n", qsa_version(), sum);
    return 1;
}

int main(void) {
    qsa_context *context = NULL;
    qsa_cache *cache = NULL;
    qsa_sequence *sequence = NULL;
    qsa_error error = {QSA_OK, ""};
    int right = 0;
    make_inputs();
    QSA_INIT(qsa_cache_options, options);
    qsa_shape_qwen38_flash_next(&options.shape);
    options.shape.q_heads = 2, options.shape.kv_heads = 1, options.shape.head_dim = DIM, options.shape.budget = BUDGET;
    options.shape.index_heads = 1, options.shape.index_dim = INDEX_DIM;
    options.layers = 1, options.kv_type = QSA_F32, options.capacity = CELLS, options.index_norm = norm;
    QSA_INIT(qsa_rope, rope);
    rope.dims = INDEX_DIM;
    options.rope = rope;
    QSA_INIT(qsa_append_args, append);
    append.cells = CELLS, append.k = k, append.v = v, append.raw_index = raw;
    QSA_INIT(qsa_decode_args, decode);
    if (!failed(qsa_open(NULL, &context, &error), &error) &&
        !failed(qsa_cache_create(context, &options, &cache, &error), &error) &&
        !failed(qsa_sequence_create(cache, &sequence, &error), &error) &&
        !failed(qsa_append(sequence, &append, &error), &error) &&
        !failed(qsa_plan(cache, QSA_BLOCKS, 1, CELLS, 0, 0, &decode.workspace_bytes, &error), &error)) {
        qsa_item item = {
            .sequence = sequence, .rows = 1, .q = q, .iq = iq, .out = out, .ids_out = ids, .id_stride = BUDGET + 3};
        decode.items = &item;
        decode.item_count = 1;
        decode.workspace = aligned_alloc(64, decode.workspace_bytes);
        right = decode.workspace && !failed(qsa_decode(cache, &decode, &error), &error) && check();
        free(decode.workspace);
    }
    qsa_sequence_destroy(sequence);
    qsa_cache_destroy(cache);
    qsa_close(context);
    return right ? 0 : 1;
}
