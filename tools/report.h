/* SPDX-License-Identifier: MIT */
/* What all commands say alike: messages, progress, JSON. Data goes to stdout, everything else to stderr. */
#ifndef QSA_TOOLS_REPORT_H
#define QSA_TOOLS_REPORT_H

#include <qsa/qsa.h>

#include <jansson.h>

#if defined(__GNUC__)
#define LIKE_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define LIKE_PRINTF(text, first)
#endif

/* "qsa COMMAND: ..." on stderr; command may be NULL. Returns EXIT_USAGE. */
int complain(const char *command, const char *format, ...) LIKE_PRINTF(2, 3);

/* The same with `what` the library was asked for, and its answer. */
int complain_library(const char *command, const char *what, const qsa_error *error);

/* A number, or null where it is not finite. */
json_t *json_number(double x);

/* A string; bytes that are not ASCII become '?' where the text is not UTF-8. */
json_t *json_text(const char *text);

/* Prints value and releases it. EXIT_OK, or EXIT_USAGE if it is NULL (no memory) or stdout cannot be written. */
int print_json(const char *command, json_t *value);

/* Shown once the work has taken two seconds, and only on a terminal. */
typedef struct progress {
    const char *what;
    int64_t start_ns, shown_ns;
    int terminal, shown;
} progress;
progress progress_start(const char *what);
void progress_step(progress *p, int64_t done, int64_t all);
void progress_end(progress *p);

#endif
