/* SPDX-License-Identifier: MIT */
/* Two ascending lists of cells compared. */
#ifndef QSA_TOOLS_OVERLAP_H
#define QSA_TOOLS_OVERLAP_H

#include <stdint.h>

/* Cells of `want` that `ids` has, as a share of want; 1 where want is empty. */
double overlap_share(const int32_t *ids, int64_t count, const int32_t *want, int64_t want_count);

/* Calls body for each cell that only one of the lists has, ascending. */
void overlap_differences(const int32_t *ids, int64_t count, const int32_t *want, int64_t want_count,
                         void (*body)(void *arg, int32_t cell), void *arg);

#endif
