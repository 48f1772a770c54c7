/* SPDX-License-Identifier: MIT */
/* An allocator that counts, and refuses the n-th request. Any thread may ask it. */
#ifndef QSA_TEST_COUNTED_H
#define QSA_TEST_COUNTED_H

#include <qsa/qsa.h>

typedef struct counter {
    _Atomic int64_t calls; /* so far */
    int64_t fail_at;       /* the call to refuse; 0: none */
    _Atomic int64_t bytes; /* held now */
} counter;

qsa_allocator counted(counter *c);

#endif
