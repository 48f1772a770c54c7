/* SPDX-License-Identifier: MIT */
/* Parsing of a command's line: --name value, --name=value, -n value, -nvalue, --, operands anywhere. */
#include "options.h"

#include "report.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void each_word(const char *words, void (*body)(void *arg, const char *word, int length), void *arg) {
    while (words && *words) {
        size_t length = strcspn(words, " ");
        body(arg, words, (int)length);
        words += length + strspn(words + length, " ");
    }
}

typedef struct wanted {
    const char *text;
    int found;
} wanted;

static void compare_word(void *arg, const char *word, int length) {
    wanted *w = arg;
    w->found |= strlen(w->text) == (size_t)length && !strncmp(w->text, word, (size_t)length);
}

static int has_word(const char *words, const char *text) {
    wanted w = {text, 0};
    each_word(words, compare_word, &w);
    return w.found;
}

/* 1 if all of text is a decimal integer. */
static int to_integer(const char *text, int64_t *number) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    *number = value;
    return !errno && end != text && !*end && !strchr(" \t\n\v\f\r", *text);
}

static int set_value(const subcommand *c, const option *o, const char *text, option_value *value) {
    int is_integer = to_integer(text, &value->number);
    if (o->kind == OPTION_CHOICE && !has_word(o->choices, text)) {
        return complain(c->name, "--%s is '%s': expected one of %s", o->name, text, o->choices);
    }
    if (o->kind == OPTION_INTEGER && (!is_integer || value->number < o->least || value->number > o->most)) {
        return complain(c->name, "--%s is '%s': expected an integer in %lld..%lld", o->name, text, (long long)o->least,
                        (long long)o->most);
    }
    if ((o->kind == OPTION_FILE || o->kind == OPTION_STRING) && !*text) {
        return complain(c->name, "--%s is empty: expected %s", o->name, o->argument);
    }
    value->text = text;
    return EXIT_OK;
}

static int find_option(const subcommand *c, const char *name, size_t length, char letter) {
    for (int i = 0; c->options[i].name; i++) {
        const option *o = &c->options[i];
        if (name ? strlen(o->name) == length && !strncmp(o->name, name, length) : o->letter == letter) {
            return i;
        }
    }
    return -1;
}

/* argv[*i] is an option; *i moves on to a value that stands in a word of its own. */
static int parse_option(const subcommand *c, int argc, char **argv, int *i, arguments *args) {
    const char *word = argv[*i], *value = NULL;
    int is_long = word[1] == '-', at;
    if (is_long) {
        size_t length = strcspn(word + 2, "=");
        at = find_option(c, word + 2, length, 0);
        value = word[2 + length] ? word + 3 + length : NULL;
    } else {
        at = find_option(c, NULL, 0, word[1]);
        value = word[2] ? word + 2 : NULL;
    }
    if (at < 0) {
        return complain(c->name, "there is no option '%s': see `qsa %s --help`", word, c->name);
    }
    const option *o = &c->options[at];
    args->values[at].given = 1;
    if (o->kind == OPTION_FLAG) {
        return value ? complain(c->name, "--%s is given '%s': it takes no value", o->name, value) : EXIT_OK;
    }
    if (!value && *i + 1 >= argc) {
        return complain(c->name, "--%s is the last word: expected %s behind it", o->name, o->argument);
    }
    if (!value && !strncmp(argv[*i + 1], "--", 2)) {
        return complain(c->name, "--%s is followed by '%s': expected %s, or --%s=%s for a value with dashes", o->name,
                        argv[*i + 1], o->argument, o->name, argv[*i + 1]);
    }
    return set_value(c, o, value ? value : argv[++*i], &args->values[at]);
}

static int check_operands(const subcommand *c, const arguments *args) {
    if (args->operand_count < c->least_operands) {
        return complain(c->name, "%s is missing: see `qsa %s --help`", c->operands, c->name);
    }
    if (args->operand_count > c->most_operands) {
        return complain(c->name, "'%s' is one argument too many: expected %s", args->operands[c->most_operands],
                        *c->operands ? c->operands : "options only");
    }
    for (int i = 0; c->operand_choices && i < args->operand_count; i++) {
        if (!has_word(c->operand_choices, args->operands[i])) {
            return complain(c->name, "%s is '%s': expected one of %s", c->operands, args->operands[i],
                            c->operand_choices);
        }
    }
    return EXIT_OK;
}

int parse_arguments(const subcommand *c, int argc, char **argv, arguments *args) {
    *args = (arguments){.command = c, .operands = argv};
    for (int i = 0; c->options[i].name; i++) {
        assert(i < OPTIONS_MAX);
        if (c->options[i].fallback && set_value(c, &c->options[i], c->options[i].fallback, &args->values[i])) {
            return EXIT_USAGE;
        }
    }
    int options_end = 0;
    for (int i = 1; i < argc; i++) {
        if (!options_end && !strcmp(argv[i], "--")) {
            options_end = 1;
        } else if (!options_end && argv[i][0] == '-' && argv[i][1]) {
            if (parse_option(c, argc, argv, &i, args)) {
                return EXIT_USAGE;
            }
        } else {
            args->operands[args->operand_count++] = argv[i];
        }
    }
    return option_given(args, "help") ? EXIT_OK : check_operands(c, args);
}

const option_value *option_of(const arguments *args, const char *name) {
    int at = find_option(args->command, name, strlen(name), 0);
    if (at < 0) {
        fprintf(stderr, "qsa: %s has no option named %s\n", args->command->name, name);
        abort();
    }
    return &args->values[at];
}

const char *option_text(const arguments *args, const char *name) {
    return option_of(args, name)->text;
}

int64_t option_number(const arguments *args, const char *name) {
    return option_of(args, name)->number;
}

int option_given(const arguments *args, const char *name) {
    return option_of(args, name)->given;
}
