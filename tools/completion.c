/* SPDX-License-Identifier: MIT */
/* Completions for three shells. The tables' words hold no quotes or dollars; help texts are quoted where they go. */
#include "options.h"

#include <qsa/qsa.h>

#include <stdio.h>

static void print_command_names(FILE *file) {
    for (const subcommand *const *at = commands; *at; at++) {
        fprintf(file, "%s ", (*at)->name);
    }
    fprintf(file, "help");
}

/* In single quotes: a quote in the text closes, stands escaped, and opens again. A backslash goes before those `also`. */
static void print_quoted(FILE *file, const char *text, const char *also) {
    for (; *text; text++) {
        if (*text == '\'') {
            fputs("'\\''", file);
            continue;
        }
        for (const char *c = also; *c; c++) {
            if (*c == *text) {
                fputc('\\', file);
            }
        }
        fputc(*text, file);
    }
}

/* ------------------------------------------------------------------------------------------------ bash */

static void print_bash_pattern(FILE *file, const option *o) {
    fprintf(file, "        --%s", o->name);
    if (o->letter) {
        fprintf(file, "|-%c", o->letter);
    }
    fprintf(file, ") ");
}

static void print_bash_values(FILE *file, const subcommand *c) {
    fprintf(file, "        case $previous in\n");
    for (const option *o = c->options; o->name; o++) {
        if (o->kind == OPTION_FLAG) {
            continue;
        }
        print_bash_pattern(file, o);
        if (o->kind == OPTION_CHOICE) {
            fprintf(file, "COMPREPLY=($(compgen -W '%s' -- \"$word\"));", o->choices);
        } else if (o->kind == OPTION_FILE) {
            fprintf(file, "COMPREPLY=($(compgen -f -- \"$word\"));");
        }
        fprintf(file, " return ;;\n");
    }
    fprintf(file, "        esac\n");
}

static void print_bash_command(FILE *file, const subcommand *c) {
    fprintf(file, "    %s)\n", c->name);
    print_bash_values(file, c);
    fprintf(file, "        if [[ $word == -* ]]; then\n            COMPREPLY=($(compgen -W '");
    for (const option *o = c->options; o->name; o++) {
        fprintf(file, "%s--%s", o == c->options ? "" : " ", o->name);
        if (o->letter) {
            fprintf(file, " -%c", o->letter);
        }
    }
    fprintf(file, "' -- \"$word\"))\n");
    if (c->operand_choices) {
        fprintf(file, "        else\n            COMPREPLY=($(compgen -W '%s' -- \"$word\"))\n", c->operand_choices);
    } else if (c->most_operands > 0) {
        fprintf(file, "        else\n            COMPREPLY=($(compgen -f -- \"$word\"))\n");
    }
    fprintf(file, "        fi ;;\n");
}

void print_completion_bash(FILE *file) {
    fprintf(file, "# bash completion of qsa %s\n_qsa() {\n    local word=${COMP_WORDS[COMP_CWORD]}\n", QSA_VERSION);
    fprintf(file,
            "    local previous=${COMP_WORDS[COMP_CWORD-1]}\n    COMPREPLY=()\n    if [[ $COMP_CWORD -eq 1 ]]; then\n"
            "        COMPREPLY=($(compgen -W '");
    print_command_names(file);
    fprintf(file, " --help --version' -- \"$word\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n    help)\n"
                  "        COMPREPLY=($(compgen -W '");
    print_command_names(file);
    fprintf(file, "' -- \"$word\")) ;;\n");
    for (const subcommand *const *at = commands; *at; at++) {
        print_bash_command(file, *at);
    }
    fprintf(file, "    esac\n}\ncomplete -o filenames -F _qsa qsa\n");
}

/* ------------------------------------------------------------------------------------------------ zsh */

/* 'help:NAME:(words)' for _arguments. */
static void print_zsh_option(FILE *file, const option *o) {
    if (o->letter) {
        fprintf(file, "            '(-%c --%s)'{-%c,--%s}'[", o->letter, o->name, o->letter, o->name);
    } else {
        fprintf(file, "            '--%s[", o->name);
    }
    print_quoted(file, o->help, "[]:\\");
    fprintf(file, "]");
    if (o->argument) {
        fprintf(file, ":%s:", o->argument);
    }
    if (o->kind == OPTION_CHOICE) {
        fprintf(file, "(%s)", o->choices);
    } else if (o->kind == OPTION_FILE) {
        fprintf(file, "_files");
    }
    fprintf(file, "' \\\n");
}

static void print_zsh_command(FILE *file, const subcommand *c) {
    fprintf(file, "    %s)\n        _arguments -s \\\n", c->name);
    for (const option *o = c->options; o->name; o++) {
        print_zsh_option(file, o);
    }
    if (c->operand_choices) {
        fprintf(file, "            ':%s:(%s)' ;;\n", c->operands, c->operand_choices);
    } else {
        fprintf(file, c->most_operands ? "            '*:file:_files' ;;\n" : "            ':: :' ;;\n");
    }
}

void print_completion_zsh(FILE *file) {
    fprintf(file, "#compdef qsa\n# zsh completion of qsa %s\n_qsa() {\n    local -a names\n    names=(\n", QSA_VERSION);
    for (const subcommand *const *at = commands; *at; at++) {
        fprintf(file, "        '%s:", (*at)->name);
        print_quoted(file, (*at)->summary, ":\\");
        fprintf(file, "'\n");
    }
    fprintf(file, "        'help:print a command'\\''s help'\n    )\n    if (( CURRENT == 2 )); then\n"
                  "        _describe command names\n        compadd -- --help --version\n        return\n    fi\n"
                  "    local name=${words[2]}\n    shift words\n    (( CURRENT-- ))\n    case $name in\n"
                  "    help)\n        _describe command names ;;\n");
    for (const subcommand *const *at = commands; *at; at++) {
        print_zsh_command(file, *at);
    }
    fprintf(file,
            "    esac\n}\nif [[ $funcstack[1] == _qsa ]]; then\n    _qsa \"$@\"\nelse\n    compdef _qsa qsa\nfi\n");
}

/* ------------------------------------------------------------------------------------------------ fish */

static void print_fish_option(FILE *file, const subcommand *c, const option *o) {
    fprintf(file, "complete -c qsa -n '__fish_seen_subcommand_from %s' -l %s", c->name, o->name);
    if (o->letter) {
        fprintf(file, " -s %c", o->letter);
    }
    if (o->kind == OPTION_CHOICE) {
        fprintf(file, " -x -a '%s'", o->choices);
    } else if (o->kind == OPTION_FILE) {
        fprintf(file, " -r -F");
    } else if (o->argument) {
        fprintf(file, " -x");
    }
    fprintf(file, " -d '");
    print_quoted(file, o->help, "\\");
    fprintf(file, "'\n");
}

void print_completion_fish(FILE *file) {
    fprintf(file, "# fish completion of qsa %s\ncomplete -c qsa -f\n", QSA_VERSION);
    fprintf(file, "complete -c qsa -n __fish_use_subcommand -l version -d 'print the version'\n"
                  "complete -c qsa -n __fish_use_subcommand -l help -d 'print the commands'\n"
                  "complete -c qsa -n __fish_use_subcommand -a help -d 'print the help of a command'\n"
                  "complete -c qsa -n '__fish_seen_subcommand_from help' -a '");
    print_command_names(file);
    fprintf(file, "'\n");
    for (const subcommand *const *at = commands; *at; at++) {
        fprintf(file, "complete -c qsa -n __fish_use_subcommand -a %s -d '", (*at)->name);
        print_quoted(file, (*at)->summary, "\\");
        fprintf(file, "'\n");
        for (const option *o = (*at)->options; o->name; o++) {
            print_fish_option(file, *at, o);
        }
        if ((*at)->operand_choices) {
            fprintf(file, "complete -c qsa -n '__fish_seen_subcommand_from %s' -a '%s'\n", (*at)->name,
                    (*at)->operand_choices);
        } else if ((*at)->most_operands > 0) {
            fprintf(file, "complete -c qsa -n '__fish_seen_subcommand_from %s' -F\n", (*at)->name);
        }
    }
}
