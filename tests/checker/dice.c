/* SPDX-License-Identifier: MIT */
/* Random numbers, adversarial values, and arrays that end at unreadable pages. */
#define _DEFAULT_SOURCE
#include "checker.h"

#include "runtime/numerics.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------ random numbers */

/* splitmix64 */
uint64_t dice_bits(dice *d) {
    uint64_t z = d->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t dice_range(dice *d, int64_t least, int64_t most) {
    return least + (int64_t)(dice_bits(d) % (uint64_t)(most - least + 1));
}

int dice_one_in(dice *d, int64_t n) {
    return dice_range(d, 1, n) == 1;
}

float dice_float(dice *d) {
    return (float)(int32_t)(dice_bits(d) >> 40) * (1.0f / 8388608.0f) - 1.0f;
}

flavour dice_flavour(dice *d) {
    return dice_one_in(d, 2) ? PLAIN : (flavour)dice_range(d, 0, FLAVOURS - 1);
}

const char *flavour_name(flavour f) {
    static const char *const names[FLAVOURS] = {"plain", "zeros",  "equal",    "signed zeros", "denormal", "huge",
                                                "wide",  "sparse", "integers", "infinities",   "nans"};
    return names[f];
}

static float wide_value(dice *d) {
    uint32_t bits = (uint32_t)dice_bits(d);
    return qsa_from_bits((bits & 0x807fffffu) | (uint32_t)dice_range(d, 67, 187) << 23); /* 2^-60 .. 2^60 */
}

static float flavour_value(dice *d, flavour f, float equal) {
    switch (f) {
    case ZEROS: return 0.0f;
    case EQUAL: return equal;
    case SIGNED_ZEROS: return dice_one_in(d, 2) ? -0.0f : 0.0f;
    case DENORMAL: return qsa_from_bits((uint32_t)dice_bits(d) & 0x807fffffu);
    case HUGE_VALUES: return dice_float(d) * 3e38f;
    case WIDE: return wide_value(d);
    case SPARSE: return dice_one_in(d, 8) ? dice_float(d) : dice_one_in(d, 2) ? -0.0f : 0.0f;
    case SMALL_INTEGERS: return (float)dice_range(d, -4, 4);
    case INFINITIES: return dice_one_in(d, 50) ? (dice_one_in(d, 2) ? QSA_INFINITY : -QSA_INFINITY) : dice_float(d);
    case NANS: return dice_one_in(d, 100) ? qsa_from_bits(0x7fc00000u) : dice_float(d);
    default: return dice_float(d);
    }
}

void fill_f32(dice *d, flavour f, float *x, int64_t n) {
    float equal = dice_float(d);
    for (int64_t i = 0; i < n; i++) {
        x[i] = flavour_value(d, f, equal);
    }
}

/* Halves have their own idea of denormal and huge. */
void fill_f16(dice *d, flavour f, uint16_t *x, int64_t n) {
    float equal = dice_float(d);
    for (int64_t i = 0; i < n; i++) {
        switch (f) {
        case DENORMAL: x[i] = (uint16_t)(dice_bits(d) & 0x83ffu); break;
        case HUGE_VALUES: x[i] = qsa_f32_to_f16(dice_float(d) * 65504.0f); break;
        default: x[i] = qsa_f32_to_f16(flavour_value(d, f, equal));
        }
    }
}

void fill_bf16(dice *d, flavour f, uint16_t *x, int64_t n) {
    float equal = dice_float(d);
    for (int64_t i = 0; i < n; i++) {
        x[i] = qsa_f32_to_bf16(flavour_value(d, f, equal));
    }
}

/* ------------------------------------------------------------------------------------------------ guarded memory */

enum { MARGIN = 512, PATTERN = 0xff }; /* the pattern reads as NaN in every float format */

static size_t page_bytes(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

void guarded_open(guarded *g, size_t capacity) {
    size_t page = page_bytes();
    g->capacity = (capacity + 2 * MARGIN + page - 1) / page * page;
    char *memory = mmap(NULL, g->capacity + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + page, g->capacity, PROT_READ | PROT_WRITE) != 0) {
        fprintf(stderr, "qsa-checker: no memory for %zu bytes\n", capacity);
        exit(2);
    }
    g->base = memory + page;
    g->at = g->base;
    g->bytes = 0;
    memset(g->at, PATTERN, MARGIN);
}

void guarded_close(guarded *g) {
    size_t page = page_bytes();
    if (g->base) { /* else it was never opened */
        munmap(g->base - page, g->capacity + 2 * page);
    }
    *g = (guarded){0};
}

static char *margin_before(const guarded *g) {
    return g->at - g->base > MARGIN ? g->at - MARGIN : g->base;
}

static char *margin_after(const guarded *g) {
    char *end = g->base + g->capacity, *after = g->at + g->bytes;
    return end - after > MARGIN ? after + MARGIN : end;
}

void *guarded_place(guarded *g, dice *d, size_t bytes, size_t align) {
    if (bytes + 2 * MARGIN > g->capacity) {
        guarded_close(g);
        guarded_open(g, 2 * bytes);
    }
    size_t shift = dice_one_in(d, 3) && align < 64 ? align * (size_t)dice_range(d, 1, 15) : 0;
    if (dice_one_in(d, 5)) {
        g->at = g->base + shift;
    } else {
        uintptr_t start = (uintptr_t)(g->base + g->capacity - bytes - shift);
        g->at = g->base + (start / align * align - (uintptr_t)g->base);
    }
    g->bytes = bytes;
    memset(margin_before(g), PATTERN, (size_t)(g->at - margin_before(g)));
    memset(g->at + bytes, PATTERN, (size_t)(margin_after(g) - (g->at + bytes)));
    return g->at;
}

static int holds_pattern(const char *from, const char *to) {
    while (from < to && (unsigned char)*from == PATTERN) {
        from++;
    }
    return from == to;
}

int guarded_intact(const guarded *g) {
    return holds_pattern(margin_before(g), g->at) && holds_pattern(g->at + g->bytes, margin_after(g));
}
