/* SPDX-License-Identifier: MIT */
/* The CPU levels of this machine. */
#ifndef QSA_TEST_LEVELS_H
#define QSA_TEST_LEVELS_H

#include <qsa/qsa.h>

/* for (qsa_cpu cpu = QSA_CPU_C; cpu; cpu = next_cpu(cpu)): every level of this machine; under ThreadSanitizer, which is slow and
 * does not care for kernels, the first and the best. */
qsa_cpu next_cpu(qsa_cpu after);

#endif
