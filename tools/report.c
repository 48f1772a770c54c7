/* SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "report.h"

#include "options.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int complain(const char *command, const char *format, ...) {
    va_list list;
    fflush(stdout);
    fprintf(stderr, "qsa%s%s: ", command ? " " : "", command ? command : "");
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    return EXIT_USAGE;
}

/* A file's path already stands first in what the library says of it. */
int complain_library(const char *command, const char *what, const qsa_error *error) {
    size_t length = strlen(what);
    int said = !strncmp(error->message, what, length) && error->message[length] == ':';
    return said ? complain(command, "%s", error->message) : complain(command, "%s: %s", what, error->message);
}

json_t *json_number(double x) {
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *json_text(const char *text) {
    json_t *value = json_string(text);
    if (value) {
        return value;
    }
    size_t length = strlen(text);
    char *plain = malloc(length + 1);
    for (size_t i = 0; plain && i <= length; i++) {
        plain[i] = '?';
        if ((unsigned char)text[i] < 0x80) {
            plain[i] = text[i];
        }
    }
    value = plain ? json_string(plain) : NULL;
    free(plain);
    return value;
}

int print_json(const char *command, json_t *value) {
    if (!value) {
        return complain(command, "no memory for the result");
    }
    int failed = json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9) | JSON_ENSURE_ASCII);
    json_decref(value);
    failed |= putchar('\n') == EOF || fflush(stdout) == EOF;
    return failed ? complain(command, "stdout cannot be written") : EXIT_OK;
}

/* ------------------------------------------------------------------------------------------------ progress */

enum { BAR = 40 };
static const int64_t SECOND = 1000000000;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

progress progress_start(const char *what) {
    return (progress){.what = what, .start_ns = now_ns(), .terminal = isatty(STDERR_FILENO)};
}

void progress_step(progress *p, int64_t done, int64_t all) {
    int64_t now = p->terminal ? now_ns() : p->start_ns;
    if (now - p->start_ns < 2 * SECOND || now - p->shown_ns < SECOND / 10 || all <= 0) {
        return;
    }
    p->shown_ns = now;
    p->shown = 1;
    int filled = (int)(done * BAR / all);
    fprintf(stderr, "\r%s [%.*s%*s] %3d %%", p->what, filled, "########################################", BAR - filled,
            "", (int)(done * 100 / all));
    fflush(stderr);
}

void progress_end(progress *p) {
    if (p->shown) {
        fputs("\r\033[K", stderr);
    }
}
