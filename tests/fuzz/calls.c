/* SPDX-License-Identifier: MIT */
/* Any sequence of calls on caches and sequences: each status, each count and each answer is the slow model's (world.h). */
#include "fuzz.h"
#include "world.h"

#include <stdlib.h>

enum { SLOTS = 8, STEPS = 64, CAPACITY = 640 };

static qsa_context *contexts[WORLD_CACHES], *plain;

static qsa_context *open_context(qsa_cpu cpu, int64_t threads) {
    QSA_INIT(qsa_options, options);
    qsa_context *context = NULL;
    qsa_error error;
    options.cpu = cpu;
    options.threads = threads;
    if (qsa_open(&options, &context, &error)) {
        world_fail("open: %s", error.message);
    }
    return context;
}

static void close_contexts(void) {
    for (int i = 0; i < WORLD_CACHES; i++) {
        qsa_close(contexts[i]);
    }
    qsa_close(plain);
}

static void open_contexts(void) {
    if (!plain) {
        plain = open_context(QSA_CPU_C, 1);
        contexts[0] = open_context(QSA_CPU_AUTO, 2);
        contexts[1] = open_context(QSA_CPU_AUTO, 1);
        atexit(close_contexts);
    }
}

/* A small shape in one of 8 formats; the caches differ in page size, rollback, threads and screening. */
static world *open_world(story *s) {
    static const qsa_type kv[] = {QSA_I8_G64, QSA_F32, QSA_F16, QSA_BF16};
    unsigned byte = next_byte(s);
    open_contexts();
    world_options o = {
        .shape = {.size = sizeof o.shape, .q_heads = 4, .kv_heads = 2, .head_dim = 64, .index_heads = 2, .index_dim = 32, .block = 4,
                  .budget = 32, .scale = 0.125f, .index_scale = 0.1767767f},
        .kv_type = kv[byte % 4],
        .key_type = byte & 4 ? QSA_F32 : QSA_BF16,
        .context = {contexts[0], contexts[1]},
        .plain = plain,
        .capacity = CAPACITY,
        .page_cells = {64, 128},
        .rollback = {16, byte & 16 ? 5 : 64},
        .screen = {0, byte & 8 ? 1 : 0},
        .check_every = 1,
    };
    o.shape.block = byte & 32 ? 2 : 4;
    return world_open(&o);
}

static int64_t length_of(const world *w, int slot) {
    int64_t a = w->slot[slot].layer[0].length, b = w->slot[slot].layer[1].length;
    return a > b ? a : b;
}

/* Near the end of what is there, or anywhere. */
static int64_t cut_of(const world *w, int slot, story *s) {
    unsigned byte = next_byte(s);
    int64_t length = length_of(w, slot), back = byte % 32;
    return byte & 128 ? (int64_t)(byte & 127) * 5 : length > back ? length - back : 0;
}

static int slot_of(world *w, story *s) {
    unsigned byte = next_byte(s);
    int slot = (int)(byte % SLOTS);
    if (!w->slot[slot].real) {
        world_create(w, slot, byte & 128 ? 1 : 0);
    }
    return slot;
}

static void append(world *w, story *s, uint32_t seed) {
    int slot = slot_of(w, s);
    unsigned layers = next_byte(s), flags = next_byte(s);
    int64_t cells = next_byte(s) % 72;
    int unkeyed = flags % 16 == 1;
    int32_t position = flags & 128 ? (int32_t)(flags * 977u) : -1;
    cells = flags % 32 == 2 ? cells * 16 : cells;
    for (int64_t l = 0; l < WORLD_LAYERS; l++) {
        if (layers % 4 > 1 || (int64_t)(layers % 4) == l) {
            world_append(w, slot, l, cells, seed, unkeyed, position);
        }
    }
}

/* Sequences of one cache; the first says which. */
static void decode(world *w, story *s) {
    world_pick picks[4];
    unsigned flags = next_byte(s), more = next_byte(s);
    int64_t count = 0;
    int first = slot_of(w, s);
    picks[count++] = (world_pick){first, flags % 8 == 7 ? 16 : 1 + flags % 8};
    for (unsigned i = 0; i < more % 4; i++) {
        int slot = (int)(next_byte(s) % SLOTS);
        if (w->slot[slot].real && w->slot[slot].cache == w->slot[first].cache) {
            picks[count++] = (world_pick){slot, next_byte(s) % 6};
        }
    }
    world_decode_options o = {.layer = flags / 8 % 2, .contract = (qsa_contract)(more / 4 % 3), .chunk = more & 16 ? 32 : 64,
                              .fold = 1 + more / 32 % 3, .reuse = flags & 16 ? 1 : 0, .waves = flags / 32};
    world_decode(w, picks, count, &o);
}

/* What a caller may get wrong is refused, and nothing happens; the model's numbers stay as they are. */
static void mistake(world *w, story *s) {
    int slot = slot_of(w, s);
    unsigned byte = next_byte(s);
    qsa_sequence *made = w->slot[slot].real, *real = made;
    qsa_cache *cache = w->cache[w->slot[slot].cache].real;
    QSA_INIT(qsa_append_args, args);
    QSA_INIT(qsa_decode_args, decode_args);
    qsa_item item = {.sequence = w->slot[slot].real, .rows = byte % 2 ? -1 : INT64_MAX};
    qsa_status status = QSA_OK;
    args.layer = (byte & 2) ? -1 : WORLD_LAYERS;
    args.cells = (byte & 4) ? -1 : INT64_MAX;
    decode_args.items = &item;
    decode_args.item_count = 1;
    switch (byte % 8) {
    case 0: status = qsa_append(real, &args, NULL); break;
    case 1: args.layer = 0; status = qsa_append(real, &args, NULL); break;
    case 2: status = qsa_truncate(real, -1 - (int64_t)byte, NULL); break;
    case 3: status = qsa_sequence_fork(real, -1, &made, NULL); break;
    case 4: status = qsa_sequence_save(real, INT64_MIN, NULL, NULL, NULL); break;
    case 5: status = qsa_sequence_restore(cache, NULL, NULL, &made, NULL); break;
    case 6: status = qsa_decode(cache, &decode_args, NULL); break;
    default: decode_args.chunk = 7; status = qsa_decode(cache, &decode_args, NULL); break;
    }
    if (!status) {
        world_fail("mistake %u went through", byte % 8);
    }
    world_truncate(w, slot, length_of(w, slot)); /* which changes nothing, and compares */
}

static void step(world *w, story *s, uint32_t seed) {
    unsigned what = next_byte(s) % 16;
    if (what < 5) {
        append(w, s, seed);
    } else if (what < 7) {
        int slot = slot_of(w, s);
        world_truncate(w, slot, cut_of(w, slot, s));
    } else if (what < 9) {
        int slot = slot_of(w, s), to = (int)(next_byte(s) % SLOTS);
        if (to != slot) {
            world_fork(w, slot, to, cut_of(w, slot, s));
        }
    } else if (what < 12) {
        decode(w, s);
    } else if (what < 14) {
        int slot = slot_of(w, s), to = (int)(next_byte(s) % SLOTS);
        unsigned flags = next_byte(s);
        if (to != slot) {
            world_move(w, slot, to, (int)(flags % WORLD_CACHES), cut_of(w, slot, s), flags & 64 ? (int64_t)flags * 40503 : -1);
        }
    } else if (what < 15) {
        mistake(w, s);
    } else {
        world_destroy(w, (int)(next_byte(s) % SLOTS));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    story s = {data, size};
    world *w = open_world(&s);
    for (uint32_t i = 0; i < STEPS && s.left; i++) {
        step(w, &s, 1 + i * 4099);
    }
    world_close(w);
    return 0;
}
