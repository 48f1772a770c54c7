/* SPDX-License-Identifier: MIT */
/*
 * The floating-point environment: every thread that computes for us rounds to nearest, keeps subnormals and traps nothing,
 * whatever its owner had set, and has its own setting back afterwards.
 */
#ifndef QSA_RUNTIME_FPENV_H
#define QSA_RUNTIME_FPENV_H

#include "runtime/cpu.h"

#if defined(QSA_X86)
#include <immintrin.h>
#endif

static inline uint64_t qsa_fpenv_enter(void) {
#if defined(QSA_X86)
    uint64_t saved = _mm_getcsr();
    _mm_setcsr(0x1f80);
    return saved;
#elif defined(QSA_ARM)
    uint64_t saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
    return saved;
#else
    return 0;
#endif
}

static inline void qsa_fpenv_leave(uint64_t saved) {
#if defined(QSA_X86)
    _mm_setcsr((unsigned)saved);
#elif defined(QSA_ARM)
    __asm__ volatile("msr fpcr, %0" : : "r"(saved));
#else
    (void)saved;
#endif
}

#endif
