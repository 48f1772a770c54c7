/* SPDX-License-Identifier: MIT */
#include "overlap.h"

void overlap_differences(const int32_t *ids, int64_t count, const int32_t *want, int64_t want_count,
                         void (*body)(void *arg, int32_t cell), void *arg) {
    int64_t i = 0, j = 0;
    while (i < count || j < want_count) {
        if (j == want_count || (i < count && ids[i] < want[j])) {
            body(arg, ids[i++]);
        } else if (i == count || want[j] < ids[i]) {
            body(arg, want[j++]);
        } else {
            i++;
            j++;
        }
    }
}

static void count_cell(void *arg, int32_t cell) {
    int64_t *differences = arg;
    (void)cell;
    ++*differences;
}

double overlap_share(const int32_t *ids, int64_t count, const int32_t *want, int64_t want_count) {
    int64_t differences = 0;
    overlap_differences(ids, count, want, want_count, count_cell, &differences);
    return want_count ? (double)(count + want_count - differences) / (2.0 * (double)want_count) : 1;
}
