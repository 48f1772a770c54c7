/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a snapshot. The first says which cache it is restored into and which checksums are made right first: else no mutation
 * would come past them. Whatever is accepted saves itself again as the same bytes, and can be decoded, cut and grown.
 */
#include "fuzz.h"
#include "world.h"

#include "cache/snapshot.h"

#include <stdlib.h>
#include <string.h>

enum { CAPACITY = 512, GROW = 9 };

typedef struct bytes {
    unsigned char *data;
    int64_t size, room, at;
} bytes;

static int write_bytes(void *user, const void *data, int64_t count) {
    bytes *b = user;
    if (count > b->room - b->size) {
        return 1;
    }
    memcpy(b->data + b->size, data, (size_t)count);
    b->size += count;
    return 0;
}

static int64_t read_bytes(void *user, void *data, int64_t count) {
    bytes *b = user;
    int64_t left = b->size - b->at, part = count < left ? count : left;
    if (part) {
        memcpy(data, b->data + b->at, (size_t)part);
    }
    b->at += part;
    return part;
}

/* ------------------------------------------------------------------------------------------------ caches */

static qsa_context *context;
static qsa_cache *caches[16];
static float norm[WORLD_LAYERS * 32];

static void close_all(void) {
    for (int i = 0; i < 16; i++) {
        qsa_cache_destroy(caches[i]);
    }
    qsa_close(context);
}

static qsa_cache *cache_of(unsigned which) {
    static const qsa_type kv[] = {QSA_I8_G64, QSA_F32, QSA_F16, QSA_BF16};
    qsa_error error;
    if (!context) {
        QSA_INIT(qsa_options, options);
        options.threads = 1;
        if (qsa_open(&options, &context, &error)) {
            world_fail("open: %s", error.message);
        }
        world_values(1, 0, WORLD_NORM, WORLD_LAYERS * 32, norm);
        atexit(close_all);
    }
    if (!caches[which]) {
        qsa_cache_options o = {
            .size = sizeof o,
            .shape = {.size = sizeof o.shape, .q_heads = 4, .kv_heads = 2, .head_dim = 64, .index_heads = 2, .index_dim = 32,
                      .block = 4, .budget = 32, .scale = 0.125f, .index_scale = 0.1767767f},
            .layers = WORLD_LAYERS,
            .kv_type = kv[which % 4],
            .key_type = which & 4 ? QSA_F32 : QSA_BF16,
            .capacity = CAPACITY,
            .page_cells = 64,
            .rollback = 16,
            .index_norm = norm,
            .eps = 1e-6f,
            .rope = {.size = sizeof o.rope, .dims = 16, .theta = 1e7},
            .screen = which & 8 ? 1 : 0,
        };
        if (qsa_cache_create(context, &o, &caches[which], &error)) {
            world_fail("cache: %s", error.message);
        }
    }
    return caches[which];
}

/* ------------------------------------------------------------------------------------------------ checksums */

static void put_sum(bytes *b, int64_t at, uint32_t sum) {
    memcpy(b->data + at, &sum, sizeof sum);
}

/* Makes the header's sum right, and where the header can be read, those of the sections that are there. */
static void sign(bytes *b, int sections) {
    qsa_snapshot *s = world_take(1, sizeof *s);
    uint32_t length = 0;
    memset(s, 0, sizeof *s);
    qsa_crc_init(&s->crc);
    if (b->size >= QSA_SNAPSHOT_START) {
        memcpy(&length, b->data + 12, sizeof length);
    }
    if (length >= QSA_SNAPSHOT_START + QSA_SNAPSHOT_SUM && (int64_t)length <= b->size) {
        put_sum(b, (int64_t)length - QSA_SNAPSHOT_SUM, qsa_crc_add(&s->crc, 0, b->data, (int64_t)length - QSA_SNAPSHOT_SUM));
        s->read = read_bytes;
        s->user = b;
        int64_t at = length;
        if (sections && !qsa_snapshot_read_header(s, NULL)) {
            for (int64_t i = 0; i < s->header.layers; i++) {
                int64_t count = qsa_snapshot_section_bytes(&s->header, i) - QSA_SNAPSHOT_SUM;
                if (count + QSA_SNAPSHOT_SUM > b->size - at) {
                    break;
                }
                uint32_t sum = qsa_crc_add(&s->crc, 0, &s->header_sum, 4);
                sum = qsa_crc_add(&s->crc, sum, &i, 8);
                put_sum(b, at + count, qsa_crc_add(&s->crc, sum, b->data + at, count));
                at += count + QSA_SNAPSHOT_SUM;
            }
        }
    }
    b->at = 0;
    free(s);
}

/* ------------------------------------------------------------------------------------------------ what was accepted */

static void check(qsa_status status, const qsa_error *error) {
    if (error->status != status || !error->message[0] != !status) {
        world_fail("status %s with \"%s\"", qsa_status_name(status), error->message);
    }
}

/* A cache with a rollback of 16 keeps no more than that many raw keys, so that only snapshots with no more come back the same. */
static void save_again(const qsa_sequence *sequence, const bytes *saved) {
    bytes again = {world_take(saved->at + 1, 1), 0, saved->at + 1, 0};
    qsa_error error;
    qsa_status status = qsa_sequence_save(sequence, INT64_MAX, write_bytes, &again, &error);
    int64_t keyed[2], raw[2];
    for (int l = 0; l < WORLD_LAYERS; l++) {
        memcpy(&keyed[l], saved->data + 136 + 32 * l + 8, 8);
        memcpy(&raw[l], saved->data + 136 + 32 * l + 16, 8);
    }
    int kept = keyed[0] - raw[0] <= 16 && keyed[1] - raw[1] <= 16;
    if (status || (kept && (again.size != saved->at || memcmp(again.data, saved->data, (size_t)again.size) != 0))) {
        world_fail("saved again it is another: %s", status ? error.message : "other bytes");
    }
    free(again.data);
}

/* Whatever the cells hold, NaN and infinity too. */
static void use(qsa_cache *cache, qsa_sequence *sequence) {
    static float values[GROW * 4 * 64], out[4 * 64];
    qsa_error error;
    world_values(7, 0, WORLD_Q, GROW * 4 * 64, values);
    for (int64_t layer = 0; layer < WORLD_LAYERS; layer++) {
        qsa_item item = {.sequence = sequence, .rows = qsa_sequence_length(sequence, layer) > 0, .q = values, .iq = values, .out = out};
        QSA_INIT(qsa_decode_args, args);
        args.layer = layer;
        args.items = &item;
        args.item_count = 1;
        if (qsa_plan(cache, args.contract, 1, CAPACITY, 0, 0, &args.workspace_bytes, &error)) {
            world_fail("plan: %s", error.message);
        }
        args.workspace = world_take((int64_t)args.workspace_bytes, 1);
        check(qsa_decode(cache, &args, &error), &error);
        free(args.workspace);
        QSA_INIT(qsa_append_args, cells);
        cells.layer = layer;
        cells.cells = GROW;
        cells.k = cells.v = cells.raw_index = values;
        check(qsa_append(sequence, &cells, &error), &error);
    }
    for (int64_t length = qsa_sequence_length(sequence, 0); length >= 0; length -= 13) {
        check(qsa_truncate(sequence, length, &error), &error);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    story s = {data, size};
    unsigned first = next_byte(&s);
    bytes b = {world_take((int64_t)s.left, 1), (int64_t)s.left, 0, 0};
    memcpy(b.data, s.at, s.left);
    if (first & 16) {
        sign(&b, first & 32);
    }
    qsa_error error;
    QSA_INIT(qsa_snapshot_info, info);
    qsa_status inspected = qsa_snapshot_inspect(NULL, read_bytes, &b, &info, &error);
    check(inspected, &error);
    b.at = 0;
    qsa_cache *cache = cache_of(first % 16);
    qsa_sequence *sequence = NULL;
    qsa_status status = qsa_sequence_restore(cache, read_bytes, &b, &sequence, &error);
    check(status, &error);
    if (!status != (sequence != NULL) || (!status && inspected) || (status == QSA_E_FORMAT && !inspected)) {
        world_fail("restored: %s, inspected: %s", qsa_status_name(status), qsa_status_name(inspected));
    }
    if (!status) {
        save_again(sequence, &b);
        use(cache, sequence);
    }
    qsa_sequence_destroy(sequence);
    QSA_INIT(qsa_cache_stats, stats);
    if (qsa_cache_get_stats(cache, &stats, &error) || stats.pages_free != stats.pages || stats.sequences) {
        world_fail("pages or sequences were lost");
    }
    free(b.data);
    return 0;
}
