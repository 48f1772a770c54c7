/* SPDX-License-Identifier: MIT */
/* The inside of qsa_layer. */
#ifndef QSA_LAYER_LAYER_H
#define QSA_LAYER_LAYER_H

#include "cache/block_key.h"
#include "layer/matrix.h"

/* q_proj and index_qk_proj are cut apart, so that each matrix makes one whole array. */
enum { QSA_Q, QSA_GATE, QSA_K, QSA_V, QSA_IQ, QSA_RAW_INDEX, QSA_O, QSA_MATRICES };
enum { QSA_Q_NORM, QSA_K_NORM, QSA_IQ_NORM, QSA_INDEX_NORM, QSA_NORMS };

struct qsa_layer {
    qsa_allocator allocator;
    qsa_shape shape;
    int64_t hidden;
    float eps;
    qsa_rope rope; /* defaults filled */
    double frequency[QSA_INDEX_DIM_MAX / 2]; /* of the rope */
    qsa_matrix matrix[QSA_MATRICES];
    float *norm[QSA_NORMS]; /* weights w of (1 + w) */
    float *memory;          /* all of the above */
    size_t memory_bytes;
    size_t bytes; /* of this struct and the prefix behind it */
    char prefix[];
};

#endif
