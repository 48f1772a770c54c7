/* SPDX-License-Identifier: MIT */
#include "levels.h"

qsa_cpu next_cpu(qsa_cpu after) {
#if defined(__SANITIZE_THREAD__)
    QSA_INIT(qsa_options, options);
    qsa_context *context = NULL;
    options.threads = 1;
    qsa_cpu best = qsa_open(&options, &context, NULL) ? QSA_CPU_AUTO : qsa_context_cpu(context);
    qsa_close(context);
    return after == best ? QSA_CPU_AUTO : best;
#endif
    for (int cpu = (int)after + 1; cpu <= QSA_CPU_NEON; cpu++) {
        if (qsa_cpu_available((qsa_cpu)cpu)) {
            return (qsa_cpu)cpu;
        }
    }
    return QSA_CPU_AUTO;
}
