/* SPDX-License-Identifier: MIT */
/* --help of qsa and of each command, and the manual page. */
#include "options.h"

#include <qsa/qsa.h>

#include <stdio.h>
#include <string.h>

static const char *const introduction =
    "QSA (Qwen Sparse Attention) decode on CPUs: for each new token an indexer scores blocks of cached cells, the best "
    "2,048 cells are selected, and attention reads only those.";

static const char *const exit_codes[] = {
    "0  done, and the check passed",
    "1  the check failed: a result is outside its limit",
    "2  a wrong option or argument, a bad file, or too little memory",
};

/* ------------------------------------------------------------------------------------------------ text */

enum { COLUMNS = 80 };

/* Words of text between `indent` and COLUMNS; the first line starts at column `at`. */
static void print_wrapped(FILE *file, const char *text, int indent, int at) {
    while (*text) {
        int length = (int)strcspn(text, " \n");
        if (at > indent && at + 1 + length > COLUMNS) {
            fprintf(file, "\n");
            at = 0;
        }
        int space = at < indent ? indent - at : at > indent;
        fprintf(file, "%*s%.*s", space, "", length, text);
        at += space + length;
        text += length;
        if (*text == '\n') {
            fprintf(file, "\n\n");
            at = 0;
        }
        text += *text != '\0';
    }
    fprintf(file, "\n");
}

static void print_option(FILE *file, const option *o) {
    char head[64], help[512];
    int at = snprintf(head, sizeof head, "  %c%c%c --%s%s%s", o->letter ? '-' : ' ', o->letter ? o->letter : ' ',
                      o->letter ? ',' : ' ', o->name, o->argument ? " " : "", o->argument ? o->argument : "");
    int length = snprintf(help, sizeof help, "%s", o->help);
    if (o->kind == OPTION_CHOICE) {
        length += snprintf(help + length, sizeof help - (size_t)length, ": %s", o->choices);
    }
    if (o->fallback) {
        snprintf(help + length, sizeof help - (size_t)length, " (default %s)", o->fallback);
    }
    fputs(head, file);
    print_wrapped(file, help, 24, at < 23 ? at : 23);
}

static void print_command_help(FILE *file, const subcommand *c) {
    fprintf(file, "Usage: qsa %s [OPTION...]%s%s\n\n", c->name, *c->operands ? " " : "", c->operands);
    print_wrapped(file, c->description, 0, 0);
    fprintf(file, "\nOptions:\n");
    for (const option *o = c->options; o->name; o++) {
        print_option(file, o);
    }
    fprintf(file, "\nExamples:\n");
    for (const example *e = c->examples; e->line; e++) {
        fprintf(file, "  %s\n", e->line);
        print_wrapped(file, e->what, 6, 0);
    }
}

void print_help(FILE *file, const subcommand *c) {
    if (c) {
        print_command_help(file, c);
        return;
    }
    fprintf(file, "Usage: qsa COMMAND [OPTION...] [ARGUMENT...]\n       qsa help [COMMAND]\n       qsa --version\n\n");
    print_wrapped(file, introduction, 0, 0);
    fprintf(file, "\nCommands:\n");
    for (const subcommand *const *at = commands; *at; at++) {
        fprintf(file, "  %-12s", (*at)->name);
        print_wrapped(file, (*at)->summary, 15, 14);
    }
    fprintf(file, "\nExit codes:\n");
    for (size_t i = 0; i < sizeof exit_codes / sizeof *exit_codes; i++) {
        fprintf(file, "  %s\n", exit_codes[i]);
    }
    fprintf(file, "\n`qsa COMMAND --help` lists a command's options and examples.\n");
}

/* ------------------------------------------------------------------------------------------------ roff */

/* Text with what roff would read as its own escaped; a newline starts a paragraph. */
static void print_roff(FILE *file, const char *text) {
    for (const char *c = text; *c; c++) {
        if (*c == '-' || *c == '\\') {
            fputs(*c == '-' ? "\\-" : "\\e", file);
        } else if (*c == '\n') {
            fputs("\n.PP\n", file);
        } else {
            fprintf(file, "%s%c", (*c == '.' || *c == '\'') && c == text ? "\\&" : "", *c);
        }
    }
}

static void print_roff_line(FILE *file, const char *macro, const char *text) {
    fprintf(file, "%s", macro);
    print_roff(file, text);
    fprintf(file, "\n");
}

static void print_roff_option(FILE *file, const option *o) {
    fprintf(file, ".TP\n\\fB");
    if (o->letter) {
        fprintf(file, "\\-%c\\fR, \\fB", o->letter);
    }
    print_roff(file, "--");
    print_roff(file, o->name);
    fprintf(file, o->argument ? "\\fR \\fI%s\\fR\n" : "%s\\fR\n", o->argument ? o->argument : "");
    print_roff(file, o->help);
    if (o->choices) {
        print_roff(file, ": ");
        print_roff(file, o->choices);
    }
    if (o->fallback) {
        print_roff(file, " (default ");
        print_roff(file, o->fallback);
        print_roff(file, ")");
    }
    fprintf(file, "\n");
}

static void print_roff_command(FILE *file, const subcommand *c) {
    fprintf(file, ".SS qsa %s [OPTION...]%s%s\n", c->name, *c->operands ? " " : "", c->operands);
    print_roff_line(file, "", c->description);
    for (const option *o = c->options; o->name; o++) {
        print_roff_option(file, o);
    }
    fprintf(file, ".PP\nExamples:\n");
    for (const example *e = c->examples; e->line; e++) {
        print_roff_line(file, ".TP\n.B ", e->line);
        print_roff_line(file, "", e->what);
    }
}

void print_manual(FILE *file) {
    fprintf(file, ".TH QSA 1 \"\" \"qsa %s\" \"User Commands\"\n.SH NAME\nqsa \\- sparse\\-attention decode on CPUs\n",
            QSA_VERSION);
    fprintf(file, ".SH SYNOPSIS\n.B qsa\n.I COMMAND\n[\\fIOPTION\\fR...] [\\fIARGUMENT\\fR...]\n.br\n.B qsa help\n"
                  "[\\fICOMMAND\\fR]\n.br\n.B qsa \\-\\-version\n.SH DESCRIPTION\n");
    print_roff_line(file, "", introduction);
    fprintf(file, ".SH COMMANDS\n");
    for (const subcommand *const *at = commands; *at; at++) {
        print_roff_command(file, *at);
    }
    fprintf(file, ".SH EXIT STATUS\n");
    for (size_t i = 0; i < sizeof exit_codes / sizeof *exit_codes; i++) {
        fprintf(file, ".TP\n.B %c\n", exit_codes[i][0]);
        print_roff_line(file, "", exit_codes[i] + 3);
    }
}
