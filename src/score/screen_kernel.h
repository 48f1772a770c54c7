/* SPDX-License-Identifier: MIT */
/*
 * The frame of the screening kernels, for any vocabulary of runtime/simd.h. An instruction set has its own way to
 * multiply integers; before it includes this it defines
 *
 *   SCREEN_TILES     tiles that are multiplied at once
 *   multiply(tile, ahead, query, h, heads, tiles, product)
 *                    product[i][v] = max(0, H_(h + i) . integers) as f32 of vector v of blocks, for heads of 1, 2 or 4
 * and tiles of 1 or SCREEN_TILES, both constants where it is inlined; fetches the lines of ahead[] meanwhile
 */
#include "score/screen_simd.h"

enum { SCREEN_VECTORS = SCREEN_TILES * TILE_VECTORS, SCREEN_HEADS = 4 };

QSA_SIMD void add_heads(const char *const *tile, const char *const *ahead, const qsa_screen_query *query, int64_t h,
                        const int heads, const int tiles, vf *sum) {
    vf product[SCREEN_HEADS][SCREEN_VECTORS];
    multiply(tile, ahead, query, h, heads, tiles, product);
    QSA_UNROLL for (int i = 0; i < heads; i++) {
        vf step = v_set(query->head_step[h + i]);
        QSA_UNROLL for (int v = 0; v < tiles * TILE_VECTORS; v++) {
            sum[v] = v_add(sum[v], v_mul(product[i][v], step));
        }
    }
}

QSA_SIMD void screen_tiles(const char *const *tile, const char *const *ahead, const qsa_screen_query *query,
                           const int tiles, float *low, float *high) {
    vf sum[SCREEN_VECTORS];
    int64_t h = 0, integers = query->dim * QSA_TILE;
    QSA_UNROLL for (int v = 0; v < tiles * TILE_VECTORS; v++) {
        sum[v] = v_set(0.0f);
    }
    for (; h + 4 <= query->heads; h += 4) {
        add_heads(tile, h == 0 ? ahead : tile, query, h, 4, tiles, sum);
    }
    for (; h + 2 <= query->heads; h += 2) {
        add_heads(tile, h == 0 ? ahead : tile, query, h, 2, tiles, sum);
    }
    if (h < query->heads) {
        add_heads(tile, h == 0 ? ahead : tile, query, h, 1, tiles, sum);
    }
    QSA_UNROLL for (int t = 0; t < tiles; t++) {
        __builtin_prefetch(ahead[t] + integers, 0, 3);
        __builtin_prefetch(ahead[t] + integers + QSA_SCREEN_TAIL / 2, 0, 3);
        write_intervals(tile[t], query, sum + t * TILE_VECTORS, low + t * QSA_TILE, high + t * QSA_TILE);
    }
}

QSA_KERNEL void QSA_LEVEL(qsa_screen_i8)(const qsa_screen_job *job) {
    int64_t bytes = qsa_screen_tile_bytes(job->query->dim), b = 0;
    const char *tile[SCREEN_TILES], *ahead[SCREEN_TILES], *next = job->next ? job->next : job->tiles, *at = job->tiles;
    for (; b < job->count; b += SCREEN_TILES * QSA_TILE, at += SCREEN_TILES * bytes) {
        const char *after = b + SCREEN_TILES * QSA_TILE < job->count ? at + SCREEN_TILES * bytes : next;
        for (int t = 0; t < SCREEN_TILES; t++) {
            tile[t] = at + t * bytes;
            ahead[t] = after + t * bytes;
        }
        if (SCREEN_TILES > 1 && job->count - b <= QSA_TILE) {
            screen_tiles(tile, ahead, job->query, 1, job->low + b, job->high + b);
        } else {
            screen_tiles(tile, ahead, job->query, SCREEN_TILES, job->low + b, job->high + b);
        }
    }
}

void QSA_LEVEL(qsa_screen_init)(qsa_screen_kernels *kernels) {
    *kernels = (qsa_screen_kernels){.run = QSA_LEVEL(qsa_screen_i8), .name = QSA_NAME("qsa_screen_i8")};
}
