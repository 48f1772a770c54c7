/* SPDX-License-Identifier: MIT */
/* qsa info: what this build does on this machine. */
#include "report.h"
#include "settings.h"

static const qsa_type kv_types[] = {QSA_F32, QSA_BF16, QSA_F16, QSA_I8_G64};
enum { KV_TYPES = sizeof kv_types / sizeof *kv_types };

static json_t *levels_json(void) {
    json_t *levels = json_array();
    for (int cpu = QSA_CPU_C; cpu <= QSA_CPU_NEON; cpu++) {
        if (qsa_cpu_available((qsa_cpu)cpu)) {
            json_array_append_new(levels, json_string(qsa_cpu_name((qsa_cpu)cpu)));
        }
    }
    return levels;
}

static json_t *info_json(const qsa_context *context) {
    json_t *kernels = json_array(), *bytes = json_object();
    for (int64_t i = 0; qsa_context_kernel(context, i); i++) {
        json_array_append_new(kernels, json_string(qsa_context_kernel(context, i)));
    }
    qsa_shape shape;
    qsa_shape_qwen38_flash_next(&shape);
    for (int i = 0; i < KV_TYPES; i++) {
        json_object_set_new(bytes, type_word(kv_types[i]),
                            json_integer(qsa_bytes_per_cell(&shape, kv_types[i], QSA_BF16)));
    }
    return json_pack("{s:s, s:i, s:s, s:o, s:I, s:o, s:o}", "version", qsa_version(), "api_version", QSA_API_VERSION,
                     "cpu", qsa_cpu_name(qsa_context_cpu(context)), "cpus", levels_json(), "threads",
                     (json_int_t)qsa_context_threads(context), "kernels", kernels, "bytes_per_cell", bytes);
}

static void print_words(const char *title, json_t *words, const char *before) {
    size_t i;
    json_t *word;
    printf("%s", title);
    json_array_foreach(words, i, word) {
        printf("%s%s", before, json_string_value(word));
    }
    printf("\n");
}

static void print_info(json_t *info) {
    const char *format;
    json_t *bytes;
    printf("qsa        %s\n", json_string_value(json_object_get(info, "version")));
    printf("cpu        %s\n", json_string_value(json_object_get(info, "cpu")));
    print_words("levels    ", json_object_get(info, "cpus"), " ");
    printf("threads    %lld\n", (long long)json_integer_value(json_object_get(info, "threads")));
    print_words("kernels", json_object_get(info, "kernels"), "\n    ");
    printf("bytes a cell of one layer (Qwen3.8-Flash-Next, index keys in bf16)\n");
    json_object_foreach(json_object_get(info, "bytes_per_cell"), format, bytes) {
        printf("    %-5s %6lld\n", format, (long long)json_integer_value(bytes));
    }
}

static int run(const arguments *args) {
    qsa_context *context =
        open_context(args->command->name, cpu_named(option_text(args, "cpu")), option_number(args, "threads"));
    if (!context) {
        return EXIT_USAGE;
    }
    json_t *info = info_json(context);
    qsa_close(context);
    if (!info || option_given(args, "json")) {
        return print_json(args->command->name, info);
    }
    print_info(info);
    json_decref(info);
    return fflush(stdout) ? complain(args->command->name, "stdout cannot be written") : EXIT_OK;
}

static const option options[] = {
    OPTION_CPU("auto", "instruction set to list the kernels of"), OPTION_THREADS, OPTION_JSON, OPTION_HELP, OPTION_END,
};

static const example examples[] = {
    {"qsa info", "Show the version, the instruction set chosen and its kernels."},
    {"qsa info --cpu c", "Show which kernels portable C would use."},
    {"qsa info --json | jq .bytes_per_cell.i8", "Bytes that a cell of one layer takes with int8 K/V."},
    {NULL, NULL},
};

const subcommand command_info = {
    .name = "info",
    .summary = "print the version, the kernels chosen here, and bytes per cell",
    .operands = "",
    .description =
        "Prints the library's version, the instruction sets that this machine and this build have, the kernels chosen, "
        "and how many bytes a cached cell takes in each K/V format.",
    .options = options,
    .examples = examples,
    .run = run,
};
