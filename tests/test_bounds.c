/* SPDX-License-Identifier: MIT */
/* The bounds that docs/numerics.md derives, computed in float64 from the data, against what the stages give. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <qsa/qsa.h>

#include "support/rig.h"

enum { CELLS = 736, GROUP = 64 }; /* 736: a short last chunk, and whole rows of 64 scales */

static const double U = 1.0 / 16777216.0;

static double g(double k) {
    return k * U / (1 - k * U);
}

typedef struct layer {
    qsa_shape shape;
    qsa_type type;
    int64_t chunk, fold, parts, groups;
    float *q, *out;                  /* [q_heads][head_dim] */
    void *k, *v;                     /* as stored: [CELLS][kv_heads][head_dim] */
    uint16_t *k_scale, *v_scale;     /* [CELLS][kv_heads][groups] */
    float *wide_k, *wide_v;          /* what is stored, as f32 */
    float *wide_ks, *wide_vs;        /* [CELLS][kv_heads][groups] */
} layer;

static float *some_floats(rng *r, int64_t count, double spread) {
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        x[i] = (float)spread * (rng_float(r) + rng_float(r) + rng_float(r));
    }
    return x;
}

static void store(const layer *l, const float *x, void *stored, uint16_t *scale, float *wide) {
    int64_t groups = l->shape.kv_heads * l->groups;
    MUST(qsa_kv_encode, l->type, CELLS, groups, x, stored, scale);
    MUST(qsa_kv_decode, l->type, CELLS, groups, stored, scale, wide);
}

static void widen_scales(const layer *l, const uint16_t *scale, float *wide) {
    if (l->type == QSA_I8_G64) {
        MUST(qsa_kv_decode, QSA_F16, CELLS * l->shape.kv_heads * l->groups / 64, 1, scale, NULL, wide);
    }
}

static layer new_layer(rng *r, qsa_type type, int64_t head_dim, int64_t chunk, int64_t fold) {
    layer l = {.shape = shape_of(6, 2, head_dim, 1, 64, 4, 2048), .type = type, .chunk = chunk, .fold = fold};
    l.groups = head_dim / GROUP;
    l.parts = (CELLS + chunk * fold - 1) / (chunk * fold);
    int64_t count = CELLS * 2 * head_dim;
    float *k = some_floats(r, count, 1.0), *v = some_floats(r, count, 1.0);
    for (int64_t i = 0; i < count; i++) { /* channels and cells that stand out */
        k[i] *= i % 64 == 5 ? 20.0f : 1.0f;
        v[i] *= i / head_dim % 37 == 0 ? 8.0f : 1.0f;
    }
    l.q = some_floats(r, 6 * head_dim, 1.0);
    l.out = malloc((size_t)(6 * head_dim) * sizeof *l.out);
    l.k = malloc((size_t)count * 4);
    l.v = malloc((size_t)count * 4);
    l.wide_k = malloc((size_t)count * 4);
    l.wide_v = malloc((size_t)count * 4);
    int64_t scales = CELLS * 2 * l.groups;
    l.k_scale = type == QSA_I8_G64 ? malloc((size_t)scales * 2) : NULL;
    l.v_scale = type == QSA_I8_G64 ? malloc((size_t)scales * 2) : NULL;
    l.wide_ks = malloc((size_t)scales * 4);
    l.wide_vs = malloc((size_t)scales * 4);
    store(&l, k, l.k, l.k_scale, l.wide_k);
    store(&l, v, l.v, l.v_scale, l.wide_v);
    widen_scales(&l, l.k_scale, l.wide_ks);
    widen_scales(&l, l.v_scale, l.wide_vs);
    free(k);
    free(v);
    return l;
}

static void free_layer(layer *l) {
    void *all[] = {l->q, l->out, l->k, l->v, l->k_scale, l->v_scale, l->wide_k, l->wide_v, l->wide_ks, l->wide_vs};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

static void attend(const layer *l, qsa_context *context) {
    int64_t n = CELLS, floats = l->parts * 6 * (l->shape.head_dim + 2);
    float *partials = malloc((size_t)floats * sizeof *partials);
    QSA_INIT(qsa_kv, kv);
    kv.type = l->type, kv.k = l->k, kv.v = l->v, kv.k_scale = l->k_scale, kv.v_scale = l->v_scale, kv.cells = CELLS;
    QSA_INIT(qsa_attend_args, a);
    a.q = l->q, a.rows = 1, a.n_ids = &n, a.kv = &kv, a.chunk = l->chunk, a.fold = l->fold;
    a.partials = partials, a.parts = l->parts;
    MUST(qsa_attend, context, &l->shape, &a);
    QSA_INIT(qsa_merge_args, m);
    m.partials = partials, m.parts = l->parts, m.rows = 1, m.out = l->out;
    MUST(qsa_merge, context, &l->shape, &m);
    free(partials);
}

/* One head in float64: weights, and the largest b_j of the logits. */
static double weigh(const layer *l, int64_t h, double *w) {
    int64_t dim = l->shape.head_dim, kv_head = h / 3;
    double scale = (double)l->shape.scale, top = -(double)INFINITY, total = 0, largest = 0;
    double *s = malloc(CELLS * sizeof *s), *a = malloc(CELLS * sizeof *a);
    for (int64_t j = 0; j < CELLS; j++) {
        const float *q = l->q + h * dim, *k = l->wide_k + (j * 2 + kv_head) * dim;
        double dot = 0, size = 0, grid = 0;
        for (int64_t i = 0; i < l->groups; i++) {
            double qmax = 0, sum_k = 0;
            for (int64_t c = i * GROUP; c < (i + 1) * GROUP; c++) {
                dot += (double)q[c] * (double)k[c];
                size += fabs((double)q[c] * (double)k[c]);
                qmax = fmax(qmax, fabs((double)q[c]));
                sum_k += fabs((double)k[c]); /* ks |K| */
            }
            grid += 1.01 * qmax / 65278 * sum_k;
        }
        s[j] = scale * dot;
        a[j] = l->type == QSA_I8_G64 ? scale * grid + (double)(l->groups + 6) * U * scale * size
                                     : (g((double)dim / 16 + 4) + U) * scale * size;
        top = fmax(top, s[j]);
    }
    for (int64_t j = 0; j < CELLS; j++) {
        w[j] = exp(s[j] - top);
        total += w[j];
        largest = fmax(largest, a[j] + 2 * U * fabs(s[j] - top) + (double)(l->fold + 2) * 2.4 * U);
    }
    for (int64_t j = 0; j < CELLS; j++) {
        w[j] /= total;
    }
    free(s);
    free(a);
    return largest;
}

/* r_d: what the grid of p.v loses at most. */
static double grid_loss(const layer *l, int64_t h, int64_t d, const double *w) {
    int64_t dim = l->shape.head_dim, kv_head = h / 3;
    double sum = 0;
    for (int64_t first = 0; first < CELLS; first += l->chunk) {
        double w_top = 0, scale_top = 0, v = 0;
        for (int64_t j = first; j < first + l->chunk && j < CELLS; j++) {
            double scale = (double)l->wide_vs[(j * 2 + kv_head) * l->groups + d / GROUP];
            w_top = fmax(w_top, w[j]);
            scale_top = fmax(scale_top, scale);
            v += fabs((double)l->wide_v[(j * 2 + kv_head) * dim + d]) / scale;
        }
        sum += w_top * scale_top * 1.01 / 65278 * v;
    }
    return sum;
}

/* The largest error over its bound; fails where it is above 1. *relative: largest error over largest |out|. */
static double check_layer(const layer *l, double *relative) {
    int64_t dim = l->shape.head_dim;
    double worst = 0, largest_error = 0, largest_out = 0, w[CELLS];
    for (int64_t h = 0; h < 6; h++) {
        double b = weigh(l, h, w);
        for (int64_t d = 0; d < dim; d++) {
            double o = 0, size = 0;
            for (int64_t j = 0; j < CELLS; j++) {
                double v = (double)l->wide_v[(j * 2 + h / 3) * dim + d];
                o += w[j] * v;
                size += w[j] * fabs(v);
            }
            double chain = l->type == QSA_I8_G64 ? 32 : (double)l->chunk + 24;
            double bound = (2 * b + g(chain + 4 * (double)l->fold + 2 * (double)l->parts)) * size;
            bound += l->type == QSA_I8_G64 ? (1 + 2 * b) * grid_loss(l, h, d, w) : 0;
            double error = fabs((double)l->out[h * dim + d] - o);
            assert_true(error <= bound);
            worst = fmax(worst, error / bound);
            largest_error = fmax(largest_error, error);
            largest_out = fmax(largest_out, fabs(o));
        }
    }
    *relative = largest_error / largest_out;
    return worst;
}

static void bounds_of(qsa_type type) {
    rng r = rng_of(test_seed(28));
    static const int64_t dims[] = {64, 256, 512};
    qsa_context *context;
    MUST(qsa_open, NULL, &context);
    double worst = 0, relative = 0;
    for (int i = 0; i < 12; i++) {
        layer l = new_layer(&r, type, dims[i % 3], i % 2 ? 32 : 64, 1 + i / 6);
        double error;
        attend(&l, context);
        worst = fmax(worst, check_layer(&l, &error));
        relative = fmax(relative, error);
        free_layer(&l);
    }
    print_message("%s: error at most %.2g of the bound, %.2g of the largest |out|\n", qsa_type_name(type), worst, relative);
    assert_true(worst > 1e-4); /* else the bound says nothing */
    qsa_close(context);
}

static void attend_keeps_the_bound_f32(void **state) {
    (void)state;
    bounds_of(QSA_F32);
}

static void attend_keeps_the_bound_f16(void **state) {
    (void)state;
    bounds_of(QSA_F16);
}

static void attend_keeps_the_bound_bf16(void **state) {
    (void)state;
    bounds_of(QSA_BF16);
}

static void attend_keeps_the_bound_i8(void **state) {
    (void)state;
    bounds_of(QSA_I8_G64);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attend_keeps_the_bound_f32),
        cmocka_unit_test(attend_keeps_the_bound_f16),
        cmocka_unit_test(attend_keeps_the_bound_bf16),
        cmocka_unit_test(attend_keeps_the_bound_i8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
