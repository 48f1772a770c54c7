/* SPDX-License-Identifier: MIT */
/*
 * Attend: the four K/V formats over packed, head-major, interleaved, padded and paged layouts, for one KV head or some, with holes,
 * repeats and any order of ids; what prepare() writes; and the original's three kernels.
 */
#include "checker.h"

#include "runtime/numerics.h"

#include <stdio.h>

static struct attend_state {
    qsa_attend_unit unit, next;
    qsa_kv kv;
    guarded k, v, k_scale, v_scale, q, ids, pages, prepared;
} state;

static void open_state(void) {
    guarded *const all[] = {&state.k, &state.v, &state.k_scale, &state.v_scale, &state.q, &state.ids, &state.pages, &state.prepared};
    for (size_t i = 0; !state.prepared.base && i < sizeof all / sizeof *all; i++) {
        guarded_open(all[i], 1 << 16);
    }
}

static int inputs_intact(void) {
    return guarded_intact(&state.k) && guarded_intact(&state.v) && guarded_intact(&state.k_scale) &&
           guarded_intact(&state.v_scale) && guarded_intact(&state.q) && guarded_intact(&state.ids) &&
           guarded_intact(&state.pages) && guarded_intact(&state.prepared);
}

/* ------------------------------------------------------------------------------------------------ K and V */

/* Strides of [cell][head] or [head][cell] rows of `row` bytes, perhaps with something between them. */
static void draw_strides(dice *d, int64_t row, int64_t unit, int64_t heads, int64_t cells, int head_major, int64_t *cell_stride,
                         int64_t *head_stride, int64_t *page_stride) {
    int64_t gap = dice_one_in(d, 3) ? unit * dice_range(d, 1, 70) : 0;
    if (head_major) {
        *cell_stride = row + gap;
        *head_stride = *cell_stride * cells;
        *page_stride = *head_stride * heads;
    } else {
        *head_stride = row + gap;
        *cell_stride = *head_stride * heads;
        *page_stride = *cell_stride * cells;
    }
}

/* Bytes up to the end of the last row: of the last head of the last cell of the last page. */
static int64_t extent(int64_t row, int64_t heads, int64_t cells, int64_t pages, int64_t cell_stride, int64_t head_stride,
                      int64_t page_stride) {
    return (pages - 1) * page_stride + (cells - 1) * cell_stride + (heads - 1) * head_stride + row;
}

static void *fill_values(guarded *g, dice *d, qsa_type type, flavour f, int64_t bytes) {
    void *values = guarded_place(g, d, (size_t)bytes, type == QSA_F32 ? 4 : type == QSA_I8_G64 ? 1 : 2);
    switch (type) {
    case QSA_F32: fill_f32(d, f, values, bytes / 4); break;
    case QSA_F16: fill_f16(d, f, values, bytes / 2); break;
    case QSA_BF16: fill_bf16(d, f, values, bytes / 2); break;
    default:
        for (int64_t i = 0; i < bytes; i++) {
            int edge = f != PLAIN && dice_one_in(d, 2);
            ((int8_t *)values)[i] = (int8_t)(f == ZEROS ? 0 : edge ? (dice_one_in(d, 2) ? -128 : 127) : dice_range(d, -127, 127));
        }
    }
    return values;
}

static uint16_t *fill_scales(guarded *g, dice *d, flavour f, int64_t bytes) {
    uint16_t *scales = guarded_place(g, d, (size_t)bytes, 2);
    fill_f16(d, f, scales, bytes / 2);
    for (int64_t i = 0; f == PLAIN && i < bytes / 2; i++) {
        scales[i] = qsa_f32_to_f16(0.02f + 0.01f * dice_float(d));
    }
    return scales;
}

/* cells and pages: of the memory, all of which the view may name. */
static void draw_memory(dice *d, flavour f, int64_t kv_heads, int64_t cells, int64_t pages) {
    qsa_kv *kv = &state.kv;
    int64_t dim = state.unit.head_dim, bytes = kv->type == QSA_F32 ? 4 : kv->type == QSA_I8_G64 ? 1 : 2;
    int64_t row = dim * bytes, scale_row = dim / QSA_GROUP * 2;
    int head_major = dice_one_in(d, 2);
    if (dice_one_in(d, 3)) { /* V behind K, of each head */
        draw_strides(d, 2 * row, bytes, kv_heads, cells, head_major, &kv->cell_stride, &kv->head_stride, &kv->page_stride);
        draw_strides(d, 2 * scale_row, 2, kv_heads, cells, head_major, &kv->scale_cell_stride, &kv->scale_head_stride,
                     &kv->scale_page_stride);
        kv->k = fill_values(&state.k, d, kv->type, f,
                            extent(2 * row, kv_heads, cells, pages, kv->cell_stride, kv->head_stride, kv->page_stride));
        kv->v = (const char *)kv->k + row;
        if (kv->type == QSA_I8_G64) {
            kv->k_scale = fill_scales(&state.k_scale, d, f, extent(2 * scale_row, kv_heads, cells, pages, kv->scale_cell_stride,
                                                                   kv->scale_head_stride, kv->scale_page_stride));
            kv->v_scale = kv->k_scale + scale_row / 2;
        }
        return;
    }
    draw_strides(d, row, bytes, kv_heads, cells, head_major, &kv->cell_stride, &kv->head_stride, &kv->page_stride);
    draw_strides(d, scale_row, 2, kv_heads, cells, head_major, &kv->scale_cell_stride, &kv->scale_head_stride,
                 &kv->scale_page_stride);
    int64_t size = extent(row, kv_heads, cells, pages, kv->cell_stride, kv->head_stride, kv->page_stride);
    kv->k = fill_values(&state.k, d, kv->type, f, size);
    kv->v = fill_values(&state.v, d, kv->type, dice_one_in(d, 2) ? PLAIN : f, size);
    if (kv->type == QSA_I8_G64) {
        size = extent(scale_row, kv_heads, cells, pages, kv->scale_cell_stride, kv->scale_head_stride, kv->scale_page_stride);
        kv->k_scale = fill_scales(&state.k_scale, d, f, size);
        kv->v_scale = fill_scales(&state.v_scale, d, dice_one_in(d, 2) ? PLAIN : f, size);
    }
}

/* A page table in any order; pages may not be shared by two places, but some belong to nobody. */
static void draw_pages(dice *d, int64_t held, int64_t all) {
    int32_t *pages = guarded_place(&state.pages, d, (size_t)held * sizeof *pages, sizeof *pages);
    int64_t offset = dice_range(d, 0, all - 1), step = dice_one_in(d, 2) ? 1 : all - 1;
    for (int64_t i = 0; i < held; i++) {
        pages[i] = (int32_t)((offset + i * step) % all);
    }
    state.kv.pages = pages;
}

static void draw_kv(dice *d, const case_info *info, qsa_type type, flavour f, int one_head) {
    qsa_kv *kv = &state.kv;
    *kv = (qsa_kv){.size = sizeof *kv, .type = type, .cells = info->typical ? 256 : dice_range(d, 1, 150)};
    int64_t kv_heads = info->typical ? 2 : dice_range(d, 1, 3);
    state.unit.kv_head = dice_range(d, 0, kv_heads - 1);
    state.unit.more_heads = one_head || info->typical ? 0 : dice_range(d, 0, kv_heads - 1 - state.unit.kv_head);
    state.unit.kv = kv;
    if (info->typical || dice_one_in(d, 3)) {
        draw_memory(d, f, kv_heads, kv->cells, 1);
        kv->page_stride = kv->scale_page_stride = 0;
        return;
    }
    kv->page_cells = 4 << dice_range(d, 0, 5);
    int64_t held = qsa_div_up(kv->cells, kv->page_cells), all = held + dice_range(d, 1, 3);
    draw_memory(d, f, kv_heads, kv->page_cells, all);
    draw_pages(d, held, all);
    kv->cells = dice_one_in(d, 2) ? held * kv->page_cells : kv->cells; /* the very last cell, too */
}

/* ------------------------------------------------------------------------------------------------ ids and queries */

static void draw_ids(dice *d, const case_info *info, int64_t most) {
    qsa_attend_unit *unit = &state.unit;
    int64_t cells = state.kv.cells;
    unit->n_ids = info->typical ? 64 : dice_one_in(d, 3) ? most : dice_range(d, 1, most);
    if (!info->typical && dice_one_in(d, 4) && unit->n_ids <= cells) {
        unit->ids = NULL;
        unit->first_cell = dice_range(d, 0, cells - unit->n_ids);
        return;
    }
    int32_t *ids = guarded_place(&state.ids, d, (size_t)unit->n_ids * sizeof *ids, sizeof *ids);
    int64_t holes = dice_one_in(d, 3) ? dice_range(d, 1, 4) : dice_one_in(d, 10) ? 0 : -1; /* one in `holes`; 0: all */
    for (int64_t i = 0; i < unit->n_ids; i++) {
        int hole = !info->typical && (holes == 0 || (holes > 0 && dice_one_in(d, holes)));
        ids[i] = hole ? -1 : (int32_t)(info->typical ? 3 * i : dice_one_in(d, 9) ? cells - 1 : dice_range(d, 0, cells - 1));
    }
    unit->ids = ids;
}

static void draw_unit(dice *d, case_info *info, qsa_type type, int64_t most_chunks) {
    static const int64_t usual_heads[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 16, 17, 24, 64};
    qsa_attend_unit *unit = &state.unit;
    open_state();
    *unit = (qsa_attend_unit){.heads = 12, .head_dim = 256, .scale = 0.0625f, .chunk = 64, .part = NULL};
    if (!info->typical) {
        unit->heads = dice_one_in(d, 3) ? 12 : usual_heads[dice_range(d, 0, dice_one_in(d, 6) ? 13 : 9)];
        unit->head_dim = dice_one_in(d, 3) ? 256 : 64 * dice_range(d, 1, dice_one_in(d, 5) ? 8 : 4);
        unit->scale = dice_one_in(d, 2) ? 0.0625f : dice_one_in(d, 2) ? 1.0f : 3e-5f;
        unit->chunk = dice_one_in(d, 2) ? 32 : 64;
    }
    flavour fk = info->typical ? PLAIN : dice_flavour(d), fq = info->typical ? PLAIN : dice_flavour(d);
    draw_kv(d, info, type, fk, most_chunks == 1);
    int64_t heads = unit->heads * (1 + unit->more_heads);
    draw_ids(d, info, unit->chunk * (most_chunks > 1 && dice_one_in(d, 2) ? dice_range(d, 2, most_chunks) : 1));
    float *q = guarded_place(&state.q, d, (size_t)(heads * unit->head_dim) * sizeof *q, sizeof *q);
    fill_f32(d, fq, q, heads * unit->head_dim);
    for (int64_t i = 0; fq == PLAIN && !dice_one_in(d, 3) && i < heads * unit->head_dim; i++) {
        q[i] *= 3.0f;
    }
    unit->q = q;
    state.next = *unit;
    state.next.n_ids = dice_range(d, 0, unit->n_ids);
    unit->next = dice_one_in(d, 2) ? &state.next : NULL;
    info->element = ELEMENT_F32;
    info->count = heads * (unit->head_dim + 2);
    snprintf(info->text, sizeof info->text,
             "%lld x %lld heads of %lld, %lld %s of %lld cells in chunks of %lld, pages of %lld, scale %g, K/V %s, queries %s",
             (long long)unit->more_heads + 1, (long long)unit->heads, (long long)unit->head_dim, (long long)unit->n_ids,
             unit->ids ? "ids" : "first", (long long)state.kv.cells, (long long)unit->chunk,
             (long long)(state.kv.pages ? state.kv.page_cells : 0), (double)unit->scale, flavour_name(fk), flavour_name(fq));
}

/* ------------------------------------------------------------------------------------------------ running */

static size_t prepared_bytes(void) {
    return qsa_prepared_bytes(state.unit.heads, state.unit.head_dim);
}

static char *place_prepared(void) {
    static dice d = {.state = 1};
    size_t bytes = prepared_bytes() * (size_t)(state.unit.more_heads + 1);
    return memset(guarded_place(&state.prepared, &d, bytes, 64), 0x5a, bytes);
}

static void run(const kernel_set *set, void *out) {
    qsa_attend_unit unit = state.unit;
    unit.part = out;
    if (state.kv.type == QSA_I8_G64) {
        char *prepared = place_prepared();
        for (int64_t i = 0; i <= unit.more_heads; i++) {
            set->attend.prepare(unit.q + i * unit.heads * unit.head_dim, unit.heads, unit.head_dim, unit.scale,
                                prepared + (size_t)i * prepared_bytes());
        }
        unit.prepared = prepared;
    }
    set->attend.run[state.kv.type](&unit);
}

static void run_original(qsa_attend_fn *original, void *out) {
    qsa_attend_unit unit = state.unit;
    void *prepared = place_prepared();
    qsa_attend_prepare_c(unit.q, unit.heads, unit.head_dim, unit.scale, prepared);
    unit.prepared = prepared;
    unit.part = out;
    original(&unit);
}

static void run_attn(const kernel_set *set, void *out) {
    (void)set;
    run_original(qsa_attend_attn, out);
}

static void run_attn2(const kernel_set *set, void *out) {
    (void)set;
    run_original(qsa_attend_attn2, out);
}

static void run_attn3(const kernel_set *set, void *out) {
    (void)set;
    run_original(qsa_attend_attn3, out);
}

/* ------------------------------------------------------------------------------------------------ the table */

static void draw_f32(dice *d, case_info *info) {
    draw_unit(d, info, QSA_F32, 4);
}

static void draw_f16(dice *d, case_info *info) {
    draw_unit(d, info, QSA_F16, 4);
}

static void draw_bf16(dice *d, case_info *info) {
    draw_unit(d, info, QSA_BF16, 4);
}

static void draw_i8(dice *d, case_info *info) {
    draw_unit(d, info, QSA_I8_G64, 4);
}

static void draw_one_chunk(dice *d, case_info *info) {
    draw_unit(d, info, QSA_I8_G64, 1);
}

static const char *f32(const kernel_set *set) {
    return set->attend.name[QSA_F32];
}

static const char *f16(const kernel_set *set) {
    return set->attend.name[QSA_F16];
}

static const char *bf16(const kernel_set *set) {
    return set->attend.name[QSA_BF16];
}

static const char *i8(const kernel_set *set) {
    return set->attend.name[QSA_I8_G64];
}

static const char *original(const kernel_set *set) {
    (void)set;
    return "original";
}

#define STAGE(type, count)                                                                                              \
    {                                                                                                                   \
        .name = "attend_" #type, .trials = count, .kernel = type, .draw = draw_##type, .run = run,                       \
        .inputs_intact = inputs_intact                                                                                  \
    }
#define ORIGINAL(which)                                                                                                 \
    {                                                                                                                   \
        .name = "attend_" #which, .trials = 40, .kernel = original, .draw = draw_one_chunk, .run = run_##which,          \
        .inputs_intact = inputs_intact, .reference = run                                                                \
    }

const stage attend_stages[] = {STAGE(f32, 150), STAGE(f16, 150), STAGE(bf16, 150),  STAGE(i8, 300),
                               ORIGINAL(attn),  ORIGINAL(attn2), ORIGINAL(attn3), {.name = NULL}};
