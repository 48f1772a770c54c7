/* SPDX-License-Identifier: MIT */
/* qsa inspect FILE: the tensors and the metadata of a safetensors file or a sharded checkpoint; what a snapshot holds. */
#define _POSIX_C_SOURCE 200809L
#include "report.h"
#include "settings.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ------------------------------------------------------------------------------------------------ metadata */

/* The header's JSON text of a file that the library has checked already, or NULL. */
static char *read_header(const char *command, const char *path, size_t *bytes) {
    unsigned char length[8];
    uint64_t size = 0;
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    if (file && fread(length, 1, sizeof length, file) == sizeof length) {
        for (int i = 7; i >= 0; i--) {
            size = size << 8 | length[i];
        }
        if (size <= 1 << 30) {
            *bytes = (size_t)size;
            text = take_memory(command, (int64_t)size, 1);
            if (fread(text, 1, *bytes, file) != *bytes) {
                free(text);
                text = NULL;
            }
        }
    }
    if (file) {
        fclose(file);
    }
    return text;
}

/* __metadata__ of one file: an object, empty if there is none; NULL if the file cannot be read. */
static json_t *read_metadata(const char *command, const char *path) {
    size_t bytes = 0;
    char *text = read_header(command, path, &bytes);
    json_t *header = text ? json_loadb(text, bytes, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    json_t *metadata = json_object_get(header, "__metadata__");
    json_t *result = metadata ? json_incref(metadata) : header ? json_object() : NULL;
    json_decref(header);
    free(text);
    return result;
}

/* ------------------------------------------------------------------------------------------------ tensors */

static json_t *tensor_json(const qsa_tensor_info *info) {
    json_t *shape = json_array();
    for (int64_t i = 0; i < info->rank; i++) {
        json_array_append_new(shape, json_integer(info->shape[i]));
    }
    return json_pack("{s:o, s:s, s:o, s:I, s:I, s:o}", "name", json_text(info->name), "dtype", info->dtype, "shape",
                     shape, "bytes", (json_int_t)info->bytes, "offset", (json_int_t)info->offset, "file",
                     json_text(info->file));
}

static int add_file(const char *command, json_t *files, const char *path) {
    size_t i;
    json_t *file;
    json_array_foreach(files, i, file) {
        if (!strcmp(json_string_value(json_object_get(file, "path")), path)) {
            return EXIT_OK;
        }
    }
    json_t *metadata = read_metadata(command, path);
    if (!metadata) {
        return complain(command, "%s: its header cannot be read", path);
    }
    json_array_append_new(files, json_pack("{s:o, s:o}", "path", json_text(path), "metadata", metadata));
    return EXIT_OK;
}

/* {"file", "files": [{"path", "metadata"}], "bytes", "tensors": [...]}; NULL with a message on stderr. */
static json_t *inspect_json(const char *command, const char *path, const qsa_tensors *tensors) {
    json_t *list = json_array(), *files = json_array();
    int64_t bytes = 0, count = qsa_tensors_count(tensors);
    int failed = EXIT_OK;
    for (int64_t i = 0; !failed && i < count; i++) {
        qsa_tensor_info info;
        qsa_error error;
        if (qsa_tensors_get(tensors, i, &info, &error)) {
            failed = complain_library(command, path, &error);
            break;
        }
        bytes += info.bytes;
        json_array_append_new(list, tensor_json(&info));
        failed = add_file(command, files, info.file);
    }
    if (failed) {
        json_decref(list);
        json_decref(files);
        return NULL;
    }
    return json_pack("{s:o, s:o, s:I, s:I, s:o}", "file", json_text(path), "files", files, "count", (json_int_t)count,
                     "bytes", (json_int_t)bytes, "tensors", list);
}

/* ------------------------------------------------------------------------------------------------ printing */

static const char *word(json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "?";
}

static long long number(json_t *object, const char *key) {
    return (long long)json_integer_value(json_object_get(object, key));
}

static int name_width(json_t *tensors) {
    size_t i, width = 4;
    json_t *tensor;
    json_array_foreach(tensors, i, tensor) {
        size_t length = strlen(word(tensor, "name"));
        width = length > width ? length : width;
    }
    return width < 90 ? (int)width : 90;
}

static void print_tensors(json_t *tensors) {
    size_t i, j;
    json_t *tensor, *extent;
    int width = name_width(tensors);
    printf("%-*s  %-8s %-20s %14s %14s\n", width, "name", "dtype", "shape", "bytes", "offset");
    json_array_foreach(tensors, i, tensor) {
        char shape[8 * 22] = "[";
        size_t at = 1;
        json_array_foreach(json_object_get(tensor, "shape"), j, extent) {
            at += (size_t)snprintf(shape + at, sizeof shape - at, "%s%lld", j ? " " : "",
                                   (long long)json_integer_value(extent));
        }
        snprintf(shape + at, sizeof shape - at, "]");
        printf("%-*s  %-8s %-20s %14lld %14lld\n", width, word(tensor, "name"), word(tensor, "dtype"), shape,
               number(tensor, "bytes"), number(tensor, "offset"));
    }
}

static void print_inspection(json_t *inspection) {
    size_t i;
    json_t *file, *value;
    const char *key;
    json_array_foreach(json_object_get(inspection, "files"), i, file) {
        printf("%s\n", word(file, "path"));
        json_object_foreach(json_object_get(file, "metadata"), key, value) {
            printf("    %s: %s\n", key, json_is_string(value) ? json_string_value(value) : "?");
        }
    }
    print_tensors(json_object_get(inspection, "tensors"));
    printf("%lld tensors, %lld bytes\n", number(inspection, "count"), number(inspection, "bytes"));
}

/* ------------------------------------------------------------------------------------------------ snapshots */

/* Nothing but a regular file is opened to see: a pipe would wait. */
static int is_snapshot(const char *path) {
    char mark[8];
    struct stat about;
    FILE *file = stat(path, &about) == 0 && S_ISREG(about.st_mode) ? fopen(path, "rb") : NULL;
    int found = file && fread(mark, 1, sizeof mark, file) == sizeof mark && !memcmp(mark, "qsa-snap", sizeof mark);
    if (file) {
        fclose(file);
    }
    return found;
}

static json_t *snapshot_json(const char *path, const qsa_snapshot_info *i) {
    json_t *shape = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "q_heads", (json_int_t)i->shape.q_heads,
                              "kv_heads", (json_int_t)i->shape.kv_heads, "head_dim", (json_int_t)i->shape.head_dim,
                              "index_heads", (json_int_t)i->shape.index_heads, "index_dim", (json_int_t)i->shape.index_dim,
                              "block", (json_int_t)i->shape.block, "budget", (json_int_t)i->shape.budget, "scale",
                              (double)i->shape.scale, "index_scale", (double)i->shape.index_scale);
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:o, s:f, s:I, s:f}", "file", json_text(path),
                     "snapshot_version", (json_int_t)i->version, "bytes", (json_int_t)i->bytes, "layers", (json_int_t)i->layers,
                     "longest", (json_int_t)i->longest, "shortest", (json_int_t)i->shortest, "unkeyed", (json_int_t)i->unkeyed,
                     "kv", qsa_type_name(i->kv_type), "keys", qsa_type_name(i->key_type), "shape", shape, "eps", (double)i->eps,
                     "rope_dims", (json_int_t)i->rope.dims, "rope_theta", i->rope.theta);
}

static void print_snapshot(const char *path, const qsa_snapshot_info *i) {
    const qsa_shape *s = &i->shape;
    printf("%s\n    a snapshot of format version %lld, every checksum right\n", path, (long long)i->version);
    printf("cells       %lld", (long long)i->longest);
    if (i->shortest < i->longest) {
        printf(" in the longest layer, %lld in the shortest", (long long)i->shortest);
    }
    printf("\nlayers      %lld", (long long)i->layers);
    if (i->unkeyed) {
        printf(", %lld with cells without index keys", (long long)i->unkeyed);
    }
    printf("\nK/V         %s, %lld query and %lld KV heads of %lld\n", qsa_type_name(i->kv_type), (long long)s->q_heads,
           (long long)s->kv_heads, (long long)s->head_dim);
    printf("index keys  %s, %lld query heads of %lld, blocks of %lld cells, a budget of %lld\n", qsa_type_name(i->key_type),
           (long long)s->index_heads, (long long)s->index_dim, (long long)s->block, (long long)s->budget);
    if (i->rope.theta > 0.0) {
        printf("rope        %lld dims, theta %g\n", (long long)i->rope.dims, i->rope.theta);
    } else {
        printf("rope        %lld dims, from a table\n", (long long)i->rope.dims);
    }
    printf("bytes       %lld\n", (long long)i->bytes);
}

static int run_snapshot(const arguments *args) {
    const char *name = args->command->name, *path = args->operands[0];
    qsa_error error;
    QSA_INIT(qsa_snapshot_info, info);
    if (qsa_snapshot_inspect_file(NULL, path, &info, &error)) {
        return complain_library(name, path, &error);
    }
    if (option_given(args, "json")) {
        return print_json(name, snapshot_json(path, &info));
    }
    print_snapshot(path, &info);
    return fflush(stdout) ? complain(name, "stdout cannot be written") : EXIT_OK;
}

/* ------------------------------------------------------------------------------------------------ the command */

static int run(const arguments *args) {
    const char *name = args->command->name, *path = args->operands[0];
    if (is_snapshot(path)) {
        return run_snapshot(args);
    }
    qsa_tensors *tensors;
    qsa_error error;
    if (qsa_tensors_open(path, NULL, &tensors, &error)) {
        return complain_library(name, path, &error);
    }
    json_t *inspection = inspect_json(name, path, tensors);
    qsa_tensors_close(tensors);
    if (!inspection) {
        return EXIT_USAGE;
    }
    if (option_given(args, "json")) {
        return print_json(name, inspection);
    }
    print_inspection(inspection);
    json_decref(inspection);
    return fflush(stdout) ? complain(name, "stdout cannot be written") : EXIT_OK;
}

static const option options[] = {OPTION_JSON, OPTION_HELP, OPTION_END};

static const example examples[] = {
    {"qsa inspect Qwen3.8-Flash-Next/", "List the tensors of a checkpoint's folder, all shards."},
    {"qsa inspect chat.qsa", "Check a saved sequence, and show what it holds."},
    {"qsa inspect --json layer.safetensors | jq -r '.tensors[].name'", "Only the names."},
    {NULL, NULL},
};

const subcommand command_inspect = {
    .name = "inspect",
    .summary = "list the tensors of a safetensors file or checkpoint, or show a snapshot",
    .operands = "FILE",
    .least_operands = 1,
    .most_operands = 1,
    .description = "Lists name, type, shape, size and place of every tensor, and the file's metadata. FILE is a "
                   ".safetensors file, "
                   "the model.safetensors.index.json of a sharded checkpoint, or a folder that holds either. Tensors "
                   "are not read. Of a snapshot of a sequence (qsa_sequence_save_file()) every checksum is checked.",
    .options = options,
    .examples = examples,
    .run = run,
};
