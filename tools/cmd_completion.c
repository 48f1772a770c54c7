/* SPDX-License-Identifier: MIT */
/* qsa completion SHELL: what a package installs besides the command itself. */
#include "options.h"
#include "report.h"

#include <string.h>

static int run(const arguments *args) {
    static const struct {
        const char *name;
        void (*print)(FILE *file);
    } kinds[] = {
        {"bash", print_completion_bash},
        {"zsh", print_completion_zsh},
        {"fish", print_completion_fish},
        {"man", print_manual},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!strcmp(args->operands[0], kinds[i].name)) {
            kinds[i].print(stdout);
        }
    }
    return fflush(stdout) ? complain(args->command->name, "stdout cannot be written") : EXIT_OK;
}

static const option options[] = {OPTION_HELP, OPTION_END};

static const example examples[] = {
    {"qsa completion bash > /etc/bash_completion.d/qsa", "Completion of commands, options and their values in bash."},
    {"qsa completion fish > ~/.config/fish/completions/qsa.fish", "The same in fish."},
    {"qsa completion man | man -l -", "Read the manual page without installing it."},
    {NULL, NULL},
};

const subcommand command_completion = {
    .name = "completion",
    .summary = "print completions for a shell, or the manual page",
    .operands = "SHELL",
    .operand_choices = "bash zsh fish man",
    .least_operands = 1,
    .most_operands = 1,
    .description =
        "Prints a script that completes commands, options and values in bash, zsh or fish; `man` prints the manual "
        "page qsa(1) in roff. All of it comes from the same tables as --help.",
    .options = options,
    .examples = examples,
    .run = run,
};
