/* SPDX-License-Identifier: MIT */
#include "settings.h"

#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

qsa_type type_named(const char *word) {
    return !strcmp(word, "f32")    ? QSA_F32
           : !strcmp(word, "bf16") ? QSA_BF16
           : !strcmp(word, "f16")  ? QSA_F16
                                   : QSA_I8_G64;
}

const char *type_word(qsa_type type) {
    return type == QSA_I8_G64 ? "i8" : qsa_type_name(type);
}

qsa_cpu cpu_named(const char *word) {
    int cpu = QSA_CPU_AUTO;
    while (cpu < QSA_CPU_NEON && strcmp(qsa_cpu_name((qsa_cpu)cpu), word) != 0) {
        cpu++;
    }
    return (qsa_cpu)cpu;
}

qsa_contract contract_named(const char *word) {
    return !strcmp(word, "blocks") ? QSA_BLOCKS : !strcmp(word, "cells") ? QSA_CELLS : QSA_DENSE;
}

qsa_context *open_context(const char *command, qsa_cpu cpu, int64_t threads) {
    QSA_INIT(qsa_options, options);
    options.cpu = cpu;
    options.threads = threads;
    qsa_context *context;
    qsa_error error;
    if (!qsa_cpu_available(cpu)) {
        complain(command, "--cpu is '%s': this machine or this build lacks it, see `qsa info`", qsa_cpu_name(cpu));
        return NULL;
    }
    if (qsa_open(&options, &context, &error)) {
        complain_library(command, "a context cannot be opened", &error);
        return NULL;
    }
    return context;
}

void *take_memory(const char *command, int64_t count, size_t item_bytes) {
    size_t items = count > 0 ? (size_t)count : 1, bytes = 0;
    void *memory = NULL;
    if (items <= (SIZE_MAX - 64) / item_bytes) {
        bytes = (items * item_bytes + 63) / 64 * 64;
        memory = aligned_alloc(64, bytes);
    }
    if (!memory) {
        exit(complain(command, "%lld times %zu bytes of memory were refused", (long long)count, item_bytes));
    }
    return memset(memory, 0, bytes);
}

double relative_difference(const float *x, const float *want, int64_t count) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = (double)x[i] - (double)want[i];
        difference += d * d;
        size += (double)want[i] * (double)want[i];
    }
    return difference > 0 ? sqrt(difference / size) : difference; /* a NaN stays one */
}
