/* SPDX-License-Identifier: MIT */
/* The kernels of appending: codecs of K/V, block keys, and the angles these are rotated by. */
#ifndef QSA_CACHE_CELLS_H
#define QSA_CACHE_CELLS_H

#include "cache/block_key.h"
#include "cache/codec.h"
#include "runtime/context.h"

/* By qsa_type, QSA_F32..QSA_I8_G64. */
typedef struct qsa_cell_kernels {
    qsa_encode_fn *encode[QSA_I8_G64 + 1];
    qsa_decode_fn *decode[QSA_I8_G64 + 1];
    qsa_block_key_fn *block_key;
    qsa_angles_fn *angles;
    const char *encode_name[QSA_I8_G64 + 1], *decode_name[QSA_I8_G64 + 1], *block_key_name, *angles_name;
} qsa_cell_kernels;

/* The C kernels first, then upwards what the level has. */
void qsa_cell_init(qsa_cell_kernels *kernels, qsa_cpu cpu);
void qsa_cell_init_avx2(qsa_cell_kernels *kernels);
void qsa_cell_init_avx512(qsa_cell_kernels *kernels);
void qsa_cell_init_neon(qsa_cell_kernels *kernels);

#endif
