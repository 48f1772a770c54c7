/* SPDX-License-Identifier: MIT */
/*
 * The score stage of a wave. Rows are scored in full; or, with screening, in three passes: intervals of all blocks from
 * the int8 copies, a list of candidates, exact scores of these. A row whose list gets too long is scored in full after
 * all.
 */
#include "runtime/memory.h"
#include "step/step.h"

/* Candidates that one item scores; and the rows that are worth screening: as many blocks, and so many times what they
 * take. */
enum { LIST_ITEM = 128, SCREEN_BLOCKS = 1024, SCREEN_SHARE = 32 };

/* Rows of one sequence that share the reading of its keys, or of their copies. */
typedef struct score_group {
    int screened;
    int64_t rows, item, ranges; /* item: blocks of a range */
    int64_t row[QSA_SCORE_ROWS];
} score_group;

typedef struct score_plan {
    qsa_wave *wave;
    int64_t groups, items;
    score_group group[QSA_WAVE];
} score_plan;

static int64_t blocks_of(const qsa_wave *wave, const qsa_row *row) {
    return row->n / wave->cache->shape.block;
}

static const float *index_query(const qsa_wave *wave, const qsa_row *row) {
    return row->item->iq + row->t * wave->cache->shape.index_heads * wave->cache->shape.index_dim;
}

/* ------------------------------------------------------------------------------------------------ all blocks of rows */

static int joins(const qsa_wave *wave, const score_group *group, const qsa_row *row) {
    return group->rows > 0 && group->rows < QSA_SCORE_ROWS && group->screened == row->screened &&
           wave->row[group->row[0]].item->sequence == row->item->sequence;
}

static void plan_row(score_plan *plan, int64_t i) {
    qsa_wave *wave = plan->wave;
    qsa_row *row = &wave->row[i];
    if (plan->groups == 0 || !joins(wave, &plan->group[plan->groups - 1], row)) {
        int64_t item = row->screened ? QSA_SCORE_ITEM : qsa_score_item(blocks_of(wave, row));
        plan->group[plan->groups++] = (score_group){.screened = row->screened, .item = item};
    }
    score_group *group = &plan->group[plan->groups - 1];
    int64_t ranges = qsa_div_up(blocks_of(wave, row), group->item);
    row->low_count = ranges * (group->item / QSA_SCREEN_GROUP);
    group->row[group->rows++] = i;
    plan->items += qsa_max(group->ranges, ranges) - group->ranges;
    group->ranges = qsa_max(group->ranges, ranges);
}

static void score_range(const qsa_wave *wave, const score_group *group, int64_t first) {
    const qsa_shape *shape = &wave->cache->shape;
    qsa_score_range range = {
        .keys = &wave->row[group->row[0]].keys,
        .heads = shape->index_heads,
        .dim = shape->index_dim,
        .scale = shape->index_scale,
        .rows = group->rows,
        .first = first,
    };
    int64_t last = 0;
    for (int64_t r = 0; r < group->rows; r++) {
        const qsa_row *row = &wave->row[group->row[r]];
        range.iq[r] = index_query(wave, row);
        range.scores[r] = row->scores;
        range.blocks[r] = blocks_of(wave, row);
        last = qsa_max(last, range.blocks[r]);
    }
    range.last = qsa_min(last, first + group->item);
    qsa_score_run(qsa_context_score(wave->cache->context), &range);
}

/* Row after row: a range of copies stays in the core's cache. */
static void screen_range(const qsa_wave *wave, const score_group *group, int64_t first) {
    const qsa_cache *cache = wave->cache;
    for (int64_t r = 0; r < group->rows; r++) {
        const qsa_row *row = &wave->row[group->row[r]];
        qsa_screen_range range = {
            .tiles = qsa_cache_plane(cache, wave->args->layer, QSA_PLANE_SCREEN),
            .pages = row->item->sequence->pages,
            .page_stride = cache->page.screen,
            .page_blocks = cache->page_blocks,
            .first = first,
            .last = qsa_min(blocks_of(wave, row), first + group->item),
            .query = &row->query,
            .low = row->scores,
            .high = row->high,
        };
        if (range.first < range.last) {
            qsa_screen_run(qsa_context_screen(cache->context), &range);
            qsa_context_select(cache->context)
                ->maxima(row->scores + first, range.last - first, group->item / QSA_SCREEN_GROUP,
                         row->lows + first / QSA_SCREEN_GROUP);
        }
    }
}

static void score_item(void *arg, int64_t item) {
    const score_plan *plan = arg;
    const score_group *group = plan->group;
    while (item >= group->ranges) {
        item -= group->ranges;
        group++;
    }
    if (group->screened) {
        screen_range(plan->wave, group, item * group->item);
    } else {
        score_range(plan->wave, group, item * group->item);
    }
}

static void run_plan(score_plan *plan) {
    qsa_run(plan->wave->cache->context, plan->items, score_item, plan);
}

/* ------------------------------------------------------------------------------------------------ screened rows */

static int64_t blocks_to_take(const qsa_wave *wave, const qsa_row *row) {
    const qsa_shape *shape = &wave->cache->shape;
    return qsa_div_up(qsa_width(shape, wave->args->contract, row->n) - row->n % shape->block, shape->block);
}

static void prepare_row(void *arg, int64_t i) {
    qsa_wave *wave = arg;
    qsa_row *row = &wave->row[i];
    const qsa_shape *shape = &wave->cache->shape;
    int64_t blocks = blocks_of(wave, row);
    if (row->scored && blocks >= SCREEN_BLOCKS && blocks / SCREEN_SHARE >= blocks_to_take(wave, row)) {
        row->screened = qsa_screen_prepare(index_query(wave, row), shape->index_heads, shape->index_dim,
                                           shape->index_scale, row->query_memory, &row->query);
    }
}

static void list_row(void *arg, int64_t i) {
    qsa_wave *wave = arg;
    qsa_row *row = &wave->row[i];
    if (!row->screened) {
        return;
    }
    int64_t blocks = blocks_of(wave, row);
    qsa_candidates_job job = {
        .low = row->lows,
        .lows = row->low_count,
        .high = row->high,
        .blocks = blocks,
        .k = blocks_to_take(wave, row),
        .list = row->list,
        .most = blocks / 2,
    };
    row->listed = qsa_context_select(wave->cache->context)->candidates(&job);
    row->screened = row->listed >= 0;
}

/* The intervals are read no more: exact scores take the place of the lower ends, in the order of the list. */
static void list_item(void *arg, int64_t item) {
    const qsa_wave *wave = arg;
    const qsa_shape *shape = &wave->cache->shape;
    const qsa_row *row = wave->row;
    while (!row->screened || item >= qsa_div_up(row->listed, LIST_ITEM)) {
        item -= row->screened ? qsa_div_up(row->listed, LIST_ITEM) : 0;
        row++;
    }
    const char *key[LIST_ITEM];
    qsa_score_list list = {
        .key = key,
        .count = qsa_min(row->listed - item * LIST_ITEM, LIST_ITEM),
        .heads = shape->index_heads,
        .dim = shape->index_dim,
        .scale = shape->index_scale,
        .iq = index_query(wave, row),
        .scores = row->scores + item * LIST_ITEM,
    };
    for (int64_t i = 0; i < list.count; i++) {
        key[i] = qsa_keys_block(&row->keys, row->list[item * LIST_ITEM + i]);
    }
    qsa_context_score(wave->cache->context)->list[row->keys.type == QSA_BF16](&list);
}

static void score_listed(qsa_wave *wave) {
    score_plan again = {.wave = wave};
    int64_t items = 0;
    for (int64_t i = 0; i < wave->rows; i++) {
        const qsa_row *row = &wave->row[i];
        if (row->screened) {
            items += qsa_div_up(row->listed, LIST_ITEM);
        } else if (row->listed < 0) {
            plan_row(&again, i);
        }
    }
    run_plan(&again);
    qsa_run(wave->cache->context, items, list_item, wave);
}

void qsa_wave_score(qsa_wave *wave) {
    qsa_context *context = wave->cache->context;
    score_plan plan = {.wave = wave};
    int screened = 0;
    if (wave->cache->page.screen && wave->args->contract != QSA_DENSE) {
        qsa_run(context, wave->rows, prepare_row, wave);
    }
    for (int64_t i = 0; i < wave->rows; i++) {
        if (wave->row[i].scored) {
            plan_row(&plan, i);
            screened |= wave->row[i].screened;
        }
    }
    run_plan(&plan);
    if (screened) {
        qsa_run(context, wave->rows, list_row, wave);
        score_listed(wave);
    }
}
