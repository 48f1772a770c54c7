/* SPDX-License-Identifier: MIT */
/* The addresses of qsa.h's "views", written out. */
#include "support/views.h"

#include <string.h>

#include "oracle/oracle.h"

int64_t element_bytes(qsa_type type) {
    return type == QSA_F32 ? 4 : type == QSA_I8_G64 ? 1 : 2;
}

static double read_element(qsa_type type, const char *at) {
    float single;
    uint16_t half;
    if (type == QSA_F32) {
        memcpy(&single, at, sizeof single);
        return (double)single;
    }
    memcpy(&half, at, sizeof half);
    return type == QSA_F16 ? oracle_from_f16(half) : oracle_from_bf16(half);
}

/* base + page, cell and head strides, with the packed layout's where they are 0. */
static const char *address(const qsa_kv *kv, const void *base, int64_t cell, int64_t head, const int64_t packed[2],
                           int64_t page_stride, int64_t cell_stride, int64_t head_stride) {
    cell_stride = cell_stride ? cell_stride : packed[0];
    head_stride = head_stride ? head_stride : packed[1];
    if (!kv->pages) {
        return (const char *)base + cell * cell_stride + head * head_stride;
    }
    page_stride = page_stride ? page_stride : kv->page_cells * cell_stride;
    int64_t page = kv->pages[cell / kv->page_cells];
    return (const char *)base + page * page_stride + cell % kv->page_cells * cell_stride + head * head_stride;
}

static void read_vector(const cell_reader *reader, const void *base, const uint16_t *scale, int64_t cell, int64_t head,
                        double *x) {
    const qsa_kv *kv = &reader->kv;
    int64_t dim = reader->shape.head_dim, heads = reader->shape.kv_heads, element = element_bytes(kv->type);
    const int64_t packed[2] = {heads * dim * element, dim * element};
    const char *at = address(kv, base, cell, head, packed, kv->page_stride, kv->cell_stride, kv->head_stride);
    if (kv->type == QSA_I8_G64) {
        const int64_t packed_scales[2] = {heads * (dim / 64) * 2, dim / 64 * 2};
        const char *scales = address(kv, scale, cell, head, packed_scales, kv->scale_page_stride, kv->scale_cell_stride,
                                     kv->scale_head_stride);
        oracle_i8_decode(dim / 64, (const int8_t *)at, (const uint16_t *)(const void *)scales, x);
        return;
    }
    for (int64_t i = 0; i < dim; i++) {
        x[i] = read_element(kv->type, at + i * element);
    }
}

void read_cell(const void *user, int64_t cell, int64_t kv_head, double *k, double *v) {
    const cell_reader *reader = user;
    read_vector(reader, reader->kv.k, reader->kv.k_scale, cell, kv_head, k);
    read_vector(reader, reader->kv.v, reader->kv.v_scale, cell, kv_head, v);
}

void read_key(const qsa_keys *keys, int64_t dim, int64_t b, double *key) {
    int64_t element = element_bytes(keys->type), tiles = keys->layout == QSA_KEYS_TILES;
    int64_t stride = tiles || !keys->block_stride ? dim * element : keys->block_stride;
    const char *page = keys->data;
    if (keys->pages) {
        int64_t page_stride = keys->page_stride ? keys->page_stride : keys->page_blocks * stride;
        page += keys->pages[b / keys->page_blocks] * page_stride;
        b %= keys->page_blocks;
    }
    for (int64_t i = 0; i < dim; i++) {
        int64_t at = b * stride + i * element;
        if (tiles && keys->type == QSA_F32) { /* [dim][16 blocks] */
            at = b / 16 * 16 * stride + (i * 16 + b % 16) * 4;
        } else if (tiles) { /* [dim / 2][16 blocks][2] */
            at = b / 16 * 16 * stride + ((i / 2 * 16 + b % 16) * 2 + i % 2) * 2;
        }
        key[i] = read_element(keys->type, page + at);
    }
}
