/* SPDX-License-Identifier: MIT */
/*
 * Who holds which page. A page is free, or held by one sequence or more; only a page that one sequence holds is written to.
 * These take the cache's lock themselves.
 */
#ifndef QSA_CACHE_PAGES_H
#define QSA_CACHE_PAGES_H

#include "cache/cache.h"

/* Makes the sequence the only holder of all pages of cells start..end - 1: takes new ones, and copies those that it shares.
 * All or nothing. */
qsa_status qsa_pages_own(qsa_sequence *sequence, int64_t start, int64_t end, qsa_error *error);

/* One holder more of each page. */
void qsa_pages_share(qsa_cache *cache, const int32_t *pages, int64_t count);

/* The sequence holds its first `keep` pages only. */
void qsa_pages_drop(qsa_sequence *sequence, int64_t keep);

#endif
