/* SPDX-License-Identifier: MIT */
/* qsa: the table of commands, and the way to the one asked for. */
#include "options.h"
#include "report.h"

#include <string.h>

extern const subcommand command_run, command_verify, command_bench, command_info, command_inspect, command_completion;

const subcommand *const commands[] = {
    &command_run, &command_verify, &command_bench, &command_info, &command_inspect, &command_completion, NULL,
};

const subcommand *find_command(const char *name) {
    for (const subcommand *const *at = commands; *at; at++) {
        if (!strcmp((*at)->name, name)) {
            return *at;
        }
    }
    return NULL;
}

static int no_such_command(const char *name) {
    return complain(NULL, "there is no command '%s': see `qsa --help`", name);
}

/* What was printed is on its way, or that is said. */
static int printed(const char *command) {
    return fflush(stdout) ? complain(command, "stdout cannot be written") : EXIT_OK;
}

static int run_help(int argc, char **argv) {
    const subcommand *c = argc > 2 ? find_command(argv[2]) : NULL;
    if (argc > 2 && !c && strcmp(argv[2], "help") != 0) {
        return no_such_command(argv[2]);
    }
    print_help(stdout, c);
    return printed(NULL);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr, NULL);
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        printf("qsa %s\n", qsa_version());
        return printed(NULL);
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        return run_help(argc, argv);
    }
    const subcommand *c = find_command(argv[1]);
    if (!c) {
        return argv[1][0] == '-' ? complain(NULL, "there is no option '%s': see `qsa --help`", argv[1])
                                 : no_such_command(argv[1]);
    }
    arguments args;
    if (parse_arguments(c, argc - 1, argv + 1, &args)) {
        return EXIT_USAGE;
    }
    if (option_given(&args, "help")) {
        print_help(stdout, c);
        return printed(c->name);
    }
    return c->run(&args);
}
