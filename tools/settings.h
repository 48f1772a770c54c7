/* SPDX-License-Identifier: MIT */
/* What option words such as "i8" and "avx2" mean to the library, and memory that ends the command when refused. */
#ifndef QSA_TOOLS_SETTINGS_H
#define QSA_TOOLS_SETTINGS_H

#include "options.h"

#include <qsa/qsa.h>

/* "f32", "bf16", "f16", "i8". */
qsa_type type_named(const char *word);
const char *type_word(qsa_type type);

/* "auto", "c", "avx2", ... */
qsa_cpu cpu_named(const char *word);

/* "blocks", "cells", "dense". */
qsa_contract contract_named(const char *word);

/* A context, or NULL with a message on stderr. */
qsa_context *open_context(const char *command, qsa_cpu cpu, int64_t threads);

/* `count` items, zeroed and 64-byte aligned; free() releases them. Refused, it exits with EXIT_USAGE and a message. */
void *take_memory(const char *command, int64_t count, size_t item_bytes);

/* ||x - want|| / ||want||; 0 when both are zero. */
double relative_difference(const float *x, const float *want, int64_t count);

#endif
