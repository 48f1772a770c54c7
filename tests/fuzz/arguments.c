/* SPDX-License-Identifier: MIT */
/* Any words as a command line: what is accepted is what the command's table allows, and what is refused is said in one line. */
#include "fuzz.h"

#include "options.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 24, TEXT = 4096 };

static int complaints;

/* Stands in for the command's own (--wrap=complain): nothing is printed. */
int __wrap_complain(const char *command, const char *format, ...);
int __wrap_complain(const char *command, const char *format, ...) {
    static char line[2 * TEXT];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (length <= 0 || !command) {
        abort();
    }
    complaints++;
    return EXIT_USAGE;
}

static void fail(const char *what, const char *name) {
    fprintf(stderr, "%s: %s\n", name, what);
    abort();
}

typedef struct wanted {
    const char *text;
    int found;
} wanted;

static void compare_word(void *arg, const char *word, int length) {
    wanted *w = arg;
    w->found |= strlen(w->text) == (size_t)length && !memcmp(w->text, word, (size_t)length);
}

static void check_word(const char *words, const char *text, const char *name) {
    wanted w = {text, 0};
    each_word(words, compare_word, &w);
    if (!w.found) {
        fail("none of its choices", name);
    }
}

static void check_option(const option *o, const option_value *value) {
    if (o->kind == OPTION_FLAG) {
        return;
    }
    if (!value->text) {
        if (o->fallback || value->given) {
            fail("without a value", o->name);
        }
        return;
    }
    if (o->kind == OPTION_CHOICE) {
        check_word(o->choices, value->text, o->name);
    } else if (o->kind == OPTION_INTEGER && (value->number < o->least || value->number > o->most)) {
        fail("out of range", o->name);
    } else if (!value->text[0]) {
        fail("empty", o->name);
    }
}

static void check_arguments(const subcommand *c, const arguments *args, int argc) {
    for (int i = 0; c->options[i].name; i++) {
        check_option(&c->options[i], &args->values[i]);
        if (option_of(args, c->options[i].name) != &args->values[i]) {
            fail("found elsewhere", c->options[i].name);
        }
    }
    if (option_given(args, "help")) {
        return;
    }
    if (args->operand_count < c->least_operands || args->operand_count > c->most_operands || args->operand_count >= argc) {
        fail("too few operands or too many", c->name);
    }
    for (int i = 0; c->operand_choices && i < args->operand_count; i++) {
        check_word(c->operand_choices, args->operands[i], c->name);
    }
}

/* Words end at a newline or a 0 byte; the first byte chooses the command. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char text[TEXT];
    char *argv[WORDS + 1];
    int argc = 1, count = 0;
    if (size < 1 || size >= TEXT) {
        return 0;
    }
    while (commands[count]) {
        count++;
    }
    const subcommand *c = commands[data[0] % count];
    if (find_command(c->name) != c) {
        fail("found elsewhere", c->name);
    }
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    argv[0] = text + size - 1;
    for (char *at = text; at < text + size - 1 && argc < WORDS;) {
        argv[argc++] = at;
        at += strcspn(at, "\n");
        *at++ = '\0';
    }
    argv[argc] = NULL;
    arguments args;
    complaints = 0;
    int code = parse_arguments(c, argc, argv, &args);
    if ((code != EXIT_OK && code != EXIT_USAGE) || (code == EXIT_USAGE) != (complaints == 1)) {
        fail("refused without a word, or with two", c->name);
    }
    if (code == EXIT_OK) {
        check_arguments(c, &args, argc);
    }
    return 0;
}
