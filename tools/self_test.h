/* SPDX-License-Identifier: MIT */
/* What `qsa verify` does without a file: a needle in a long context, on every level and with one and all threads. */
#ifndef QSA_TOOLS_SELF_TEST_H
#define QSA_TOOLS_SELF_TEST_H

#include "options.h"

int self_test(const arguments *args);

#endif
