/* SPDX-License-Identifier: MIT */
/* The system's allocator behind qsa_allocator. */
#define _DEFAULT_SOURCE
#include "runtime/memory.h"

#include <stdlib.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#define HUGE_PAGE ((size_t)2 << 20)

static void *system_alloc(void *user, size_t bytes, size_t align) {
    (void)user;
    if (bytes >= HUGE_PAGE) {
        align = HUGE_PAGE;
    }
    if (align < sizeof(void *)) {
        align = sizeof(void *);
    }
    if (bytes > SIZE_MAX - align) {
        return NULL;
    }
    size_t rounded = (bytes + align - 1) / align * align;
    void *memory = aligned_alloc(align, rounded);
#if defined(MADV_HUGEPAGE)
    if (memory && rounded >= HUGE_PAGE) {
        (void)madvise(memory, rounded, MADV_HUGEPAGE); /* a wish: small pages are as right, only slower */
    }
#endif
    return memory;
}

static void system_release(void *user, void *memory, size_t bytes, size_t align) {
    (void)user;
    (void)bytes;
    (void)align;
    free(memory);
}

const qsa_allocator qsa_system_allocator = {NULL, system_alloc, system_release};

void *qsa_allocate(const qsa_allocator *a, size_t bytes, size_t align) {
    if (!a || !a->alloc) {
        a = &qsa_system_allocator;
    }
    return a->alloc(a->user, bytes ? bytes : 1, align);
}

void qsa_release(const qsa_allocator *a, void *memory, size_t bytes, size_t align) {
    if (!a || !a->alloc) {
        a = &qsa_system_allocator;
    }
    if (memory) {
        a->release(a->user, memory, bytes ? bytes : 1, align);
    }
}
