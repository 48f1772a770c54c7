/* SPDX-License-Identifier: MIT */
/* How a call says that it failed: a code, and one line that names the argument, what it was and what was expected. */
#ifndef QSA_RUNTIME_STATUS_H
#define QSA_RUNTIME_STATUS_H

#include <qsa/qsa.h>

#if defined(__GNUC__)
#define QSA_PRINTF(string, first) __attribute__((__format__(__printf__, string, first)))
#else
#define QSA_PRINTF(string, first)
#endif

/* Fills *error (may be NULL) and returns status. */
qsa_status qsa_fail(qsa_error *error, qsa_status status, const char *format, ...) QSA_PRINTF(3, 4);

#if defined(__clang_analyzer__) /* which reads one file at a time, and would take this for a call that may return QSA_OK */
#define qsa_fail(error, status, ...) ((void)qsa_fail(error, status, __VA_ARGS__), (status))
#endif

/* Clears *error (may be NULL) and returns QSA_OK. */
qsa_status qsa_ok(qsa_error *error);

#endif
