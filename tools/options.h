/* SPDX-License-Identifier: MIT */
/*
 * What a command takes. Each command of `qsa` describes itself in one `subcommand`: from it come the parsing, --help,
 * the shell completions and the manual page.
 */
#ifndef QSA_TOOLS_OPTIONS_H
#define QSA_TOOLS_OPTIONS_H

#include <stdint.h>
#include <stdio.h>

/* What main returns. */
enum { EXIT_OK = 0, EXIT_CHECK_FAILED = 1, EXIT_USAGE = 2 };

typedef enum option_kind {
    OPTION_FLAG,    /* takes no value */
    OPTION_CHOICE,  /* one word of `choices` */
    OPTION_INTEGER, /* least..most */
    OPTION_FILE,
    OPTION_STRING
} option_kind;

typedef struct option {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    option_kind kind;
    const char *argument; /* the value's name in help; NULL for a flag */
    const char *choices;  /* "f32 bf16", OPTION_CHOICE only */
    int64_t least, most;  /* OPTION_INTEGER only */
    const char *fallback; /* value when not given; NULL: none */
    const char *help;     /* half a sentence, without a full stop */
} option;

typedef struct example {
    const char *line, *what;
} example;

enum { OPTIONS_MAX = 24 };

typedef struct arguments arguments;

typedef struct subcommand {
    const char *name;
    const char *summary;         /* half a sentence */
    const char *operands;        /* as in the usage line: "FILE", "[FILE...]", "" */
    const char *operand_choices; /* words that an operand is one of; NULL: operands are files */
    int least_operands, most_operands;
    const char *description; /* paragraphs, a newline between them */
    const option *options;   /* ends with a NULL name; at most OPTIONS_MAX */
    const example *examples; /* ends with a NULL line */
    int (*run)(const arguments *args);
} subcommand;

/* All commands, NULL after the last (main.c). */
extern const subcommand *const commands[];
const subcommand *find_command(const char *name);

/* ------------------------------------------------------------------------------------------------ shared options */

#define KV_CHOICES  "f32 bf16 f16 i8"
#define CPU_CHOICES "auto c avx2 avx512 amx neon"

#define OPTION_KV(fallback, help)                                                                                      \
    { "kv", 0, OPTION_CHOICE, "FORMAT", KV_CHOICES, 0, 0, fallback, help }
#define OPTION_KEYS(fallback, help)                                                                                    \
    { "keys", 0, OPTION_CHOICE, "FORMAT", "bf16 f32", 0, 0, fallback, help }
#define OPTION_CPU(fallback, help)                                                                                     \
    { "cpu", 0, OPTION_CHOICE, "LEVEL", CPU_CHOICES, 0, 0, fallback, help }
#define OPTION_THREADS                                                                                                 \
    { "threads", 't', OPTION_INTEGER, "N", NULL, 0, 1024, "0", "threads that take part; 0: one for each online core" }
#define OPTION_CHUNK                                                                                                   \
    { "chunk", 0, OPTION_CHOICE, "CELLS", "32 64", 0, 0, "64", "cells in a chunk of the attend stage" }
#define OPTION_PREFIX                                                                                                  \
    {                                                                                                                  \
        "prefix", 0, OPTION_STRING, "TEXT", NULL, 0, 0, NULL,                                                          \
            "what the layer's tensor names begin with, such as model.language_model.layers.3.; found if just one "     \
            "layer fits"                                                                                               \
    }
#define OPTION_JSON                                                                                                    \
    { "json", 'j', OPTION_FLAG, NULL, NULL, 0, 0, NULL, "print JSON instead of a table" }
#define OPTION_HELP                                                                                                    \
    { "help", 'h', OPTION_FLAG, NULL, NULL, 0, 0, NULL, "print this help" }
#define OPTION_END                                                                                                     \
    { NULL, 0, OPTION_FLAG, NULL, NULL, 0, 0, NULL, NULL }

/* ------------------------------------------------------------------------------------------------ parsing */

typedef struct option_value {
    const char *text; /* given, or the fallback, or NULL */
    int64_t number;   /* of an integer or a choice that is one */
    int given;
} option_value;

struct arguments {
    const subcommand *command;
    option_value values[OPTIONS_MAX]; /* in the order of command->options */
    char **operands;
    int operand_count;
};

/* argv[0] is the command's name; argv is reordered, operands first. EXIT_OK, or EXIT_USAGE with a message on stderr. */
int parse_arguments(const subcommand *c, int argc, char **argv, arguments *args);

/* By name, which must be one of the command's. */
const option_value *option_of(const arguments *args, const char *name);
const char *option_text(const arguments *args, const char *name);
int64_t option_number(const arguments *args, const char *name);
int option_given(const arguments *args, const char *name);

/* Calls body for each word of a list such as `choices`. */
void each_word(const char *words, void (*body)(void *arg, const char *word, int length), void *arg);

/* ------------------------------------------------------------------------------------------------ printing */

void print_help(FILE *file, const subcommand *c); /* NULL: of qsa itself */
void print_manual(FILE *file);                    /* qsa(1) in roff */
void print_completion_bash(FILE *file);
void print_completion_zsh(FILE *file);
void print_completion_fish(FILE *file);

#endif
