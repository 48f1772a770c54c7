/* SPDX-License-Identifier: MIT */
/* Shapes from all of qsa_shape's ranges, with K/V of a cell of at most `most` channels in all. */
#ifndef QSA_TEST_RANDOM_SHAPE_H
#define QSA_TEST_RANDOM_SHAPE_H

#include <qsa/qsa.h>

#include "support/rng.h"

qsa_shape random_shape(rng *r, int64_t most);

/* One line with every field, for a failure's message. */
const char *shape_text(const qsa_shape *shape, char text[160]);

#endif
