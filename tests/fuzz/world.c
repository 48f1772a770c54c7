/* SPDX-License-Identifier: MIT */
/* The world's life, and what makes its sequences grow, shrink, fork and move. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t div_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* ------------------------------------------------------------------------------------------------ the same */

static void expect(world *w, const char *call, qsa_status status, qsa_status expected, const qsa_error *error) {
    w->counts.calls++;
    w->counts.refused += status != QSA_OK;
    if (status != expected || error->status != status) {
        world_fail("%s: %s (\"%s\"), the model says %s", call, qsa_status_name(status), status ? error->message : "",
                   qsa_status_name(expected));
    }
    if (!status != !error->message[0] || memchr(error->message, '\0', sizeof error->message) == NULL) {
        world_fail("%s: status %s with the message \"%.500s\"", call, qsa_status_name(status), error->message);
    }
}

static void same_number(const char *name, int64_t real, int64_t model) {
    if (real != model) {
        world_fail("%s is %lld: the model says %lld", name, (long long)real, (long long)model);
    }
}

static void same_cache(const world_cache *c) {
    QSA_INIT(qsa_cache_stats, stats);
    qsa_error error;
    if (qsa_cache_get_stats(c->real, &stats, &error)) {
        world_fail("stats: %s", error.message);
    }
    same_number("pages", stats.pages, c->pages);
    same_number("pages_free", stats.pages_free, c->free_count);
    same_number("pages_shared", stats.pages_shared, c->shared_count);
    same_number("pages_copied", stats.pages_copied, c->pages_copied);
    same_number("sequences", stats.sequences, c->sequences);
    same_number("block_keys_built", stats.block_keys_built, c->block_keys_built);
    same_number("bytes_used", stats.bytes_used,
                (c->pages - c->free_count) * c->page_cells * stats.bytes_per_cell * c->options.layers);
}

static void same_sequence(const world *w, int slot) {
    const world_sequence *s = &w->slot[slot];
    for (int64_t l = 0; s->real && l < WORLD_LAYERS; l++) {
        same_number("length", qsa_sequence_length(s->real, l), s->layer[l].length);
    }
    for (int i = 0; i < WORLD_CACHES; i++) {
        same_cache(&w->cache[i]);
    }
}

/* ------------------------------------------------------------------------------------------------ life */

static void open_cache(world *w, int i) {
    const world_options *o = &w->options;
    world_cache *c = &w->cache[i];
    qsa_error error;
    c->options = (qsa_cache_options){
        .size = sizeof c->options,
        .shape = o->shape,
        .layers = WORLD_LAYERS,
        .kv_type = o->kv_type,
        .key_type = o->key_type,
        .capacity = o->capacity,
        .page_cells = o->page_cells[i],
        .rollback = o->rollback[i],
        .index_norm = w->norm,
        .eps = 1e-6f,
        .rope = {.size = sizeof c->options.rope, .dims = 16, .theta = 1e7},
        .screen = o->screen[i],
    };
    if (qsa_cache_create(o->context[i], &c->options, &c->real, &error)) {
        world_fail("cache: %s", error.message);
    }
    c->page_cells = o->page_cells[i];
    c->rollback = o->rollback[i];
    c->pages = c->free_count = div_up(o->capacity, c->page_cells);
    c->holders = calloc((size_t)c->pages, sizeof *c->holders);
    w->longest = most(w->longest, c->pages * c->page_cells);
}

static world_sequence empty_sequence(const world *w) {
    world_sequence s = {.real = NULL};
    for (int l = 0; l < WORLD_LAYERS; l++) {
        s.layer[l].seeds = calloc((size_t)w->longest, sizeof *s.layer[l].seeds);
        s.layer[l].positions = calloc((size_t)w->longest, sizeof *s.layer[l].positions);
    }
    s.pages = calloc((size_t)w->longest, sizeof *s.pages);
    return s;
}

world *world_open(const world_options *options) {
    world *w = calloc(1, sizeof *w);
    int64_t dim = options->shape.index_dim;
    w->options = *options;
    w->norm = world_take(WORLD_LAYERS * dim, sizeof *w->norm);
    world_values(1, 0, WORLD_NORM, WORLD_LAYERS * dim, w->norm);
    for (int i = 0; i < WORLD_CACHES; i++) {
        open_cache(w, i);
    }
    return w;
}

static void free_sequence(world_sequence *s) {
    for (int l = 0; l < WORLD_LAYERS; l++) {
        free(s->layer[l].seeds);
        free(s->layer[l].positions);
    }
    free(s->pages);
    *s = (world_sequence){.real = NULL};
}

void world_close(world *w) {
    for (int i = 0; i < WORLD_SLOTS; i++) {
        world_destroy(w, i);
    }
    for (int i = 0; i < WORLD_CACHES; i++) {
        same_number("pages free in the end", w->cache[i].free_count, w->cache[i].pages);
        qsa_cache_destroy(w->cache[i].real);
        free(w->cache[i].holders);
    }
    free(w->norm);
    free(w);
}

/* ------------------------------------------------------------------------------------------------ pages */

static int32_t take_page(world_cache *c) {
    int32_t page = 0;
    while (c->holders[page]) {
        page++;
    }
    c->holders[page] = 1;
    c->free_count--;
    return page;
}

static void hold_page(world_cache *c, int32_t page) {
    c->shared_count += ++c->holders[page] == 2;
}

static void release_page(world_cache *c, int32_t page) {
    c->shared_count -= c->holders[page] == 2;
    c->free_count += --c->holders[page] == 0;
}

static void drop_pages(world_cache *c, world_sequence *s, int64_t keep) {
    while (s->page_count > keep) {
        release_page(c, s->pages[--s->page_count]);
    }
}

/* 0: too few are free. */
static int own_pages(world_cache *c, world_sequence *s, int64_t start, int64_t end) {
    int64_t first = start / c->page_cells, last = div_up(end, c->page_cells), had = least(s->page_count, last), copies = 0;
    for (int64_t i = first; i < had; i++) {
        copies += c->holders[s->pages[i]] > 1;
    }
    if (copies + most(last - s->page_count, 0) > c->free_count) {
        return 0;
    }
    for (int64_t i = first; i < had; i++) {
        if (c->holders[s->pages[i]] > 1) {
            int32_t shared = s->pages[i];
            s->pages[i] = take_page(c);
            release_page(c, shared);
        }
    }
    while (s->page_count < last) {
        s->pages[s->page_count++] = take_page(c);
    }
    c->pages_copied += copies;
    return 1;
}

/* ------------------------------------------------------------------------------------------------ create, destroy */

void world_create(world *w, int slot, int cache) {
    world_destroy(w, slot);
    world_sequence *s = &w->slot[slot];
    qsa_error error;
    *s = empty_sequence(w);
    s->cache = cache;
    expect(w, "create", qsa_sequence_create(w->cache[cache].real, &s->real, &error), QSA_OK, &error);
    w->cache[cache].sequences++;
    same_sequence(w, slot);
}

void world_destroy(world *w, int slot) {
    world_sequence *s = &w->slot[slot];
    if (!s->real) {
        return;
    }
    world_cache *c = &w->cache[s->cache];
    qsa_sequence_destroy(s->real);
    drop_pages(c, s, 0);
    c->sequences--;
    free_sequence(s);
    same_sequence(w, slot);
}

/* ------------------------------------------------------------------------------------------------ append */

typedef struct inputs {
    float *k, *v, *raw, *rotation;
} inputs;

static inputs make_inputs(const world *w, int64_t layer, int64_t cells, uint32_t seed, int32_t position) {
    const qsa_shape *shape = &w->options.shape;
    int64_t width = shape->kv_heads * shape->head_dim, dim = shape->index_dim, dims = w->cache[0].options.rope.dims;
    inputs in = {world_take(cells * width, 4), world_take(cells * width, 4), world_take(cells * dim, 4), NULL};
    in.rotation = position >= 0 ? world_take(cells * dims, 4) : NULL;
    for (int64_t i = 0; i < cells; i++) {
        world_values(seed + (uint32_t)i, layer, WORLD_K, width, in.k + i * width);
        world_values(seed + (uint32_t)i, layer, WORLD_V, width, in.v + i * width);
        world_values(seed + (uint32_t)i, layer, WORLD_RAW, dim, in.raw + i * dim);
        if (in.rotation) {
            world_rotation(w, position + i / 3, in.rotation + i * dims);
        }
    }
    return in;
}

static void note_cells(world_cache *c, world_layer *layer, int64_t cells, uint32_t seed, int unkeyed, int32_t position) {
    int64_t block = c->options.shape.block, end = layer->length + cells;
    int keyed = !unkeyed && layer->keyed == layer->length;
    for (int64_t i = 0; i < cells; i++) {
        layer->seeds[layer->length + i] = seed + (uint32_t)i;
        layer->positions[layer->length + i] = position < 0 ? -1 : position + (int32_t)(i / 3);
    }
    if (keyed) {
        c->block_keys_built += end / block - layer->length / block;
        layer->raw_low = most(layer->raw_low, end - c->rollback);
        layer->keyed = end;
    }
    layer->length = end;
}

void world_append(world *w, int slot, int64_t layer, int64_t cells, uint32_t seed, int unkeyed, int32_t position) {
    world_sequence *s = &w->slot[slot];
    world_cache *c = &w->cache[s->cache];
    world_layer *to = &s->layer[layer];
    qsa_status expected = QSA_OK;
    qsa_error error;
    inputs in = make_inputs(w, layer, cells, seed, unkeyed ? -1 : position);
    QSA_INIT(qsa_append_args, args);
    args.layer = layer;
    args.cells = cells;
    args.k = in.k;
    args.v = in.v;
    args.raw_index = unkeyed ? NULL : in.raw;
    args.rotation = in.rotation;
    if (cells && (to->length + cells > c->pages * c->page_cells || !own_pages(c, s, to->length, to->length + cells))) {
        expected = QSA_E_CAPACITY;
    }
    expect(w, "append", qsa_append(s->real, &args, &error), expected, &error);
    if (!expected && cells) {
        note_cells(c, to, cells, seed, unkeyed, position);
    }
    free(in.k);
    free(in.v);
    free(in.raw);
    free(in.rotation);
    same_sequence(w, slot);
}

/* ------------------------------------------------------------------------------------------------ truncate, fork */

/* Whether the first `length` cells can stand alone. */
static qsa_status cut_status(const world *w, const world_sequence *s, int64_t length) {
    int64_t start = length - length % w->options.shape.block;
    for (int l = 0; l < WORLD_LAYERS; l++) {
        if (length < s->layer[l].keyed && start < length && start < s->layer[l].raw_low) {
            return QSA_E_STATE;
        }
    }
    return QSA_OK;
}

static int64_t cut(world_sequence *s, int64_t length) {
    int64_t longest = 0;
    for (int l = 0; l < WORLD_LAYERS; l++) {
        world_layer *layer = &s->layer[l];
        layer->length = least(layer->length, length);
        layer->keyed = least(layer->keyed, length);
        layer->raw_low = least(layer->raw_low, layer->keyed);
        longest = most(longest, layer->length);
    }
    return longest;
}

void world_truncate(world *w, int slot, int64_t length) {
    world_sequence *s = &w->slot[slot];
    world_cache *c = &w->cache[s->cache];
    qsa_error error;
    qsa_status expected = cut_status(w, s, length);
    expect(w, "truncate", qsa_truncate(s->real, length, &error), expected, &error);
    if (!expected) {
        drop_pages(c, s, div_up(cut(s, length), c->page_cells));
        w->counts.truncates++;
    }
    same_sequence(w, slot);
}

static world_sequence copy_cells(const world *w, const world_sequence *from, int64_t length) {
    world_sequence s = empty_sequence(w);
    s.cache = from->cache;
    for (int l = 0; l < WORLD_LAYERS; l++) {
        world_layer mine = s.layer[l], *to = &s.layer[l];
        const world_layer *theirs = &from->layer[l];
        memcpy(mine.seeds, theirs->seeds, (size_t)theirs->length * sizeof *mine.seeds);
        memcpy(mine.positions, theirs->positions, (size_t)theirs->length * sizeof *mine.positions);
        *to = *theirs;
        to->seeds = mine.seeds;
        to->positions = mine.positions;
    }
    cut(&s, length);
    return s;
}

static int64_t longest_of(const world_sequence *s) {
    return most(s->layer[0].length, s->layer[1].length);
}

static void put(world *w, int slot, world_sequence *s) {
    world_destroy(w, slot);
    w->slot[slot] = *s;
    same_sequence(w, slot);
}

void world_fork(world *w, int from, int to, int64_t length) {
    world_sequence *source = &w->slot[from];
    world_cache *c = &w->cache[source->cache];
    qsa_sequence *made = NULL;
    qsa_error error;
    qsa_status expected = cut_status(w, source, length);
    expect(w, "fork", qsa_sequence_fork(source->real, length, &made, &error), expected, &error);
    if (expected) {
        same_sequence(w, from);
        return;
    }
    world_sequence fork = copy_cells(w, source, length);
    fork.real = made;
    fork.page_count = div_up(longest_of(&fork), c->page_cells);
    for (int64_t i = 0; i < fork.page_count; i++) {
        hold_page(c, fork.pages[i] = source->pages[i]);
    }
    c->sequences++;
    w->counts.forks++;
    put(w, to, &fork);
}

/* ------------------------------------------------------------------------------------------------ snapshots */

typedef struct bytes {
    char *data;
    int64_t size, room, at;
} bytes;

static int write_bytes(void *user, const void *data, int64_t count) {
    bytes *b = user;
    if (b->size + count > b->room) {
        b->room = 2 * (b->size + count);
        char *grown = realloc(b->data, (size_t)b->room);
        if (!grown) {
            return 1;
        }
        b->data = grown;
    }
    memcpy(b->data + b->size, data, (size_t)count);
    b->size += count;
    return 0;
}

static int64_t read_bytes(void *user, void *data, int64_t count) {
    bytes *b = user;
    int64_t part = least(count, b->size - b->at);
    memcpy(data, b->data + b->at, (size_t)part);
    b->at += part;
    return part;
}

/* What stands in the way first: the header, pages, a section. */
static qsa_status restore_status(world_cache *c, world_sequence *s, int64_t damaged_bit) {
    int64_t header = 140 + 32 * WORLD_LAYERS;
    if (damaged_bit >= 0 && damaged_bit < header * 8) {
        return QSA_E_FORMAT;
    }
    if (!own_pages(c, s, 0, longest_of(s))) {
        return QSA_E_CAPACITY;
    }
    if (damaged_bit >= 0) {
        drop_pages(c, s, 0);
        return QSA_E_FORMAT;
    }
    return QSA_OK;
}

static void restore(world *w, bytes *saved, const world_sequence *source, int to, int cache, int64_t length, int64_t damaged_bit) {
    world_cache *c = &w->cache[cache];
    world_sequence s = copy_cells(w, source, length);
    qsa_error error;
    s.cache = cache;
    for (int l = 0; l < WORLD_LAYERS; l++) {
        s.layer[l].raw_low = most(s.layer[l].raw_low, s.layer[l].keyed - c->rollback);
    }
    qsa_status expected = restore_status(c, &s, damaged_bit);
    expect(w, "restore", qsa_sequence_restore(c->real, read_bytes, saved, &s.real, &error), expected, &error);
    if (expected) {
        if (s.real) {
            world_fail("a sequence came of a restore that failed");
        }
        free_sequence(&s);
        same_sequence(w, to);
        return;
    }
    same_number("bytes read", saved->at, saved->size);
    c->sequences++;
    w->counts.snapshots++;
    put(w, to, &s);
}

void world_move(world *w, int from, int to, int cache, int64_t length, int64_t damage) {
    const world_sequence *source = &w->slot[from];
    bytes saved = {NULL, 0, 0, 0};
    qsa_error error;
    qsa_status expected = cut_status(w, source, length);
    expect(w, "save", qsa_sequence_save(source->real, length, write_bytes, &saved, &error), expected, &error);
    if (!expected) {
        int64_t bit = damage < 0 ? -1 : damage % (saved.size * 8);
        if (bit >= 0) {
            saved.data[bit / 8] = (char)(saved.data[bit / 8] ^ 1 << bit % 8);
        }
        restore(w, &saved, source, to, cache, length, bit);
    }
    free(saved.data);
}
