// SPDX-License-Identifier: MIT
// qsa.h as C++: the same text as header.c.
#include "header.c"
