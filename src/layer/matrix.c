/* SPDX-License-Identifier: MIT */
/* Packing weights and tokens, and sharing the panels of a product among threads. */
#include "layer/matrix.h"

#include "runtime/context.h"
#include "runtime/cpu.h"
#include "runtime/memory.h"

#include <string.h>

int64_t qsa_matrix_floats(int64_t rows, int64_t columns) {
    return qsa_mul(qsa_round_up(rows, QSA_PANEL), columns);
}

int64_t qsa_matrix_panels(const qsa_matrix *matrix) {
    return qsa_div_up(matrix->rows, QSA_PANEL);
}

int64_t qsa_matrix_live(const qsa_matrix *matrix, int64_t panel) {
    return qsa_min(QSA_PANEL, matrix->rows - panel * QSA_PANEL);
}

/* [count][columns] to [columns in fold order][width], zeros from count to width. */
static void interleave(const float *from, int64_t count, int64_t columns, int64_t width, float *to) {
    for (int i = 0; i < 16; i++) {
        for (int64_t c = qsa_lane_of(i); c < columns; c += 16, to += width) {
            for (int64_t r = 0; r < count; r++) {
                to[r] = from[r * columns + c];
            }
            for (int64_t r = count; r < width; r++) {
                to[r] = 0.0f;
            }
        }
    }
}

void qsa_matrix_pack(const qsa_matrix *matrix, int64_t panel, const float *rows) {
    interleave(rows, qsa_matrix_live(matrix, panel), matrix->columns, QSA_PANEL,
               matrix->packed + panel * QSA_PANEL * matrix->columns);
}

qsa_layer_kernels qsa_layer_kernels_of(qsa_cpu cpu) {
#if defined(QSA_X86)
    if (cpu == QSA_CPU_AVX512 || cpu == QSA_CPU_AMX) {
        return (qsa_layer_kernels){qsa_project_f32_avx512, qsa_turn_f32_avx512};
    }
    if (cpu == QSA_CPU_AVX2) {
        return (qsa_layer_kernels){qsa_project_f32_avx2, qsa_turn_f32_avx2};
    }
#elif defined(QSA_ARM)
    if (cpu == QSA_CPU_NEON) {
        return (qsa_layer_kernels){qsa_project_f32_neon, qsa_turn_f32_neon};
    }
#endif
    (void)cpu;
    return (qsa_layer_kernels){qsa_project_f32_c, qsa_turn_f32_c};
}

int64_t qsa_multiply_scratch(int64_t columns, int64_t tokens) {
    int64_t floats = qsa_mul(qsa_min(tokens, QSA_PROJECT_WAVE), columns);
    return qsa_mul(floats, (int64_t)sizeof(float));
}

typedef struct multiply_call {
    const float *x;
    int64_t tokens, columns;
    const qsa_product *products;
    qsa_project_fn *kernel;
    float *packed;
} multiply_call;

static void pack_group(void *arg, int64_t group) {
    const multiply_call *call = arg;
    int64_t first = group * QSA_GROUP, tokens = qsa_min(QSA_GROUP, call->tokens - first);
    interleave(call->x + first * call->columns, tokens, call->columns, tokens, call->packed + first * call->columns);
}

/* Items count the panels of all products in turn. */
static void multiply_panel(void *arg, int64_t panel) {
    const multiply_call *call = arg;
    const qsa_product *product = call->products;
    while (panel >= qsa_matrix_panels(product->matrix)) {
        panel -= qsa_matrix_panels(product->matrix);
        product++;
    }
    call->kernel(&(qsa_project_job){
        .panel = product->matrix->packed + panel * QSA_PANEL * call->columns,
        .x = call->packed,
        .columns = call->columns,
        .tokens = call->tokens,
        .live = qsa_matrix_live(product->matrix, panel),
        .out = product->out + panel * QSA_PANEL,
        .out_stride = product->matrix->rows,
    });
}

void qsa_multiply(qsa_context *context, const float *x, int64_t tokens, int64_t columns, const qsa_product *products,
                  int64_t count, float *scratch) {
    multiply_call call = {x,      tokens, columns, products, qsa_layer_kernels_of(qsa_context_cpu(context)).project,
                          scratch};
    int64_t panels = 0;
    for (int64_t i = 0; i < count; i++) {
        panels += qsa_matrix_panels(products[i].matrix);
    }
    qsa_run(context, qsa_div_up(tokens, QSA_GROUP), pack_group, &call);
    qsa_run(context, panels, multiply_panel, &call);
}
