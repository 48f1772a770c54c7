/* SPDX-License-Identifier: MIT */
/* qsa_score(): checks the caller's arrays, cuts the work by blocks and rows, and walks pages. */
#include "score/score.h"

#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "runtime/status.h"

enum { PAGE_BLOCKS_MAX = 1 << 30 };

static int is_power_of_two(int64_t x) {
    return x > 0 && (x & (x - 1)) == 0;
}

static qsa_status check_tiles(const qsa_keys *out, qsa_error *error) {
    if ((uintptr_t)out->data % 64 || out->page_stride % 64) {
        return qsa_fail(error, QSA_E_ARGUMENT, "keys: tiles need data and page_stride to be multiples of 64, got %p and %lld",
                        out->data, (long long)out->page_stride);
    }
    if (out->pages && out->page_blocks % QSA_TILE) {
        return qsa_fail(error, QSA_E_ARGUMENT, "keys.page_blocks is %lld: tiles need a multiple of 16",
                        (long long)out->page_blocks);
    }
    return QSA_OK;
}

/* Strides filled: no offset may overflow. */
static qsa_status check_span(const qsa_keys *out, qsa_error *error) {
    int64_t in_page = out->pages ? out->page_blocks : out->blocks, last_page = 0;
    for (int64_t i = 0; out->pages && i < qsa_div_up(out->blocks, out->page_blocks); i++) {
        last_page = qsa_max(last_page, out->pages[i]);
    }
    int64_t block = qsa_mul(in_page, out->block_stride), page = qsa_mul(last_page + 1, out->page_stride);
    if (block < 0 || page < 0 || block / 2 + page / 2 >= INT64_C(1) << 61) {
        return qsa_fail(error, QSA_E_ARGUMENT, "keys.block_stride is %lld and keys.page_stride is %lld: the keys pass 2^62 bytes",
                        (long long)out->block_stride, (long long)out->page_stride);
    }
    return QSA_OK;
}

qsa_status qsa_keys_resolve(const qsa_shape *shape, const qsa_keys *keys, qsa_keys *out, qsa_error *error) {
    if (!keys || keys->size != sizeof *keys) {
        return qsa_fail(error, QSA_E_ARGUMENT, "keys is %s: expected a qsa_keys with its size set",
                        keys ? "of another size" : "NULL");
    }
    *out = *keys;
    if (keys->type != QSA_F32 && keys->type != QSA_BF16) {
        return qsa_fail(error, QSA_E_SHAPE, "keys.type is %s: expected f32 or bf16", qsa_type_name(keys->type));
    }
    if (keys->layout != QSA_KEYS_ROWS && keys->layout != QSA_KEYS_TILES) {
        return qsa_fail(error, QSA_E_ARGUMENT, "keys.layout is %d: expected rows (0) or tiles (1)", (int)keys->layout);
    }
    if (keys->blocks < 0 || keys->blocks > INT32_MAX) {
        return qsa_fail(error, QSA_E_ARGUMENT, "keys.blocks is %lld: expected 0..2147483647", (long long)keys->blocks);
    }
    if (!keys->data && keys->blocks > 0) {
        return qsa_fail(error, QSA_E_ARGUMENT, "keys.data is NULL with %lld blocks", (long long)keys->blocks);
    }
    int64_t bytes = keys->type == QSA_F32 ? 4 : 2;
    if (!keys->block_stride || keys->layout == QSA_KEYS_TILES) {
        out->block_stride = shape->index_dim * bytes;
    }
    if (out->block_stride < 0 || out->block_stride % bytes) {
        return qsa_fail(error, QSA_E_ARGUMENT, "keys.block_stride is %lld: expected a multiple of %lld, 0 or more",
                        (long long)keys->block_stride, (long long)bytes);
    }
    if (keys->pages) {
        if (!is_power_of_two(keys->page_blocks) || keys->page_blocks > PAGE_BLOCKS_MAX) {
            return qsa_fail(error, QSA_E_ARGUMENT, "keys.page_blocks is %lld: expected a power of two, at most 2^30",
                            (long long)keys->page_blocks);
        }
        if (!keys->page_stride) {
            /* 0 where it overflows: check_span() refuses it */
            out->page_stride = qsa_max(0, qsa_mul(keys->page_blocks, out->block_stride));
        }
        if (out->page_stride < 0 || out->page_stride % bytes) {
            return qsa_fail(error, QSA_E_ARGUMENT, "keys.page_stride is %lld: expected a multiple of %lld, 0 or more",
                            (long long)keys->page_stride, (long long)bytes);
        }
        for (int64_t i = 0; i < qsa_div_up(keys->blocks, keys->page_blocks); i++) {
            if (keys->pages[i] < 0) {
                return qsa_fail(error, QSA_E_ARGUMENT, "keys.pages[%lld] is %d: expected a page, 0 or more", (long long)i,
                                (int)keys->pages[i]);
            }
        }
    } else {
        out->page_stride = 0;
    }
    qsa_status status = check_span(out, error);
    return !status && keys->layout == QSA_KEYS_TILES && keys->blocks > 0 ? check_tiles(out, error) : status;
}

const char *qsa_keys_block(const qsa_keys *keys, int64_t b) {
    if (!keys->pages) {
        return (const char *)keys->data + b * keys->block_stride;
    }
    return (const char *)keys->data + keys->pages[b / keys->page_blocks] * keys->page_stride +
           b % keys->page_blocks * keys->block_stride;
}

/* Blocks [b, end) that lie in one page, as one kernel call. */
static void run_in_page(const qsa_score_kernels *kernels, const qsa_score_range *range, int64_t b, int64_t end) {
    const qsa_keys *keys = range->keys;
    qsa_score_job job = {
        .keys = qsa_keys_block(keys, b),
        .next = end < range->last ? qsa_keys_block(keys, end) : NULL,
        .block_stride = keys->block_stride,
        .heads = range->heads,
        .dim = range->dim,
        .scale = range->scale,
    };
    for (int64_t r = 0; r < range->rows; r++) {
        int64_t count = qsa_min(range->blocks[r], end) - b;
        if (count > 0) {
            job.iq[job.rows] = range->iq[r];
            job.scores[job.rows] = range->scores[r] + b;
            job.count[job.rows] = count;
            job.rows++;
        }
    }
    if (job.rows) {
        kernels->run[keys->layout][keys->type == QSA_BF16](&job);
    }
}

void qsa_score_run(const qsa_score_kernels *kernels, const qsa_score_range *range) {
    int64_t b = range->first;
    while (b < range->last) {
        int64_t end = range->last;
        if (range->keys->pages) {
            int64_t page = range->keys->page_blocks;
            end = qsa_min(end, (b / page + 1) * page);
        }
        run_in_page(kernels, range, b, end);
        b = end;
    }
}

typedef struct score_call {
    const qsa_score_kernels *kernels;
    const qsa_shape *shape;
    const qsa_score_args *args;
    qsa_keys keys;
    int64_t item, ranges; /* blocks of a range, ranges */
} score_call;

static void score_item(void *arg, int64_t item) {
    const score_call *call = arg;
    const qsa_score_args *a = call->args;
    int64_t first_row = item / call->ranges * QSA_SCORE_ROWS;
    int64_t index_size = call->shape->index_heads * call->shape->index_dim;
    qsa_score_range range = {
        .keys = &call->keys,
        .heads = call->shape->index_heads,
        .dim = call->shape->index_dim,
        .scale = call->shape->index_scale,
        .rows = qsa_min(a->rows - first_row, QSA_SCORE_ROWS),
        .first = item % call->ranges * call->item,
    };
    int64_t last = 0;
    for (int64_t r = 0; r < range.rows; r++) {
        int64_t row = first_row + r;
        range.iq[r] = a->iq + row * index_size;
        range.scores[r] = a->scores + row * a->score_stride;
        range.blocks[r] = a->n[row] / call->shape->block;
        last = qsa_max(last, range.blocks[r]);
    }
    range.last = qsa_min(last, range.first + call->item);
    qsa_score_run(call->kernels, &range);
}

qsa_status qsa_score(qsa_context *context, const qsa_shape *shape, const qsa_score_args *args, qsa_error *error) {
    if (!context) {
        return qsa_fail(error, QSA_E_ARGUMENT, "context is NULL");
    }
    qsa_status status = qsa_shape_check(shape, error);
    if (status) {
        return status;
    }
    if (!args || args->size != sizeof *args) {
        return qsa_fail(error, QSA_E_ARGUMENT, "args is %s: expected a qsa_score_args with its size set",
                        args ? "of another size" : "NULL");
    }
    score_call call = {.kernels = qsa_context_score(context), .shape = shape, .args = args};
    if ((status = qsa_keys_resolve(shape, args->keys, &call.keys, error))) {
        return status;
    }
    if (args->rows < 0) {
        return qsa_fail(error, QSA_E_ARGUMENT, "rows is %lld: expected 0 or more", (long long)args->rows);
    }
    if (args->rows > 0 && (!args->iq || !args->n || !args->scores)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL with %lld rows", !args->iq ? "iq" : !args->n ? "n" : "scores",
                        (long long)args->rows);
    }
    if (!qsa_array_fits(args->rows, args->score_stride, 1) ||
        !qsa_array_fits(args->rows, shape->index_heads, shape->index_dim)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "rows is %lld and score_stride is %lld: an array passes 2^62 bytes",
                        (long long)args->rows, (long long)args->score_stride);
    }
    int64_t longest = 0;
    for (int64_t t = 0; t < args->rows; t++) {
        int64_t blocks = args->n[t] / shape->block;
        if (args->n[t] < 0 || blocks > call.keys.blocks) {
            return qsa_fail(error, QSA_E_ARGUMENT, "n[%lld] is %lld: expected 0 or more, and at most %lld blocks exist",
                            (long long)t, (long long)args->n[t], (long long)call.keys.blocks);
        }
        longest = qsa_max(longest, blocks);
    }
    if (args->rows > 0 && args->score_stride < longest + 1) {
        return qsa_fail(error, QSA_E_ARGUMENT, "score_stride is %lld: expected at least %lld", (long long)args->score_stride,
                        (long long)(longest + 1));
    }
    call.item = qsa_score_item(longest);
    call.ranges = qsa_max(1, qsa_div_up(longest, call.item));
    if (longest > 0) {
        qsa_run(context, call.ranges * qsa_div_up(args->rows, QSA_SCORE_ROWS), score_item, &call);
    }
    for (int64_t t = 0; t < args->rows; t++) {
        args->scores[t * args->score_stride + args->n[t] / shape->block] = QSA_INFINITY;
    }
    return qsa_ok(error);
}
