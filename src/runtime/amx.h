/* SPDX-License-Identifier: MIT */
/*
 * AMX tiles, as instructions written out: the intrinsics of gcc 12 do not say that they read memory, and stores before
 * them get lost. T, rows, columns are numbers of registers.
 */
#ifndef QSA_RUNTIME_AMX_H
#define QSA_RUNTIME_AMX_H

#include <stdint.h>

#define AMX_LOAD(T, from, stride) AMX_LOAD_(T, from, stride)
#define AMX_LOAD_(T, from, stride)                                                                                     \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #T ::"r"(from), "r"((int64_t)(stride)) : "memory")
#define AMX_STORE(T, to)  AMX_STORE_(T, to)
#define AMX_STORE_(T, to) __asm__ volatile("tilestored %%tmm" #T ", (%0,%1,1)" ::"r"(to), "r"(INT64_C(64)) : "memory")
#define AMX_ZERO(T)       AMX_ZERO_(T)
#define AMX_ZERO_(T)      __asm__ volatile("tilezero %tmm" #T)
/* T += rows x columns; signs ss, su, us or uu: of the bytes of rows, then of columns. */
#define AMX_MULTIPLY(signs, T, rows, columns) AMX_MULTIPLY_(signs, T, rows, columns)
#define AMX_MULTIPLY_(signs, T, rows, columns)                                                                         \
    __asm__ volatile("tdpb" #signs "d %tmm" #columns ", %tmm" #rows ", %tmm" #T)
#define AMX_RELEASE() __asm__ volatile("tilerelease")

typedef struct qsa_amx_config {
    uint8_t palette, start_row, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} qsa_amx_config;

#define AMX_CONFIGURE(config) __asm__ volatile("ldtilecfg %0" ::"m"(config))

#endif
