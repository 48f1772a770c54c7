/* SPDX-License-Identifier: MIT */
/* CPU levels: read from the processor each time they are asked for, so that nothing global is kept. A build with
 * QSA_PORTABLE has the level `c` alone. */
#define _DEFAULT_SOURCE
#include "runtime/cpu.h"

#include <unistd.h>

#if defined(QSA_X86) && !defined(QSA_PORTABLE)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

typedef struct registers {
    unsigned a, b, c, d;
} registers;

static registers cpuid(unsigned leaf, unsigned sub) {
    registers r = {0, 0, 0, 0};
    if (!__get_cpuid_count(leaf, sub, &r.a, &r.b, &r.c, &r.d)) {
        r = (registers){0, 0, 0, 0};
    }
    return r;
}

static unsigned bit(unsigned word, int n) {
    return (word >> n) & 1u;
}

/* Register states that the operating system saves: XCR0. */
static unsigned saved_states(void) {
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

qsa_cpu qsa_cpu_detect(void) {
    registers one = cpuid(1, 0), seven = cpuid(7, 0);
    if (!bit(one.c, 27)) { /* OSXSAVE */
        return QSA_CPU_C;
    }
    unsigned states = saved_states();
    int avx2 = bit(one.c, 12) && bit(one.c, 28) && bit(one.c, 29) && bit(seven.b, 5) && (states & 0x6u) == 0x6u;
    if (!avx2) { /* FMA, AVX, F16C, AVX2, and XMM and YMM saved */
        return QSA_CPU_C;
    }
    int avx512 = bit(seven.b, 16) && bit(seven.b, 17) && bit(seven.b, 30) && bit(seven.b, 31) && bit(seven.c, 11) &&
                 (states & 0xe6u) == 0xe6u;
    if (!avx512) { /* F, DQ, BW, VL, VNNI, and the mask and ZMM registers saved */
        return QSA_CPU_AVX2;
    }
    int amx = bit(seven.d, 24) && bit(seven.d, 25) && (states & 0x60000u) == 0x60000u;
    return amx ? QSA_CPU_AMX : QSA_CPU_AVX512; /* TILE, INT8, and the tile state saved */
}

int qsa_cpu_permit(qsa_cpu cpu) {
    if (cpu != QSA_CPU_AMX) {
        return 1;
    }
#if defined(__linux__) && defined(SYS_arch_prctl)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return 0;
#endif
}

#else

qsa_cpu qsa_cpu_detect(void) {
#if defined(QSA_ARM) && !defined(QSA_PORTABLE)
    return QSA_CPU_NEON;
#else
    return QSA_CPU_C;
#endif
}

int qsa_cpu_permit(qsa_cpu cpu) {
    (void)cpu;
    return 1;
}

#endif

int64_t qsa_cpu_count(void) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online < 1 ? 1 : (int64_t)online;
}
