/* SPDX-License-Identifier: MIT */
/*
 * qsa-checker: all stages at all CPU levels of this machine. With --bench, each kernel that passed is timed, too: nothing is
 * timed that was not checked.
 */
#include "checker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { LEVELS = QSA_CPU_NEON };

typedef struct command {
    uint64_t seed;
    int bench;
    const char *only; /* a stage whose name starts like this; NULL: all */
} command;

typedef struct tally {
    int passed, failed;
} tally;

static kernel_set kernels_of(qsa_cpu cpu) {
    kernel_set set = {.cpu = cpu};
    qsa_score_init(&set.score, cpu);
    qsa_screen_init(&set.screen, cpu);
    qsa_select_init(&set.select, cpu);
    qsa_attend_init(&set.attend, cpu);
    qsa_merge_init(&set.merge, cpu);
    qsa_cell_init(&set.cell, cpu);
    return set;
}

/* The level whose table already had this kernel, or NULL. */
static const kernel_set *first_with(const stage *s, const kernel_set *sets, int level) {
    for (int i = 0; i < level; i++) {
        if (strcmp(s->kernel(&sets[i]), s->kernel(&sets[level])) == 0) {
            return &sets[i];
        }
    }
    return NULL;
}

/* One cell of the table: the portable kernel against itself too, for what it touches. */
static void check_cell(const command *c, const stage *s, const kernel_set *sets, int level, double portable_ns, tally *t) {
    const kernel_set *same = first_with(s, sets, level);
    char cell[64];
    if (same) {
        snprintf(cell, sizeof cell, "= %s", qsa_cpu_name(same->cpu));
        printf("  %-22s", cell);
        return;
    }
    verdict v = check_stage(s, &sets[0], &sets[level], c->seed);
    if (v.failed) {
        t->failed++;
        printf("  %-22s", "FAILED");
        fflush(stdout);
        fprintf(stderr, "\n%s; seed %llu\n", v.text, (unsigned long long)c->seed);
        return;
    }
    t->passed++;
    snprintf(cell, sizeof cell, "ok");
    if (c->bench) {
        double ns = level == 0 ? portable_ns : time_stage(s, &sets[level], c->seed);
        snprintf(cell, sizeof cell, "ok %10.0f ns %5.1fx", ns, portable_ns / ns);
    }
    printf("  %-22s", cell);
    fflush(stdout);
}

static void check_stages(const command *c, const stage *stages, const kernel_set *sets, int levels, tally *t) {
    for (const stage *s = stages; s->name; s++) {
        if (c->only && strncmp(s->name, c->only, strlen(c->only)) != 0) {
            continue;
        }
        double portable_ns = c->bench ? time_stage(s, &sets[0], c->seed) : 0;
        printf("%-20s", s->name);
        for (int level = 0; level < levels; level++) {
            check_cell(c, s, sets, level, portable_ns, t);
        }
        printf("\n");
    }
}

static int usage(const char *problem) {
    fprintf(stderr, "qsa-checker: %s\nusage: qsa-checker [--bench] [--seed N] [STAGE]\n", problem);
    return 2;
}

static int read_command(int count, char **words, command *c) {
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "--bench") == 0) {
            c->bench = 1;
        } else if (strcmp(words[i], "--seed") == 0) {
            char *end = NULL;
            errno = 0;
            c->seed = i + 1 < count ? strtoull(words[i + 1], &end, 0) : 0;
            if (!end || end == words[i + 1] || *end || errno) {
                return usage("--seed needs a number");
            }
            i++;
        } else if (words[i][0] == '-') {
            return usage("unknown option");
        } else {
            c->only = words[i];
        }
    }
    return 0;
}

int main(int count, char **words) {
    command c = {.seed = 1};
    int status = read_command(count, words, &c);
    if (status) {
        return status;
    }
    kernel_set sets[LEVELS];
    int levels = 0;
    printf("seed %llu\n%-20s", (unsigned long long)c.seed, "stage");
    for (int cpu = QSA_CPU_C; cpu <= LEVELS; cpu++) {
        if (qsa_cpu_available((qsa_cpu)cpu)) {
            sets[levels++] = kernels_of((qsa_cpu)cpu);
            printf("  %-22s", qsa_cpu_name((qsa_cpu)cpu));
        }
    }
    printf("\n");
    const stage *const rooms[] = {score_stages, screen_stages, select_stages, attend_stages, merge_stages, cell_stages};
    tally t = {0, 0};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        check_stages(&c, rooms[i], sets, levels, &t);
    }
    if (t.passed + t.failed == 0) {
        return usage("no stage has that name");
    }
    printf("%d passed, %d failed\n", t.passed, t.failed);
    return t.failed > 0;
}
