/* SPDX-License-Identifier: MIT */
/* The portable attend kernels: they define the bits. */
#include "attend/attend.h"

#include "runtime/cpu.h"
#include "runtime/memory.h"

/* ------------------------------------------------------------------------------------------------ cells */

void qsa_attend_gather(const qsa_attend_unit *unit, int64_t first, int64_t n, qsa_attend_cells *cells) {
    const qsa_kv *kv = unit->kv;
    int64_t head = unit->kv_head * kv->head_stride, scale_head = unit->kv_head * kv->scale_head_stride;
    int64_t mask = kv->pages ? kv->page_cells - 1 : INT64_MAX;
    int shift = kv->pages ? __builtin_ctzll((unsigned long long)kv->page_cells) : 0;
    int64_t live = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t cell = unit->ids ? unit->ids[first + i] : unit->first_cell + first + i;
        if (cell < 0) {
            continue;
        }
        int64_t page = kv->pages ? kv->pages[cell >> shift] : 0, in_page = cell & mask;
        int64_t at = page * kv->page_stride + in_page * kv->cell_stride + head;
        cells->k[live] = (const char *)kv->k + at;
        cells->v[live] = (const char *)kv->v + at;
        cells->k_scale[live] = cells->v_scale[live] = NULL;
        if (kv->type == QSA_I8_G64) {
            int64_t scale_at = page * kv->scale_page_stride + in_page * kv->scale_cell_stride + scale_head;
            cells->k_scale[live] = (const uint16_t *)(const void *)((const char *)kv->k_scale + scale_at);
            cells->v_scale[live] = (const uint16_t *)(const void *)((const char *)kv->v_scale + scale_at);
        }
        live++;
    }
    cells->count = live;
}

/* The chunk at id `first`; behind the last, the first chunk of unit->next, if any. */
static void gather_ahead(const qsa_attend_unit *unit, int64_t first, qsa_attend_cells *cells) {
    cells->count = 0;
    if (first < unit->n_ids) {
        qsa_attend_gather(unit, first, qsa_min(unit->chunk, unit->n_ids - first), cells);
    } else if (unit->next) {
        qsa_attend_gather(unit->next, 0, qsa_min(unit->next->chunk, unit->next->n_ids), cells);
    }
}

void qsa_attend_open(qsa_attend_walk *walk, const qsa_attend_unit *unit) {
    walk->whole = unit;
    walk->head = unit->more_heads;
    walk->at = 0;
    walk->first = -1;
    walk->now = &walk->cells[1];
    walk->ahead = &walk->cells[0];
    gather_ahead(unit, 0, walk->ahead);
}

/* The first line of each run of cells: its memory page is found while the rows before it are on their way. Inlined, because gcc 12
 * takes calls away of functions that only prefetch. */
__attribute__((always_inline)) static inline void touch_runs(const qsa_attend_cells *cells, int64_t cell_stride, int64_t shift) {
    for (int64_t j = 0; j < cells->count; j++) {
        if (j == 0 || cells->k[j] != cells->k[j - 1] + cell_stride) {
            __builtin_prefetch(cells->k[j] + shift, 0, 2);
        }
    }
}

/* What the pass of head `walk->head` fetches: rows 2 count head .. 2 count (head + 1) - 1 of the cells where these are whole. */
static void start_fetch(qsa_attend_walk *walk) {
    const qsa_kv *kv = walk->whole->kv;
    int64_t heads = walk->whole->more_heads + 1, row = walk->whole->head_dim * qsa_kv_element(kv->type), h = walk->head;
    int64_t count = walk->ahead->count;
    int whole = (const char *)kv->v - (const char *)kv->k == row && kv->head_stride == 2 * row &&
                kv->cell_stride == 2 * row * heads;
    walk->fetch = (qsa_attend_fetch){.cells = walk->ahead, .bytes = row, .record = 2 * row, .left = 2 * count};
    walk->fetch.scale_shift = h * kv->scale_head_stride;
    if (whole) {
        walk->fetch.record = kv->cell_stride;
        walk->fetch.cell = h * count / heads;
        walk->fetch.at = h * count % heads * 2 * row;
    } else {
        walk->fetch.shift = h * kv->head_stride;
    }
    if (h == 0 || !whole) {
        touch_runs(walk->ahead, kv->cell_stride, walk->fetch.shift);
    }
}

static void step_to_head(qsa_attend_walk *walk) {
    const qsa_kv *kv = walk->whole->kv;
    qsa_attend_cells *now = walk->now;
    for (int64_t j = 0; j < now->count; j++) {
        now->k[j] += kv->head_stride;
        now->v[j] += kv->head_stride;
        if (kv->type == QSA_I8_G64) {
            now->k_scale[j] += kv->scale_head_stride / 2;
            now->v_scale[j] += kv->scale_head_stride / 2;
        }
    }
}

int qsa_attend_next(qsa_attend_walk *walk) {
    const qsa_attend_unit *whole = walk->whole;
    if (walk->head < whole->more_heads) {
        walk->head++;
        step_to_head(walk);
        walk->unit = qsa_attend_head(whole, walk->head);
        start_fetch(walk);
        return 1;
    }
    while (walk->at < whole->n_ids) {
        qsa_attend_cells *behind = walk->now;
        walk->now = walk->ahead;
        walk->ahead = behind;
        walk->at += whole->chunk;
        gather_ahead(whole, walk->at, behind);
        if (walk->now->count > 0) {
            walk->first = walk->first < 0;
            walk->head = 0;
            walk->unit = qsa_attend_head(whole, 0);
            start_fetch(walk);
            return 1;
        }
    }
    if (walk->first < 0) {
        qsa_attend_clear(whole);
    }
    return 0;
}

int64_t qsa_attend_pad(qsa_attend_cells *cells, int64_t multiple) {
    int64_t padded = qsa_round_up(cells->count, multiple);
    for (int64_t j = cells->count; j < padded; j++) {
        cells->k[j] = cells->k[0];
        cells->v[j] = cells->v[0];
        cells->k_scale[j] = cells->k_scale[0];
        cells->v_scale[j] = cells->v_scale[0];
    }
    return padded;
}

void qsa_attend_clear(const qsa_attend_unit *unit) {
    for (int64_t h = 0; h < unit->heads * (1 + unit->more_heads); h++) {
        float *part = unit->part + h * (unit->head_dim + 2);
        memset(part, 0, (size_t)unit->head_dim * sizeof *part);
        part[unit->head_dim] = -QSA_INFINITY;
        part[unit->head_dim + 1] = 0.0f;
    }
}

/* ------------------------------------------------------------------------------------------------ softmax */

/* s becomes p = exp(s - m); returns m and l. */
static void softmax(float *s, int64_t count, float *m, float *l) {
    float top = -QSA_INFINITY, lane[16] = {0};
    for (int64_t j = 0; j < count; j++) {
        top = s[j] > top ? s[j] : top;
    }
    top += 0.0f; /* the maximum of -0 and +0 must not depend on the order */
    for (int64_t j = 0; j < count; j++) {
        s[j] = qsa_exp(s[j] - top);
        lane[j % 16] += s[j];
    }
    *m = top;
    *l = qsa_fold16(lane);
}

/* How a chunk (m, l) joins a part: the factors of what is there and of what comes. */
typedef struct join {
    float old, new;
} join;

/* part: {acc[dim], m, l}; the first chunk starts it. */
static join join_chunk(float *part, int64_t dim, float m, float l, int first) {
    float *part_m = part + dim, *part_l = part + dim + 1;
    if (first) {
        *part_m = m;
        *part_l = l;
        return (join){0, 1};
    }
    float top = m > *part_m ? m : *part_m;
    join f = {qsa_exp(*part_m - top), qsa_exp(m - top)};
    *part_l = qsa_fma(l, f.new, *part_l * f.old);
    *part_m = top;
    return f;
}

/* ------------------------------------------------------------------------------------------------ int8 */

static float *steps_of(const void *prepared, int64_t heads, int64_t head_dim) {
    return (float *)(void *)((char *)(uintptr_t)prepared + (size_t)(heads * head_dim) * sizeof(int16_t));
}

void qsa_attend_prepare_c(const float *q, int64_t heads, int64_t head_dim, float scale, void *prepared) {
    int16_t *grid_q = prepared;
    float *step = steps_of(prepared, heads, head_dim);
    for (int64_t g = 0; g < heads * (head_dim / QSA_GROUP); g++) {
        const float *x = q + g * QSA_GROUP;
        uint32_t largest = 0;
        for (int64_t c = 0; c < QSA_GROUP; c++) {
            largest = qsa_magnitude(x[c]) > largest ? qsa_magnitude(x[c]) : largest;
        }
        qsa_grid grid = qsa_grid_of(largest);
        for (int64_t c = 0; c < QSA_GROUP; c++) {
            grid_q[g * QSA_GROUP + c] = qsa_grid_round(x[c], grid.inverse);
        }
        step[g] = grid.step * scale;
    }
}

static int32_t dot_group(const int16_t *q, const int8_t *k) {
    int32_t sum = 0;
    for (int c = 0; c < QSA_GROUP; c++) {
        sum += q[c] * k[c];
    }
    return sum;
}

static float dot_i8(const int16_t *q, const float *step, const char *k, const uint16_t *k_scale, int64_t groups) {
    float s = 0.0f;
    for (int64_t g = 0; g < groups; g++) {
        int32_t dot = dot_group(q + g * QSA_GROUP, (const int8_t *)k + g * QSA_GROUP);
        s = qsa_fma((float)dot, qsa_f16_to_f32(k_scale[g]) * step[g], s);
    }
    return s;
}

float qsa_attend_ratios(const qsa_attend_cells *cells, int64_t g, float ratio[QSA_CHUNK_MAX]) {
    uint32_t largest = 0;
    for (int64_t j = 0; j < cells->count; j++) {
        ratio[j] = qsa_f16_to_f32(cells->v_scale[j][g]);
        largest = qsa_magnitude(ratio[j]) > largest ? qsa_magnitude(ratio[j]) : largest;
    }
    qsa_grid grid = qsa_grid_of(largest);
    for (int64_t j = 0; j < cells->count; j++) {
        ratio[j] = grid.inverse > 0.0f ? ratio[j] * grid.inverse : 0.0f;
    }
    return grid.step;
}

/* A_d of one group for d in 0..63. */
static void sum_group(const qsa_attend_cells *cells, const int16_t *w, int64_t g, int32_t sum[QSA_GROUP]) {
    memset(sum, 0, QSA_GROUP * sizeof *sum);
    for (int64_t j = 0; j < cells->count; j++) {
        const int8_t *v = (const int8_t *)cells->v[j] + g * QSA_GROUP;
        for (int c = 0; c < QSA_GROUP; c++) {
            sum[c] += w[j] * v[c];
        }
    }
}

static void chunk_head_i8(const qsa_attend_unit *unit, const qsa_attend_cells *cells, int64_t h, int first) {
    int64_t dim = unit->head_dim, groups = dim / QSA_GROUP;
    const int16_t *q = (const int16_t *)unit->prepared + h * dim;
    const float *step = steps_of(unit->prepared, unit->heads, dim) + h * groups;
    float *part = unit->part + h * (dim + 2), p[QSA_CHUNK_MAX], m, l;
    for (int64_t j = 0; j < cells->count; j++) {
        p[j] = dot_i8(q, step, cells->k[j], cells->k_scale[j], groups);
    }
    softmax(p, cells->count, &m, &l);
    join f = join_chunk(part, dim, m, l, first);
    for (int64_t g = 0; g < groups; g++) {
        int16_t w[QSA_CHUNK_MAX];
        int32_t sum[QSA_GROUP];
        float ratio[QSA_CHUNK_MAX], *acc = part + g * QSA_GROUP, grid_step = qsa_attend_ratios(cells, g, ratio) * f.new;
        for (int64_t j = 0; j < cells->count; j++) {
            w[j] = qsa_attend_weight(p[j], ratio[j]);
        }
        sum_group(cells, w, g, sum);
        for (int c = 0; c < QSA_GROUP; c++) {
            acc[c] = first ? (float)sum[c] * grid_step : qsa_fma((float)sum[c], grid_step, acc[c] * f.old);
        }
    }
}

/* ------------------------------------------------------------------------------------------------ f32, f16, bf16 */

static void widen(const char *from, qsa_type type, int64_t n, float *to) {
    for (int64_t i = 0; i < n; i++) {
        if (type == QSA_F32) {
            to[i] = ((const float *)(const void *)from)[i];
        } else {
            uint16_t x = ((const uint16_t *)(const void *)from)[i];
            to[i] = type == QSA_F16 ? qsa_f16_to_f32(x) : qsa_bf16_to_f32(x);
        }
    }
}

/* The chunk for all heads: each row of K and V is widened once. p: [heads][64]. */
static void chunk_float(const qsa_attend_unit *unit, const qsa_attend_cells *cells, int first) {
    int64_t dim = unit->head_dim;
    float p[QSA_HEADS_MAX][QSA_CHUNK_MAX], x[QSA_HEAD_DIM_MAX], acc[QSA_HEAD_DIM_MAX];
    for (int64_t j = 0; j < cells->count; j++) {
        widen(cells->k[j], unit->kv->type, dim, x);
        for (int64_t h = 0; h < unit->heads; h++) {
            p[h][j] = qsa_dot16(unit->q + h * dim, x, dim) * unit->scale;
        }
    }
    for (int64_t h = 0; h < unit->heads; h++) {
        float *part = unit->part + h * (dim + 2), m, l;
        softmax(p[h], cells->count, &m, &l);
        join f = join_chunk(part, dim, m, l, first);
        memset(acc, 0, (size_t)dim * sizeof *acc);
        for (int64_t j = 0; j < cells->count; j++) {
            widen(cells->v[j], unit->kv->type, dim, x);
            for (int64_t d = 0; d < dim; d++) {
                acc[d] = qsa_fma(p[h][j], x[d], acc[d]);
            }
        }
        for (int64_t d = 0; d < dim; d++) {
            part[d] = first ? acc[d] : qsa_fma(acc[d], f.new, part[d] * f.old);
        }
    }
}

/* ------------------------------------------------------------------------------------------------ units */

static void attend_head(const qsa_attend_unit *unit) {
    int first = 1;
    for (int64_t i = 0; i < unit->n_ids; i += unit->chunk) {
        qsa_attend_cells cells;
        qsa_attend_gather(unit, i, qsa_min(unit->chunk, unit->n_ids - i), &cells);
        if (cells.count == 0) {
            continue;
        }
        if (unit->kv->type == QSA_I8_G64) {
            for (int64_t h = 0; h < unit->heads; h++) {
                chunk_head_i8(unit, &cells, h, first);
            }
        } else {
            chunk_float(unit, &cells, first);
        }
        first = 0;
    }
    if (first) {
        qsa_attend_clear(unit);
    }
}

static void attend_any(const qsa_attend_unit *unit) {
    for (int64_t i = 0; i <= unit->more_heads; i++) {
        qsa_attend_unit one = qsa_attend_head(unit, i);
        attend_head(&one);
    }
}

void qsa_attend_init(qsa_attend_kernels *kernels, qsa_cpu cpu) {
    *kernels = (qsa_attend_kernels){
        .run = {NULL, attend_any, attend_any, attend_any, attend_any},
        .name = {NULL, "qsa_attend_f32_c", "qsa_attend_f16_c", "qsa_attend_bf16_c", "qsa_attend_i8_c"},
        .prepare = qsa_attend_prepare_c,
        .prepare_name = "qsa_prepare_i8_c",
    };
#if defined(QSA_X86)
    if (cpu == QSA_CPU_AVX2) {
        qsa_attend_float_init_avx2(kernels);
        qsa_attend_i8_init_avx2(kernels);
    }
    if (cpu >= QSA_CPU_AVX512 && cpu <= QSA_CPU_AMX) {
        qsa_attend_float_init_avx512(kernels);
        qsa_attend_i8_init_avx512(kernels);
    }
    if (cpu == QSA_CPU_AMX) {
        qsa_attend_i8_init_amx(kernels);
    }
#elif defined(QSA_ARM)
    if (cpu == QSA_CPU_NEON) {
        qsa_attend_float_init_neon(kernels);
        qsa_attend_i8_init_neon(kernels);
    }
#else
    (void)cpu;
#endif
}
