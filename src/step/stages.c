/* SPDX-License-Identifier: MIT */
/* The stages of a wave behind scoring.c, each cut into items from the rows' shapes alone. */
#include "runtime/memory.h"
#include "step/step.h"

/* ------------------------------------------------------------------------------------------------ select */

static void select_row(const qsa_wave *wave, qsa_row *row) {
    const qsa_item *item = row->item;
    const qsa_select_kernels *kernels = qsa_context_select(wave->cache->context);
    if (row->screened) {
        qsa_select_listed(kernels, &wave->cache->shape, wave->args->contract, row->scores, row->list, row->listed, row->n,
                          row->selected);
    } else if (!item->ids && wave->args->contract != QSA_DENSE) {
        qsa_select_row(kernels, &wave->cache->shape, wave->args->contract, row->scores, row->n, row->selected);
    } else if (item->ids && item->seen) {
        memcpy(row->selected, row->given, (size_t)row->given_ids * sizeof *row->selected);
        for (int64_t i = row->given_ids; i < row->n_ids; i++) {
            row->selected[i] = (int32_t)(row->n - row->n_ids + i);
        }
    }
    if (!item->ids_out) {
        return;
    }
    int32_t *out = item->ids_out + row->t * item->id_stride;
    for (int64_t i = 0; i < item->id_stride; i++) {
        out[i] = i >= row->n_ids ? -1 : row->ids ? row->ids[i] : (int32_t)i;
    }
}

static const float *queries_of(const qsa_wave *wave, const qsa_row *row, int64_t kv_head) {
    const qsa_shape *s = &wave->cache->shape;
    return row->item->q + (row->t * s->q_heads + kv_head * (s->q_heads / s->kv_heads)) * s->head_dim;
}

static char *prepared_of(const qsa_wave *wave, const qsa_row *row, int64_t kv_head) {
    const qsa_shape *s = &wave->cache->shape;
    return row->prepared + (size_t)kv_head * qsa_prepared_bytes(s->q_heads / s->kv_heads, s->head_dim);
}

/* Selections first, one a row; then, for threads that would wait, the queries of each KV head onto their grid. */
static void select_item(void *arg, int64_t item) {
    qsa_wave *wave = arg;
    const qsa_shape *s = &wave->cache->shape;
    if (item < wave->rows) {
        select_row(wave, &wave->row[item]);
        return;
    }
    const qsa_row *row = &wave->row[(item - wave->rows) / s->kv_heads];
    int64_t kv_head = (item - wave->rows) % s->kv_heads;
    if (wave->cache->kv_type == QSA_I8_G64) {
        qsa_context_attend(wave->cache->context)
            ->prepare(queries_of(wave, row, kv_head), s->q_heads / s->kv_heads, s->head_dim, s->scale,
                      prepared_of(wave, row, kv_head));
    }
}

void qsa_wave_select(qsa_wave *wave) {
    qsa_run(wave->cache->context, wave->rows * (1 + wave->cache->shape.kv_heads), select_item, wave);
}

/* ------------------------------------------------------------------------------------------------ attend */

/* How the parts of a wave's rows become items: each of some KV heads of one part. */
typedef struct attend_plan {
    const qsa_wave *wave;
    int64_t kv_heads, runs; /* of an item; of a part */
    int64_t items, ahead;   /* which item this thread will most likely claim next: a hint for prefetching */
} attend_plan;

static qsa_attend_unit unit_of(const attend_plan *plan, int64_t item) {
    const qsa_wave *wave = plan->wave;
    const qsa_shape *s = &wave->cache->shape;
    const qsa_row *row = wave->row;
    while (item >= row->parts * plan->runs) {
        item -= row->parts * plan->runs;
        row++;
    }
    int64_t kv_head = item % plan->runs * plan->kv_heads, part = item / plan->runs, heads = s->q_heads / s->kv_heads;
    int64_t first = part * row->in_part;
    return (qsa_attend_unit){
        .kv = &row->kv,
        .kv_head = kv_head,
        .more_heads = plan->kv_heads - 1,
        .heads = heads,
        .head_dim = s->head_dim,
        .scale = s->scale,
        .ids = row->ids ? row->ids + first : NULL,
        .first_cell = first,
        .n_ids = qsa_min(row->n_ids - first, row->in_part),
        .chunk = wave->chunk,
        .q = queries_of(wave, row, kv_head),
        .prepared = prepared_of(wave, row, kv_head),
        .part = row->partials + (part * s->q_heads + kv_head * heads) * (s->head_dim + 2),
    };
}

static void attend_item(void *arg, int64_t item) {
    const attend_plan *plan = arg;
    qsa_attend_unit unit = unit_of(plan, item), next;
    if (item + plan->ahead < plan->items) {
        next = unit_of(plan, item + plan->ahead);
        unit.next = &next;
    }
    qsa_context_attend(plan->wave->cache->context)->run[plan->wave->cache->kv_type](&unit);
}

/* All KV heads of a part are one item, since their cells lie together, unless single heads would keep the threads much busier:
 * a quarter is what reading together saves. Bits do not depend on it. */
void qsa_wave_attend(qsa_wave *wave) {
    int64_t kv_heads = wave->cache->shape.kv_heads, threads = qsa_context_threads(wave->cache->context), parts = 0, full = 0;
    for (int64_t i = 0; i < wave->rows; i++) {
        parts += wave->row[i].parts;
        full += wave->row[i].n_ids / qsa_max(wave->row[i].in_part, 1); /* the last part of a row may be a few cells */
    }
    int together = 4 * kv_heads * qsa_div_up(full, threads) <= 5 * qsa_div_up(full * kv_heads, threads);
    attend_plan plan = {.wave = wave, .kv_heads = together ? kv_heads : 1, .runs = together ? 1 : kv_heads, .ahead = threads};
    plan.items = parts * plan.runs;
    qsa_run(wave->cache->context, plan.items, attend_item, &plan);
}

/* ------------------------------------------------------------------------------------------------ merge */

static void merge_item(void *arg, int64_t item) {
    const qsa_wave *wave = arg;
    const qsa_shape *s = &wave->cache->shape;
    const qsa_row *row = &wave->row[item / s->q_heads];
    int64_t h = item % s->q_heads;
    qsa_merge_job job = {
        .partials = row->partials + h * (s->head_dim + 2),
        .part_stride = s->q_heads * (s->head_dim + 2),
        .parts = row->parts,
        .head_dim = s->head_dim,
        .gate = row->item->gate ? row->item->gate + (row->t * s->q_heads + h) * s->head_dim : NULL,
    };
    char *out = (char *)row->item->out + row->t * qsa_prepared_size(wave->out_type, s->q_heads * s->head_dim);
    qsa_merge_head(qsa_context_merge(wave->cache->context), &job, wave->out_type, h, out);
}

void qsa_wave_merge(qsa_wave *wave) {
    qsa_run(wave->cache->context, wave->rows * wave->cache->shape.q_heads, merge_item, wave);
}
