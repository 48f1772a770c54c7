/* SPDX-License-Identifier: MIT */
/* Read bandwidth, the thread team that measures it, and what the system says of caches and memory. */
#define _DEFAULT_SOURCE
#include "bench_peaks.h"

#include <qsa/qsa.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int64_t bench_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ------------------------------------------------------------------------------------------------ the system */

static int read_line(const char *path, char *line, int room) {
    FILE *file = fopen(path, "r");
    int got = file && fgets(line, room, file);
    if (file) {
        fclose(file);
    }
    return got;
}

/* CPUs in a list such as "0-3,8"; 0 if it is none. */
static int64_t cpus_in_list(const char *list) {
    int64_t count = 0;
    for (const char *at = list; at;) {
        char *end;
        int64_t first = strtoll(at, &end, 10);
        if (end != at) {
            count += *end == '-' ? strtoll(end + 1, NULL, 10) - first + 1 : 1;
        }
        at = strchr(at, ',');
        at = at ? at + 1 : NULL;
    }
    return count;
}

int64_t bench_last_level_cache(void) {
    int64_t largest = 0, online = sysconf(_SC_NPROCESSORS_ONLN);
    for (int index = 0; index < 8; index++) {
        char path[80], line[512], *unit;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        if (!read_line(path, line, sizeof line)) {
            break;
        }
        int64_t bytes = strtoll(line, &unit, 10);
        if (unit != line) {
            bytes *= *unit == 'K' ? 1 << 10 : *unit == 'M' ? 1 << 20 : 1;
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/shared_cpu_list", index);
            int64_t sharing = read_line(path, line, sizeof line) ? cpus_in_list(line) : 0;
            bytes *= sharing > 0 && online > sharing ? (online + sharing - 1) / sharing : 1;
            largest = bytes > largest ? bytes : largest;
        }
    }
    return largest ? largest : 32 << 20;
}

char *bench_huge_memory(int64_t bytes) {
    char *memory = aligned_alloc((size_t)2 << 20, (size_t)bytes);
    if (memory) {
#if defined(MADV_HUGEPAGE)
        (void)madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
#endif
        memset(memory, 1, (size_t)bytes);
    }
    return memory;
}

int64_t bench_free_memory(void) {
    FILE *file = fopen("/proc/meminfo", "r");
    char line[160];
    int64_t kilobytes = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (!strncmp(line, "MemAvailable:", 13)) {
            kilobytes = strtoll(line + 13, NULL, 10);
            break;
        }
    }
    if (file) {
        fclose(file);
    }
    return kilobytes ? kilobytes * 1024 : INT64_C(1) << 30;
}

/* ------------------------------------------------------------------------------------------------ team */

enum { TEAM_MAX = 1024, SPINS = 20000 };

typedef struct team {
    void (*body)(void *arg, int64_t thread);
    void *arg;
    _Atomic int64_t ready, finished;
    _Atomic int go;
} team;

typedef struct member {
    team *team;
    int64_t thread;
} member;

/* Waiting awake starts and ends together; but not where there are more threads than CPUs. */
static void yield_after(int64_t spins) {
    if (spins > SPINS) {
        sched_yield();
    }
}

static void *member_main(void *arg) {
    member *m = arg;
    atomic_fetch_add(&m->team->ready, 1);
    for (int64_t spins = 0; !atomic_load(&m->team->go); spins++) {
        yield_after(spins);
    }
    m->team->body(m->team->arg, m->thread);
    atomic_fetch_add(&m->team->finished, 1);
    return NULL;
}

int64_t bench_team(int64_t threads, void (*body)(void *arg, int64_t thread), void *arg) {
    pthread_t handle[TEAM_MAX];
    member members[TEAM_MAX];
    team t = {.body = body, .arg = arg};
    int64_t made = 1;
    threads = threads < TEAM_MAX ? threads : TEAM_MAX;
    for (; made < threads; made++) {
        members[made] = (member){&t, made};
        if (pthread_create(&handle[made], NULL, member_main, &members[made]) != 0) {
            break;
        }
    }
    while (atomic_load(&t.ready) < made - 1) {
        sched_yield();
    }
    int64_t start = bench_now_ns();
    atomic_store(&t.go, 1);
    body(arg, 0);
    for (int64_t spins = 0; atomic_load(&t.finished) < made - 1; spins++) {
        yield_after(spins);
    }
    int64_t taken = bench_now_ns() - start;
    for (int64_t i = 1; i < made; i++) {
        pthread_join(handle[i], NULL);
    }
    return taken;
}

/* ------------------------------------------------------------------------------------------------ reading */

enum { PIECE = 256 << 10, AHEAD = 4096, LINE = 64 };

typedef uint64_t read_piece(const char *at, int64_t bytes);

typedef struct reading {
    read_piece *piece;
    const char *memory;
    int64_t bytes, slice;   /* slice: in pieces */
    int64_t *claimed_ns;    /* when the first piece of each slice was claimed, and the first behind the last */
    _Atomic int64_t next;   /* piece to claim */
    _Atomic uint64_t total; /* keeps the loads from being removed */
} reading;

/* Four lines at a time, in loads of `width` bytes: wider loads ask for more lines at once. */
#define READER(name, width)                                                                                            \
    static uint64_t name(const char *at, int64_t bytes) {                                                              \
        typedef uint64_t lanes __attribute__((vector_size(width)));                                                    \
        lanes sum[LINE / (width)] = {{0}};                                                                             \
        uint64_t all = 0;                                                                                              \
        for (const char *end = at + bytes / (4 * LINE) * (4 * LINE); at < end; at += 4 * LINE) {                       \
            for (int line = 0; line < 4; line++) {                                                                     \
                __builtin_prefetch(at + AHEAD + line * LINE);                                                          \
                for (int i = 0; i < LINE / (width); i++) {                                                             \
                    lanes x;                                                                                           \
                    memcpy(&x, at + line * LINE + i * (width), sizeof x);                                              \
                    sum[i] += x;                                                                                       \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        for (int i = 0; i < LINE; i += 8) {                                                                            \
            all += sum[i / (width)][i % (width) / 8];                                                                  \
        }                                                                                                              \
        return all;                                                                                                    \
    }

READER(read_narrow, 16)
#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("avx2"))) READER(read_avx2, 32)
__attribute__((target("avx512f"))) READER(read_avx512, 64)
#endif

static read_piece *widest_reader(void) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (qsa_cpu_available(QSA_CPU_AVX512)) {
        return read_avx512;
    }
    if (qsa_cpu_available(QSA_CPU_AVX2)) {
        return read_avx2;
    }
#endif
    return read_narrow;
}

static void read_pieces(void *arg, int64_t thread) {
    reading *r = arg;
    uint64_t sum = 0;
    int64_t pieces = r->bytes / PIECE, piece = 0;
    (void)thread;
    while (piece < pieces) {
        piece = atomic_fetch_add(&r->next, 1);
        if (piece % r->slice == 0 && piece <= pieces) {
            r->claimed_ns[piece / r->slice] = bench_now_ns();
        }
        if (piece < pieces) {
            sum += r->piece(r->memory + piece * PIECE, PIECE);
        }
    }
    atomic_fetch_add(&r->total, sum);
}

int64_t bench_read(int64_t threads, const char *memory, int64_t bytes, int64_t slice, double *gbs) {
    int64_t pieces = slice / PIECE > 0 ? slice / PIECE : 1, slices = bytes / PIECE / pieces;
    int64_t *claimed_ns = calloc((size_t)slices + 1, sizeof *claimed_ns);
    if (!claimed_ns) {
        return 0;
    }
    reading r = {.piece = widest_reader(), .memory = memory, .bytes = slices * pieces * PIECE, .slice = pieces};
    r.claimed_ns = claimed_ns;
    bench_team(threads, read_pieces, &r);
    for (int64_t i = 0; i < slices; i++) {
        int64_t taken = claimed_ns[i + 1] - claimed_ns[i];
        gbs[i] = (double)(pieces * PIECE) / (double)(taken > 0 ? taken : 1);
    }
    free(claimed_ns);
    return slices;
}
