/* SPDX-License-Identifier: MIT */
/* The writer of safetensors files for tests. */
#define _XOPEN_SOURCE 700
#include "support/safetensors_writer.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct st_writer {
    char *header;
    size_t header_bytes;
    unsigned char *data;
    size_t data_bytes;
    char *metadata;
};

static void *must(void *memory) {
    if (!memory) {
        abort();
    }
    return memory;
}

static char *format(const char *text, ...) {
    va_list args;
    va_start(args, text);
    int length = vsnprintf(NULL, 0, text, args);
    va_end(args);
    char *made = must(malloc((size_t)length + 1));
    va_start(args, text);
    vsnprintf(made, (size_t)length + 1, text, args);
    va_end(args);
    return made;
}

/* Puts text behind *to, with a comma between. */
static void append(char **to, char *text) {
    char *joined = *to ? format("%s,%s", *to, text) : format("%s", text);
    free(*to);
    free(text);
    *to = joined;
}

st_writer *st_new(void) {
    return must(calloc(1, sizeof(st_writer)));
}

void st_free(st_writer *writer) {
    free(writer->header);
    free(writer->data);
    free(writer->metadata);
    free(writer);
}

void st_metadata(st_writer *writer, const char *key, const char *value) {
    append(&writer->metadata, format("\"%s\":\"%s\"", key, value));
}

void st_add(st_writer *writer, const char *name, const char *dtype, int rank, const int64_t *shape, const void *data,
            size_t bytes) {
    char *dims = NULL;
    for (int i = 0; i < rank; i++) {
        append(&dims, format("%" PRId64, shape[i]));
    }
    size_t end = writer->data_bytes + bytes;
    append(&writer->header, format("\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", name, dtype,
                                   dims ? dims : "", writer->data_bytes, end));
    free(dims);
    writer->data = must(realloc(writer->data, end + 1));
    if (bytes) {
        memcpy(writer->data + writer->data_bytes, data, bytes);
    }
    writer->data_bytes = end;
}

void st_add_f32(st_writer *writer, const char *name, int rank, const int64_t *shape, const float *values) {
    size_t count = 1;
    for (int i = 0; i < rank; i++) {
        count *= (size_t)shape[i];
    }
    st_add(writer, name, "F32", rank, shape, values, count * sizeof *values);
}

unsigned char *st_bytes(const st_writer *writer, size_t *size) {
    const char *tensors = writer->header ? writer->header : "";
    char *header = writer->metadata
                       ? format("{\"__metadata__\":{%s}%s%s}", writer->metadata, *tensors ? "," : "", tensors)
                       : format("{%s}", tensors);
    unsigned char *bytes = st_raw(header, writer->data_bytes, size);
    if (writer->data_bytes) {
        memcpy(bytes + *size - writer->data_bytes, writer->data, writer->data_bytes);
    }
    free(header);
    return bytes;
}

unsigned char *st_raw(const char *header, size_t data, size_t *size) {
    size_t length = strlen(header);
    *size = 8 + length + data;
    unsigned char *bytes = must(calloc(1, *size));
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)((uint64_t)length >> (8 * i) & 255u);
    }
    memcpy(bytes + 8, header, length);
    return bytes;
}

void st_write_bytes(const char *path, const void *bytes, size_t size) {
    FILE *file = must(fopen(path, "wb"));
    if ((size && fwrite(bytes, 1, size, file) != size) || fclose(file) != 0) {
        abort();
    }
}

void st_write(const st_writer *writer, const char *path) {
    size_t size;
    unsigned char *bytes = st_bytes(writer, &size);
    st_write_bytes(path, bytes, size);
    free(bytes);
}

char *st_path(const char *folder, const char *name) {
    return format("%s/%s", folder, name);
}

char *st_folder(void) {
    const char *base = getenv("TMPDIR");
    char *folder = st_path(base ? base : P_tmpdir, "qsa-test-XXXXXX");
    return must(mkdtemp(folder));
}

void st_remove_folder(char *folder) {
    DIR *entries = must(opendir(folder));
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            char *path = st_path(folder, entry->d_name);
            remove(path);
            free(path);
        }
    }
    closedir(entries);
    rmdir(folder);
    free(folder);
}
