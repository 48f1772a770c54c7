/* SPDX-License-Identifier: MIT */
#include "levels.h"

qsa_cpu next_cpu(qsa_cpu after) {
    for (int cpu = (int)after + 1; cpu <= QSA_CPU_NEON; cpu++) {
        if (qsa_cpu_available((qsa_cpu)cpu)) {
            return (qsa_cpu)cpu;
        }
    }
    return QSA_CPU_AUTO;
}
