/* SPDX-License-Identifier: MIT */
/* Decoding a batch of the world's sequences, and comparing the answers with the model's. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

/* One item's inputs and outputs. */
typedef struct batch_item {
    const world_sequence *sequence;
    int64_t rows, first_n; /* n of row 0 */
    float *q, *gate, *iq, *out, *again;
    int32_t *ids;
    int64_t *n_ids, *seen;
} batch_item;

typedef struct batch {
    const world_decode_options *options;
    int64_t count, rows, longest, id_stride;
    qsa_item items[WORLD_ITEMS];
    batch_item item[WORLD_ITEMS];
} batch;

static int64_t row_floats(const world *w) {
    return w->options.shape.q_heads * w->options.shape.head_dim;
}

static int64_t index_floats(const world *w) {
    return w->options.shape.index_heads * w->options.shape.index_dim;
}

static void make_item(const world *w, batch *b, const world_pick *pick) {
    const world_sequence *s = &w->slot[pick->slot];
    const world_layer *layer = &s->layer[b->options->layer];
    batch_item *item = &b->item[b->count];
    int64_t rows = pick->rows < layer->length ? pick->rows : layer->length, width = row_floats(w), index = index_floats(w);
    *item = (batch_item){s, rows, layer->length - rows + 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL};
    item->q = world_take(rows * width, 4);
    item->gate = world_take(rows * width, 4);
    item->iq = world_take(rows * index, 4);
    item->out = world_take(rows * width, 4);
    item->again = world_take(rows * width, 4);
    item->ids = world_take(rows * b->id_stride, 4);
    item->n_ids = world_take(rows, 8);
    item->seen = world_take(rows, 8);
    for (int64_t t = 0; t < rows; t++) {
        uint32_t seed = layer->seeds[item->first_n + t - 1];
        world_values(seed, b->options->layer, WORLD_Q, width, item->q + t * width);
        world_values(seed, b->options->layer, WORLD_GATE, width, item->gate + t * width);
        world_values(seed, b->options->layer, WORLD_IQ, index, item->iq + t * index);
        item->n_ids[t] = qsa_width(&w->options.shape, b->options->contract, item->first_n + t);
        item->seen[t] = item->first_n + t;
    }
    b->items[b->count] = (qsa_item){.sequence = s->real, .rows = rows, .q = item->q, .gate = item->gate, .iq = item->iq,
                                    .out = item->out, .id_stride = b->id_stride, .ids_out = item->ids};
    b->rows += rows;
    b->longest = layer->length > b->longest ? layer->length : b->longest;
    b->count++;
}

static void free_item(batch_item *item) {
    free(item->q);
    free(item->gate);
    free(item->iq);
    free(item->out);
    free(item->again);
    free(item->ids);
    free(item->n_ids);
    free(item->seen);
}

/* Index keys are wanted where a row does not read everything. */
static qsa_status decode_status(const world *w, const batch *b) {
    for (int64_t i = 0; i < b->count; i++) {
        const batch_item *item = &b->item[i];
        int64_t block = w->options.shape.block, keyed = item->sequence->layer[b->options->layer].keyed;
        for (int64_t t = 0; t < item->rows; t++) {
            int64_t n = item->first_n + t;
            if (item->n_ids[t] < n && n / block > keyed / block) {
                return QSA_E_STATE;
            }
        }
    }
    return QSA_OK;
}

static qsa_status call_decode(const world *w, const batch *b, qsa_cache *cache, qsa_error *error) {
    (void)w;
    const world_decode_options *o = b->options;
    QSA_INIT(qsa_decode_args, args);
    args.layer = o->layer;
    args.items = b->items;
    args.item_count = b->count;
    args.contract = o->contract;
    args.chunk = o->chunk;
    args.fold = o->fold;
    int64_t rows = o->waves && o->waves < b->rows ? o->waves : b->rows;
    if (qsa_plan(cache, o->contract, rows, b->longest, o->chunk, o->fold, &args.workspace_bytes, error)) {
        world_fail("plan: %s", error->message);
    }
    args.workspace = world_take((int64_t)args.workspace_bytes, 1);
    qsa_status status = qsa_decode(cache, &args, error);
    free(args.workspace);
    return status;
}

/* ------------------------------------------------------------------------------------------------ comparing */

static void compare_row(const world *w, const batch *b, const batch_item *item, const world_memory *memory, int64_t t) {
    int64_t n = item->first_n + t, width = row_floats(w);
    float *out = world_take(width, 4);
    int32_t *ids = world_take(n, 4), *real = item->ids + t * b->id_stride;
    int64_t count = world_answer(w, memory, b->options, n, out, ids);
    if (count != item->n_ids[t] || memcmp(ids, real, (size_t)count * sizeof *ids) != 0) {
        world_fail("the ids of row %lld, which sees %lld cells of layer %lld, are not the model's", (long long)t, (long long)n,
                   (long long)b->options->layer);
    }
    for (int64_t i = count; i < b->id_stride; i++) {
        if (real[i] != -1) {
            world_fail("behind %lld ids of row %lld there is %d", (long long)count, (long long)t, (int)real[i]);
        }
    }
    if (memcmp(out, item->out + t * width, (size_t)width * sizeof *out) != 0) {
        world_fail("the output of row %lld, which sees %lld cells of layer %lld, is not the model's", (long long)t, (long long)n,
                   (long long)b->options->layer);
    }
    free(out);
    free(ids);
}

static void compare_item(world *w, const batch *b, const batch_item *item) {
    world_memory *memory = NULL;
    for (int64_t t = 0; t < item->rows; t++) {
        if (++w->counts.answers % w->options.check_every == 0) {
            memory = memory ? memory : world_remember(w, item->sequence, b->options->layer);
            compare_row(w, b, item, memory, t);
            w->counts.checked++;
        }
    }
    world_forget(memory);
}

/* The lists that came out, given back: the same bits without a score. */
static void reuse_lists(const world *w, batch *b, qsa_cache *cache) {
    qsa_error error;
    for (int64_t i = 0; i < b->count; i++) {
        batch_item *item = &b->item[i];
        b->items[i].ids = item->ids;
        b->items[i].n_ids = item->n_ids;
        b->items[i].seen = b->options->contract == QSA_DENSE ? NULL : item->seen;
        b->items[i].ids_out = NULL;
        b->items[i].iq = NULL;
        b->items[i].out = item->again;
    }
    if (call_decode(w, b, cache, &error)) {
        world_fail("decode of given lists: %s", error.message);
    }
    for (int64_t i = 0; i < b->count; i++) {
        const batch_item *item = &b->item[i];
        if (memcmp(item->out, item->again, (size_t)(item->rows * row_floats(w)) * sizeof(float)) != 0) {
            world_fail("the ids of item %lld, given back, give another output", (long long)i);
        }
    }
}

void world_decode(world *w, const world_pick *picks, int64_t count, const world_decode_options *options) {
    batch b = {.options = options, .count = 0};
    int cache = w->slot[picks[0].slot].cache;
    int64_t longest = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t length = w->slot[picks[i].slot].layer[options->layer].length;
        longest = length > longest ? length : longest;
    }
    b.id_stride = qsa_width(&w->options.shape, options->contract, longest) + w->options.shape.block;
    for (int64_t i = 0; i < count && i < WORLD_ITEMS; i++) {
        make_item(w, &b, &picks[i]);
    }
    qsa_error error;
    qsa_status expected = decode_status(w, &b), status = call_decode(w, &b, w->cache[cache].real, &error);
    w->counts.calls++;
    if (status != expected) {
        world_fail("decode: %s (\"%s\"), the model says %s", qsa_status_name(status), status ? error.message : "",
                   qsa_status_name(expected));
    }
    for (int64_t i = 0; !status && i < b.count; i++) {
        compare_item(w, &b, &b.item[i]);
    }
    if (!status && options->reuse) {
        reuse_lists(w, &b, w->cache[cache].real);
    }
    for (int64_t i = 0; i < b.count; i++) {
        free_item(&b.item[i]);
    }
}
