/* SPDX-License-Identifier: MIT */
/* Lines of the shell, and what to look for in what they print. For tests: failures fail the test. */
#ifndef QSA_TEST_SHELL_H
#define QSA_TEST_SHELL_H

#include <stddef.h>

typedef struct result {
    int code;
    char *out, *err; /* from malloc */
} result;

/* A file's bytes and a 0 behind them, from malloc. */
char *read_file(const char *path);

/* Its streams go through files of the running test's folder (tensor_fixture.h). */
result run_shell(const char *line);
void done(result *r);

enum { NAMES_MAX = 32 };

typedef struct names {
    int count;
    char name[NAMES_MAX][32];
} names;

void add_name(names *n, const char *from, size_t length);

/* `text` has the name with nothing behind it that could belong to a name. */
int has_word(const char *text, const char *name);

/* Every tag that opens closes, in order; attributes are quoted; no stray ampersand. */
void check_well_formed(const char *text);

#endif
