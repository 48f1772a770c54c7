/* SPDX-License-Identifier: MIT */
/* Small values are drawn as often as large ones: a range's ends are where faults are. */
#include "support/random_shape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "support/rig.h"

static int64_t skewed(rng *r, int64_t low, int64_t high) {
    return rng_range(r, low, rng_range(r, low, high));
}

qsa_shape random_shape(rng *r, int64_t most) {
    for (;;) {
        int64_t kv_heads = skewed(r, 1, 64), group = skewed(r, 1, 64), head_dim = 64 * skewed(r, 1, 8);
        int64_t block = INT64_C(2) << rng_range(r, 0, 2);
        qsa_shape s = shape_of(kv_heads * group, kv_heads, head_dim, skewed(r, 1, 64), 16 * skewed(r, 1, 32), block,
                               block * skewed(r, 1, 400));
        s.scale *= 0.5f + 0.25f * (1.0f + rng_float(r));
        s.index_scale *= 1.0f + 0.5f * rng_float(r);
        qsa_error error;
        if (s.q_heads > 256 || s.q_heads * head_dim > most) {
            continue;
        }
        if (qsa_shape_check(&s, &error) != QSA_OK) {
            fail_msg("%s", error.message);
        }
        return s;
    }
}

const char *shape_text(const qsa_shape *s, char text[160]) {
    snprintf(text, 160, "heads %d/%d x %d, index %d x %d, block %d, budget %d", (int)s->q_heads, (int)s->kv_heads,
             (int)s->head_dim, (int)s->index_heads, (int)s->index_dim, (int)s->block, (int)s->budget);
    return text;
}
