/* SPDX-License-Identifier: MIT */
/*
 * The text of the selection kernels, for any vocabulary of runtime/simd.h; each instruction set includes it once.
 *
 * 1. A threshold t is guessed: about the k-th largest of a few thousand group maxima, so that little more than k scores
 *    pass.
 * 2. A filter lists the blocks above t, in order. Are there k or more, then the k best are among them: t becomes exact
 *    on this short list. Are there fewer, then t may be the k-th score itself: the first blocks equal to it fill the list.
 * 3. The list is written out.
 *
 * Step 2 proves its result whatever t is, so the guess need not care for rests, NaNs or infinities. Where the guess does
 * not hold (fewer than k numbers in the row, or a list that overflows), the portable kernel does the row.
 *
 * Scores are compared as floats: -0 equals +0 and a NaN is above and equal to nothing, which is the order of
 * qsa_select_key.
 */
#include "runtime/memory.h"
#include "select/select.h"

enum { GROUPS_MAX = 4096, LIST_MAX = 4096, WORD = QSA_SELECT_WORD };

typedef struct survivors {
    _Alignas(64) float score[GROUPS_MAX + WORD]; /* group maxima first, then the scores of the blocks */
    int32_t block[LIST_MAX + 2 * WORD];
    int64_t count;
} survivors;

/* Signed integers in the order of the floats; -0 next below +0. */
static int64_t order_of(float x) {
    int32_t bits = (int32_t)qsa_bits(x);
    return bits < 0 ? (int64_t)(bits ^ 0x7fffffff) : bits;
}

static float float_of(int64_t order) {
    int32_t bits = (int32_t)order;
    return qsa_from_bits((uint32_t)(bits < 0 ? bits ^ 0x7fffffff : bits));
}

/* x[count..] becomes NaN up to a whole word. */
static int64_t pad(float *x, int64_t count) {
    int64_t whole = qsa_round_up(count, WORD);
    for (int64_t i = count; i < whole; i++) {
        x[i] = qsa_from_bits(0x7fc00000u);
    }
    return whole;
}

QSA_SIMD int64_t count_above(const float *x, int64_t n, float t) {
    vf limit = v_set(t);
    int64_t count = 0;
    for (int64_t i = 0; i < n; i += WORD) {
        count += __builtin_popcountll(v_above(x + i, limit));
    }
    return count;
}

QSA_SIMD void extremes(const float *x, int64_t n, float *least, float *most) {
    vf low = v_set(QSA_INFINITY), high = v_set(-QSA_INFINITY);
    float lows[V_LANES];
    for (int64_t i = 0; i < n; i += V_LANES) {
        vf value = v_load(x + i);
        low = v_where_less(value, low, value, low);
        high = v_raise(high, value);
    }
    v_store(lows, low);
    *most = v_top(high);
    *least = lows[0];
    for (int i = 1; i < V_LANES; i++) {
        *least = lows[i] < *least ? lows[i] : *least;
    }
}

/*
 * By bisection: a t above which there are k .. k + slack numbers of x; or, where ties allow none, the k-th largest. n is a
 * whole number of words.
 */
QSA_SIMD float threshold(const float *x, int64_t n, int64_t k, int64_t slack) {
    float least, most;
    extremes(x, n, &least, &most);
    int64_t low = qsa_max(order_of(least) - 1, order_of(-QSA_INFINITY));
    int64_t high = order_of(most); /* above it there are always fewer than k */
    while (low < high) {
        int64_t middle = low + (high - low) / 2; /* rounded down: below high */
        float t = float_of(middle);
        int64_t count = count_above(x, n, t);
        if (count < k) {
            high = middle;
        } else if (count <= k + slack) {
            return t;
        } else {
            low = middle + 1;
        }
    }
    return float_of(high);
}

/* Group g holds the scores g, g + groups, ...: neighbours, which are often alike, are in groups of their own. */
QSA_SIMD void find_maxima(const float *score, int64_t blocks, int64_t groups, float *maxima) {
    enum { HELD = 8 };
    for (int64_t g = 0; g < groups; g += HELD * V_LANES) {
        vf top[HELD];
        QSA_UNROLL for (int i = 0; i < HELD; i++) {
            top[i] = v_set(-QSA_INFINITY);
        }
        for (int64_t b = g; b + HELD * V_LANES <= blocks; b += groups) {
            QSA_UNROLL for (int i = 0; i < HELD; i++) {
                top[i] = v_raise(top[i], v_load(score + b + i * V_LANES));
            }
        }
        QSA_UNROLL for (int i = 0; i < HELD; i++) {
            v_store(maxima + g + i * V_LANES, top[i]);
        }
    }
}

/* The set bits of a word as block ids behind list[0]; four places more than their number may be written. */
QSA_SIMD int64_t list_bits(uint64_t word, int64_t first, int32_t *list) {
    int64_t count = __builtin_popcountll(word);
    do {
        for (int i = 0; i < 4; i++) {
            *list++ = (int32_t)(first + __builtin_ctzll(word | UINT64_C(1) << 63));
            word &= word - 1;
        }
    } while (word);
    return count;
}

/* The first `count` of the set bits of a word; count is at least 0. */
static uint64_t lowest_bits(uint64_t word, int64_t count) {
    uint64_t rest = word;
    for (int64_t i = 0; i < count && rest; i++) {
        rest &= rest - 1;
    }
    return word & ~rest;
}

/* Lists the blocks above t and the first `equals` of those equal to it. 0 if the list overflows. */
QSA_SIMD int filter(const float *score, int64_t blocks, float t, int64_t equals, survivors *s) {
    vf limit = v_set(t);
    float last[WORD];
    s->count = 0;
    for (int64_t b = 0; b < blocks; b += WORD) {
        const float *x = score + b;
        if (b + WORD > blocks) {
            memcpy(last, x, (size_t)(blocks - b) * sizeof *last);
            pad(last, blocks - b);
            x = last;
        }
        uint64_t word = v_above(x, limit);
        if (equals > 0) {
            uint64_t equal = lowest_bits(v_equal(x, limit), equals);
            equals -= __builtin_popcountll(equal);
            word |= equal;
        }
        s->count += list_bits(word, b, s->block + s->count);
        if (s->count > LIST_MAX) {
            return 0;
        }
    }
    return 1;
}

/* The list keeps its k best: of equals the first. */
QSA_SIMD void keep_best(survivors *s, const float *score, int64_t k) {
    for (int64_t i = 0; i < s->count; i++) {
        s->score[i] = score[s->block[i]];
    }
    int64_t n = pad(s->score, s->count), kept = 0;
    float t = threshold(s->score, n, k, 0);
    int64_t equals = k - count_above(s->score, n, t);
    for (int64_t i = 0; i < s->count; i++) {
        int equal = (s->score[i] == t) & (equals > 0);
        s->block[kept] = s->block[i];
        kept += (s->score[i] > t) | equal;
        equals -= equal;
    }
    s->count = kept;
}

/* Where the lowest-ranked block of the list is: the last of its least scores. */
static int64_t find_worst(const survivors *s, const float *score) {
    int64_t worst = 0;
    for (int64_t i = 1; i < s->count; i++) {
        worst = score[s->block[i]] <= score[s->block[worst]] ? i : worst;
    }
    return worst;
}

static int32_t *write_blocks(int32_t *ids, const int32_t *list, int64_t count, int64_t block) {
    for (int64_t i = 0; i < count; i++) {
        int32_t cell = list[i] * (int32_t)block;
        for (int64_t j = 0; j < block; j += 2, ids += 2) {
            ids[0] = cell + (int32_t)j;
            ids[1] = cell + (int32_t)j + 1;
        }
    }
    return ids;
}

static int32_t *write_cells(int32_t *ids, int64_t first, int64_t cells) {
    for (int64_t i = 0; i < cells; i++) {
        *ids++ = (int32_t)(first + i);
    }
    return ids;
}

/* The k best blocks of a row as a list. 0: left to the portable kernel. */
QSA_SIMD int best_blocks(const float *score, int64_t blocks, int64_t k, survivors *s) {
    int64_t groups = GROUPS_MAX;
    if (blocks <= GROUPS_MAX) {
        memcpy(s->score, score, (size_t)blocks * sizeof *score);
        groups = pad(s->score, blocks);
    } else {
        while (groups / 2 >= 4 * k && groups > 1024) {
            groups /= 2;
        }
        find_maxima(score, blocks, groups, s->score);
    }
    float t = threshold(s->score, groups, k, k / 16);
    if (!filter(score, blocks, t, 0, s)) {
        return 0;
    }
    if (s->count < k) {
        return filter(score, blocks, t, k - s->count, s) && s->count == k;
    }
    if (s->count > k) {
        keep_best(s, score, k);
    }
    return 1;
}

QSA_KERNEL static void QSA_LEVEL(qsa_select_f32)(const qsa_select_job *job) {
    survivors s;
    int64_t blocks = job->n / job->block, tail = job->n % job->block, need = job->target - tail;
    if (need <= 0) {
        write_cells(job->ids, blocks * job->block, job->target);
        return;
    }
    int64_t k = qsa_div_up(need, job->block), cut = need % job->block;
    if (k > LIST_MAX * 3 / 4 || !best_blocks(job->scores, blocks, k, &s)) {
        qsa_select_f32_c(job);
        return;
    }
    int64_t whole = cut ? find_worst(&s, job->scores) : k;
    int32_t *ids = write_blocks(job->ids, s.block, whole, job->block);
    if (cut) {
        ids = write_cells(ids, s.block[whole] * job->block, cut);
        ids = write_blocks(ids, s.block + whole + 1, k - whole - 1, job->block);
    }
    write_cells(ids, blocks * job->block, tail);
}

/* A little below the k-th largest lower end will do. */
QSA_KERNEL static int64_t QSA_LEVEL(qsa_select_candidates)(const qsa_candidates_job *job) {
    float last[WORD];
    vf limit = v_set(threshold(job->low, job->lows, job->k, job->k / 16));
    int64_t count = 0;
    for (int64_t b = 0; b < job->blocks && count <= job->most; b += WORD) {
        const float *x = job->high + b;
        if (b + WORD > job->blocks) {
            memcpy(last, x, (size_t)(job->blocks - b) * sizeof *last);
            pad(last, job->blocks - b);
            x = last;
        }
        count += list_bits(v_above(x, limit) | v_equal(x, limit), b, job->list + count);
    }
    return count <= job->most ? count : -1;
}

QSA_KERNEL static void QSA_LEVEL(qsa_select_maxima)(const float *scores, int64_t count, int64_t groups, float *maxima) {
    int64_t whole = count / groups * groups;
    find_maxima(scores, whole, groups, maxima);
    for (int64_t b = whole; b < count; b++) {
        maxima[b % groups] = scores[b] > maxima[b % groups] ? scores[b] : maxima[b % groups];
    }
}

void QSA_LEVEL(qsa_select_init)(qsa_select_kernels *kernels) {
    *kernels = (qsa_select_kernels){
        .run = QSA_LEVEL(qsa_select_f32),
        .candidates = QSA_LEVEL(qsa_select_candidates),
        .maxima = QSA_LEVEL(qsa_select_maxima),
        .name = QSA_NAME("qsa_select_f32"),
        .candidates_name = QSA_NAME("qsa_select_candidates"),
        .maxima_name = QSA_NAME("qsa_select_maxima"),
    };
}
