/* SPDX-License-Identifier: MIT */
/* An allocator that counts, and refuses the n-th request. */
#ifndef QSA_TEST_COUNTED_H
#define QSA_TEST_COUNTED_H

#include <qsa/qsa.h>

typedef struct counter {
    int64_t calls, fail_at, bytes; /* so far; the call to refuse, 0: none; held now */
} counter;

qsa_allocator counted(counter *c);

#endif
