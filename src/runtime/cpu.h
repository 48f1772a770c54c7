/* SPDX-License-Identifier: MIT */
/* What this machine's processor can run. */
#ifndef QSA_RUNTIME_CPU_H
#define QSA_RUNTIME_CPU_H

#include <qsa/qsa.h>

#if (defined(__x86_64__) || defined(_M_X64)) && defined(__GNUC__)
#define QSA_X86 1
#elif defined(__aarch64__) && defined(__GNUC__)
#define QSA_ARM 1
#endif

/* The best level that the processor and the operating system allow. */
qsa_cpu qsa_cpu_detect(void);

/* Asks the operating system for what a level needs beyond the processor (AMX tiles, on Linux). 0 if it is refused. */
int qsa_cpu_permit(qsa_cpu cpu);

/* Online processors, at least 1. */
int64_t qsa_cpu_count(void);

#endif
