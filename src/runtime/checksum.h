/* SPDX-License-Identifier: MIT */
/* CRC-32C (Castagnoli; RFC 3720, appendix B.4): it notices every change of up to 32 adjacent bits. */
#ifndef QSA_RUNTIME_CHECKSUM_H
#define QSA_RUNTIME_CHECKSUM_H

#include <qsa/qsa.h>

/* table[k][b]: what byte b does to the sum k bytes later. Made when needed, for the library has no global state. */
typedef struct qsa_crc {
    uint32_t table[8][256];
} qsa_crc;

void qsa_crc_init(qsa_crc *crc);

/* The sum of what `sum` is the sum of and these bytes; 0 is the sum of nothing. */
uint32_t qsa_crc_add(const qsa_crc *crc, uint32_t sum, const void *data, int64_t bytes);

#endif
