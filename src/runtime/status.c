/* SPDX-License-Identifier: MIT */
/* Status codes, their messages, and the names of the public enums. */
#include "runtime/status.h"

#include <stdarg.h>
#include <stdio.h>

#undef qsa_fail /* what an analyser is given in its place */

qsa_status qsa_fail(qsa_error *error, qsa_status status, const char *format, ...) {
    if (error) {
        va_list args;
        va_start(args, format);
        error->status = status;
        if (vsnprintf(error->message, sizeof error->message, format, args) < 0) {
            error->message[0] = '\0';
        }
        va_end(args);
    }
    return status;
}

qsa_status qsa_ok(qsa_error *error) {
    if (error) {
        error->status = QSA_OK;
        error->message[0] = '\0';
    }
    return QSA_OK;
}

const char *qsa_version(void) {
    return QSA_VERSION;
}

const char *qsa_status_name(qsa_status status) {
    static const char *const names[] = {"ok",    "argument",    "shape", "memory", "capacity",
                                        "state", "unsupported", "io",    "format"};
    return (unsigned)status < sizeof names / sizeof *names ? names[status] : "unknown";
}

const char *qsa_type_name(qsa_type type) {
    static const char *const names[] = {"unknown", "f32", "f16", "bf16", "i8_g64", "q8_0"};
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : "unknown";
}

const char *qsa_cpu_name(qsa_cpu cpu) {
    static const char *const names[] = {"auto", "c", "avx2", "avx512", "amx", "neon"};
    return (unsigned)cpu < sizeof names / sizeof *names ? names[cpu] : "unknown";
}
