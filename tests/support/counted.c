/* SPDX-License-Identifier: MIT */
/* The counting allocator of the tests. */
#include "support/counted.h"

#include <stdlib.h>

static void *counted_alloc(void *user, size_t bytes, size_t align) {
    counter *c = user;
    if (++c->calls == c->fail_at) {
        return NULL;
    }
    c->bytes += (int64_t)bytes;
    size_t unit = align < sizeof(void *) ? sizeof(void *) : align;
    return aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
}

static void counted_release(void *user, void *memory, size_t bytes, size_t align) {
    (void)align;
    ((counter *)user)->bytes -= (int64_t)bytes;
    free(memory);
}

qsa_allocator counted(counter *c) {
    return (qsa_allocator){c, counted_alloc, counted_release};
}
