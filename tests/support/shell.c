/* SPDX-License-Identifier: MIT */
#define _XOPEN_SOURCE 700
#include "support/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "support/tensor_fixture.h"

char *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    rewind(file);
    char *text = calloc((size_t)size + 1, 1);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    fclose(file);
    return text;
}

result run_shell(const char *line) {
    char *out = st_path(folder, "stdout"), *err = st_path(folder, "stderr"), whole[4096];
    assert_true(snprintf(whole, sizeof whole, "{ %s\n} >'%s' 2>'%s' </dev/null", line, out, err) < (int)sizeof whole);
    int status = system(whole);
    assert_true(WIFEXITED(status));
    result r = {WEXITSTATUS(status), read_file(out), read_file(err)};
    free(out), free(err);
    return r;
}

void done(result *r) {
    free(r->out), free(r->err);
}

void add_name(names *n, const char *from, size_t length) {
    assert_true(n->count < NAMES_MAX && length > 0 && length < sizeof n->name[0]);
    memcpy(n->name[n->count], from, length);
    n->name[n->count++][length] = '\0';
}

int has_word(const char *text, const char *name) {
    size_t length = strlen(name);
    for (const char *at = text; (at = strstr(at, name)); at++) {
        if (!strchr("abcdefghijklmnopqrstuvwxyz-_", at[length]) || !at[length]) {
            return 1;
        }
    }
    return 0;
}

void check_well_formed(const char *text) {
    const char *open[64];
    int depth = 0, roots = 0;
    for (const char *c = text; (c = strpbrk(c, "<&")); c++) {
        if (*c == '&') {
            assert_true(!strncmp(c, "&amp;", 5) || !strncmp(c, "&lt;", 4) || !strncmp(c, "&gt;", 4));
            continue;
        }
        const char *end = c + 1;
        for (int quoted = 0; *end && (quoted || *end != '>'); end++) {
            quoted ^= *end == '"';
            assert_true(*end != '<');
        }
        assert_int_equal(*end, '>');
        if (c[1] == '/') {
            size_t length = (size_t)(end - c - 2);
            assert_true(depth > 0);
            depth--;
            assert_true(!strncmp(open[depth], c + 2, length) && strchr(" >", open[depth][length]));
        } else if (end[-1] != '/') {
            roots += depth == 0;
            assert_true(depth < 64);
            open[depth++] = c + 1;
        }
        c = end;
    }
    assert_int_equal(depth, 0);
    assert_int_equal(roots, 1);
}
