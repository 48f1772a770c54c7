/* SPDX-License-Identifier: MIT */
/* CRC-32C by tables, eight bytes at a time. */
#include "runtime/checksum.h"

enum { LANES = 8 };

void qsa_crc_init(qsa_crc *crc) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t sum = b;
        for (int bit = 0; bit < 8; bit++) {
            sum = sum >> 1 ^ (sum & 1 ? 0x82f63b78u : 0); /* the polynomial, its bits reversed */
        }
        crc->table[0][b] = sum;
    }
    for (int k = 1; k < LANES; k++) {
        for (int b = 0; b < 256; b++) {
            uint32_t sum = crc->table[k - 1][b];
            crc->table[k][b] = sum >> 8 ^ crc->table[0][sum & 255];
        }
    }
}

uint32_t qsa_crc_add(const qsa_crc *crc, uint32_t sum, const void *data, int64_t bytes) {
    const unsigned char *at = data;
    sum = ~sum;
    for (; bytes >= LANES; bytes -= LANES, at += LANES) {
        uint32_t first = sum ^ (at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        sum = crc->table[7][first & 255] ^ crc->table[6][first >> 8 & 255] ^ crc->table[5][first >> 16 & 255] ^
              crc->table[4][first >> 24] ^ crc->table[3][at[4]] ^ crc->table[2][at[5]] ^ crc->table[1][at[6]] ^
              crc->table[0][at[7]];
    }
    for (; bytes > 0; bytes--) {
        sum = sum >> 8 ^ crc->table[0][(sum ^ *at++) & 255];
    }
    return ~sum;
}
