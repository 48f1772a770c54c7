/* SPDX-License-Identifier: MIT */
/* Memory through the caller's allocator, or the system's. */
#ifndef QSA_RUNTIME_MEMORY_H
#define QSA_RUNTIME_MEMORY_H

#include <qsa/qsa.h>

/* The allocator of a context whose caller gave none: aligned_alloc and free; blocks of 2 MiB and more ask for huge pages. */
extern const qsa_allocator qsa_system_allocator;

/* NULL on failure. a NULL, or all zero, means the system's. bytes 0 is served as 1. */
void *qsa_allocate(const qsa_allocator *a, size_t bytes, size_t align);
void qsa_release(const qsa_allocator *a, void *memory, size_t bytes, size_t align);

/* a * b, or -1 where it passes 2^62 or a factor is negative: the size arithmetic of every buffer. */
static inline int64_t qsa_mul(int64_t a, int64_t b) {
    if (a < 0 || b < 0 || (b > 0 && a > (INT64_C(1) << 62) / b)) {
        return -1;
    }
    return a * b;
}

/* Whether an array of a * b * c elements of 4 bytes stays within 2^62 bytes; factors below 0 count as 0. */
static inline int qsa_array_fits(int64_t a, int64_t b, int64_t c) {
    return qsa_mul(qsa_mul(qsa_mul(a < 0 ? 0 : a, b < 0 ? 0 : b), c < 0 ? 0 : c), 4) >= 0;
}

static inline int64_t qsa_div_up(int64_t a, int64_t b) {
    return a / b + (a % b != 0);
}

static inline int64_t qsa_round_up(int64_t a, int64_t b) {
    return qsa_div_up(a, b) * b;
}

static inline int64_t qsa_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t qsa_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

#endif
