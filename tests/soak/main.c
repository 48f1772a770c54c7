/* SPDX-License-Identifier: MIT */
/*
 * soak [SECONDS [SEED]]: random serving traffic on two caches, 64 sequences at a time. Each tick appends 1 to 4 drafted cells to
 * every sequence, decodes all of a cache in one call a layer, and takes some of them back; sequences join (prefilled, forked,
 * restored from a snapshot into the other cache) and leave; where a cache is full, one is thrown out. The slow model of
 * tests/fuzz/world.h knows what each call must say and each count must be; every 100th answer is compared with a cold rebuild.
 * Prints figures as JSON.
 * Exit code: 0, 1 (memory was not flat); what differs from the model aborts.
 */
#define _POSIX_C_SOURCE 200809L
#include "support/counted.h"
#include "world.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { SEQUENCES = 64, CAPACITY = 24576, LONGEST = 3500, PREFILL = 1500, CHECK_EVERY = 100, SECONDS = 5 };

typedef struct soak {
    world *w;
    counter memory;
    uint64_t state;
    uint32_t seed; /* of the next cells */
    int64_t ticks, joined, left, thrown_out, rejected;
    int64_t held_least, held_most, rss_half, rss_end;
} soak;

static uint64_t below(soak *s, uint64_t end) {
    s->state = s->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (s->state >> 33) % end;
}

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Bytes that the process has in memory; 0 where the system does not say. */
static int64_t resident(void) {
    long long all, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file) {
        if (fscanf(file, "%lld %lld", &all, &pages) != 2) {
            pages = 0;
        }
        fclose(file);
    }
    return pages * sysconf(_SC_PAGESIZE);
}

/* ------------------------------------------------------------------------------------------------ sequences */

static int64_t length_of(const soak *s, int slot) {
    return s->w->slot[slot].layer[0].length;
}

static int random_live(soak *s, int but) {
    int start = (int)below(s, SEQUENCES);
    for (int i = 0; i < SEQUENCES; i++) {
        int slot = (start + i) % SEQUENCES;
        if (slot != but && s->w->slot[slot].real) {
            return slot;
        }
    }
    return -1;
}

static void leave(soak *s, int slot) {
    world_destroy(s->w, slot);
    s->left++;
}

/* Both layers, or neither. Where there is no room one sequence of the cache goes, and it is tried again; 0: given up. */
static int append(soak *s, int slot, int64_t cells) {
    world *w = s->w;
    int64_t before = length_of(s, slot);
    uint32_t seed = s->seed;
    s->seed += (uint32_t)cells;
    for (int attempt = 0; attempt < 8; attempt++) {
        for (int64_t l = 0; l < WORLD_LAYERS; l++) {
            if (w->slot[slot].layer[l].length == before) {
                world_append(w, slot, l, cells, seed, 0, -1);
            }
        }
        if (w->slot[slot].layer[0].length == before + cells && w->slot[slot].layer[1].length == before + cells) {
            return 1;
        }
        int other = random_live(s, slot);
        if (other < 0 || w->slot[other].cache != w->slot[slot].cache) {
            continue;
        }
        world_destroy(w, other);
        s->thrown_out++;
    }
    world_truncate(w, slot, before);
    return 0;
}

/* As a prompt, as a branch of another sequence, or from another's snapshot. */
static void join(soak *s, int slot) {
    world *w = s->w;
    int other = random_live(s, slot);
    uint64_t how = below(s, 10);
    if (other >= 0 && how < 4) {
        int64_t length = length_of(s, other), back = (int64_t)below(s, 40);
        int64_t cut = below(s, 2) ? (int64_t)below(s, (uint64_t)length + 1) / 4 * 4 : length > back ? length - back : 0;
        world_fork(w, other, slot, cut);
    } else if (other >= 0 && how < 5) {
        int64_t damage = below(s, 3) ? -1 : (int64_t)below(s, UINT64_C(1) << 30);
        world_move(w, other, slot, !w->slot[other].cache, length_of(s, other), damage);
    }
    if (!w->slot[slot].real) {
        world_create(w, slot, (int)below(s, WORLD_CACHES));
        if (!append(s, slot, 1 + (int64_t)below(s, PREFILL))) {
            world_destroy(w, slot);
            return;
        }
    }
    s->joined++;
}

/* ------------------------------------------------------------------------------------------------ a tick */

static void decode_all(soak *s, int cache, const int64_t drafts[SEQUENCES]) {
    world_pick picks[SEQUENCES];
    int64_t count = 0;
    for (int i = 0; i < SEQUENCES; i++) {
        if (s->w->slot[i].real && s->w->slot[i].cache == cache && drafts[i]) {
            picks[count++] = (world_pick){i, drafts[i]};
        }
    }
    for (int64_t l = 0; count && l < WORLD_LAYERS; l++) {
        world_decode_options o = {.layer = l,
                                  .contract = below(s, 8) ? QSA_BLOCKS : QSA_CELLS,
                                  .chunk = 64,
                                  .fold = 1 + (int64_t)below(s, 2),
                                  .reuse = below(s, 40) == 0,
                                  .waves = 16};
        world_decode(s->w, picks, count, &o);
    }
}

static void tick(soak *s) {
    int64_t drafts[SEQUENCES] = {0};
    for (int i = 0; i < SEQUENCES; i++) {
        if (!s->w->slot[i].real && below(s, 4) == 0) {
            join(s, i);
        }
    }
    for (int i = 0; i < SEQUENCES; i++) {
        int64_t cells = 1 + (int64_t)below(s, 4);
        if (s->w->slot[i].real && append(s, i, cells)) {
            drafts[i] = cells;
        }
    }
    for (int cache = 0; cache < WORLD_CACHES; cache++) {
        decode_all(s, cache, drafts);
    }
    for (int i = 0; i < SEQUENCES; i++) {
        int64_t rejects = drafts[i] ? (int64_t)below(s, (uint64_t)drafts[i] + 1) : 0;
        if (!s->w->slot[i].real) {
            continue;
        }
        if (rejects) {
            world_truncate(s->w, i, length_of(s, i) - rejects);
            s->rejected += rejects;
        }
        if (length_of(s, i) > LONGEST || below(s, 400) == 0) {
            leave(s, i);
        }
    }
    s->ticks++;
}

/* ------------------------------------------------------------------------------------------------ memory */

/* What the allocator gave is what caches and sequences say they hold, so that nothing can pile up. */
static void check_memory(soak *s, int64_t contexts) {
    int64_t held = 0;
    for (int i = 0; i < WORLD_CACHES; i++) {
        QSA_INIT(qsa_cache_stats, stats);
        if (qsa_cache_get_stats(s->w->cache[i].real, &stats, NULL)) {
            world_fail("stats are refused");
        }
        held += stats.bytes_held;
    }
    if (s->memory.bytes - contexts != held) {
        world_fail("%lld bytes are held beside the contexts': the caches say %lld", (long long)(s->memory.bytes - contexts),
                   (long long)held);
    }
    s->held_least = held < s->held_least || !s->held_least ? held : s->held_least;
    s->held_most = held > s->held_most ? held : s->held_most;
}

static qsa_context *open_context(soak *s, qsa_cpu cpu, int64_t threads) {
    QSA_INIT(qsa_options, options);
    qsa_context *context = NULL;
    qsa_error error;
    options.cpu = cpu;
    options.threads = threads;
    options.allocator = counted(&s->memory);
    if (qsa_open(&options, &context, &error)) {
        world_fail("open: %s", error.message);
    }
    return context;
}

static void report(const soak *s, const char *level, double seconds, uint64_t seed) {
    const world_counts *c = &s->w->counts;
    json_t *figures = json_pack(
        "{s:s, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "cpu", level, "seconds",
        seconds, "seed", (json_int_t)seed, "sequences", (json_int_t)SEQUENCES, "ticks", (json_int_t)s->ticks, "calls",
        (json_int_t)c->calls, "refused_as_expected", (json_int_t)c->refused, "answers", (json_int_t)c->answers, "checked",
        (json_int_t)c->checked, "joined", (json_int_t)s->joined, "left", (json_int_t)s->left, "thrown_out",
        (json_int_t)s->thrown_out, "forks", (json_int_t)c->forks, "restored", (json_int_t)c->snapshots, "rejected_cells",
        (json_int_t)s->rejected, "held_least", (json_int_t)s->held_least, "held_most", (json_int_t)s->held_most, "resident_half",
        (json_int_t)s->rss_half, "resident_end", (json_int_t)s->rss_end);
    if (!figures || json_dumpf(figures, stdout, JSON_INDENT(2))) {
        world_fail("no JSON");
    }
    putchar('\n');
    json_decref(figures);
}

int main(int argc, char **argv) {
    static soak s;
    double length = argc > 1 ? strtod(argv[1], NULL) : SECONDS, start = seconds_now(), now = start;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    qsa_context *contexts[] = {open_context(&s, QSA_CPU_AUTO, 2), open_context(&s, QSA_CPU_AUTO, 1), open_context(&s, QSA_CPU_C, 1)};
    int64_t context_bytes = s.memory.bytes;
    world_options o = {.kv_type = QSA_I8_G64,
                       .key_type = QSA_BF16,
                       .context = {contexts[0], contexts[1]},
                       .plain = contexts[2],
                       .capacity = CAPACITY,
                       .page_cells = {256, 64},
                       .rollback = {64, 64},
                       .screen = {0, 1},
                       .check_every = CHECK_EVERY};
    qsa_shape_qwen38_flash_next(&o.shape);
    o.shape.budget = 512; /* so that sequences of this length are sparse */
    s.state = seed;
    s.seed = 1;
    s.w = world_open(&o);
    while (now - start < length) {
        tick(&s);
        check_memory(&s, context_bytes);
        now = seconds_now();
        if (!s.rss_half && now - start >= length / 2) {
            s.rss_half = resident();
        }
    }
    s.rss_end = resident();
    report(&s, qsa_cpu_name(qsa_context_cpu(contexts[0])), now - start, seed);
    world_close(s.w);
    for (int i = 0; i < 3; i++) {
        qsa_close(contexts[i]);
    }
    if (s.memory.bytes) {
        world_fail("%lld bytes are left", (long long)s.memory.bytes);
    }
    /* Pages are touched as they are first used: a short run is still at it in its second half. */
    int grew = length >= 600 && s.rss_end > s.rss_half + s.rss_half / 50;
    return grew;
}
