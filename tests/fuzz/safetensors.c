/* SPDX-License-Identifier: MIT */
/* Any bytes as a safetensors file, or as the index of a sharded checkpoint: opened, asked for everything, read, made a layer of. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <qsa/qsa.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { READ_MOST = 1 << 16 };

static void fail(const char *what, const char *message) {
    fprintf(stderr, "%s: %s\n", what, message);
    abort();
}

/* Failures say why in one line, successes say nothing. */
static void check(qsa_status status, const qsa_error *error) {
    int empty = !error->message[0];
    if (error->status != status || empty != (status == QSA_OK) || strchr(error->message, '\n')) {
        fail("status and message differ", error->message);
    }
}

static void read_tensor(const qsa_tensors *tensors, const qsa_tensor_info *info) {
    static union {
        float f32[READ_MOST];
        int32_t i32[READ_MOST];
        char bytes[READ_MOST];
    } out;
    qsa_error error;
    int64_t count = 1;
    for (int64_t d = 0; d < info->rank; d++) {
        count = info->shape[d] && count > READ_MOST / info->shape[d] ? READ_MOST + 1 : count * info->shape[d];
    }
    if (info->bytes < 0 || info->offset < 8 || info->rank < 0 || info->rank > 8) {
        fail(info->name, "impossible numbers");
    }
    if (info->bytes <= READ_MOST) {
        qsa_status status = qsa_tensors_read_bytes(tensors, info->name, out.bytes, info->bytes, &error);
        check(status, &error);
        if (status) {
            fail(info->name, error.message); /* the file is there, and what it says was checked */
        }
    }
    if (count <= READ_MOST) {
        check(qsa_tensors_read_f32(tensors, info->name, out.f32, count, &error), &error);
        check(qsa_tensors_read_i32(tensors, info->name, out.i32, count, &error), &error);
    }
}

static void ask_everything(const qsa_tensors *tensors) {
    qsa_error error;
    qsa_tensor_info info, found;
    const char *before = "";
    int64_t count = qsa_tensors_count(tensors);
    for (int64_t i = 0; i < count; i++) {
        qsa_status status = qsa_tensors_get(tensors, i, &info, &error);
        check(status, &error);
        if (status || (i && strcmp(before, info.name) >= 0)) {
            fail("tensor", "is missing or out of order");
        }
        before = info.name;
        status = qsa_tensors_find(tensors, info.name, &found, &error);
        if (status || found.offset != info.offset || found.bytes != info.bytes || found.rank != info.rank) {
            fail(info.name, "is found elsewhere");
        }
        read_tensor(tensors, &info);
    }
    if (!qsa_tensors_get(tensors, count, &info, &error) || !qsa_tensors_get(tensors, -1, &info, &error)) {
        fail("tensor", "there is one too many");
    }
    const char *format = qsa_tensors_metadata(tensors, "format");
    if (format && strlen(format) > READ_MOST * 16) {
        fail("metadata", "endless");
    }
}

static qsa_context *context;

static void close_context(void) {
    qsa_close(context);
}

static void make_layer(const qsa_tensors *tensors) {
    qsa_error error;
    qsa_layer *layer = NULL;
    if (!context) {
        QSA_INIT(qsa_options, options);
        options.threads = 1;
        if (qsa_open(&options, &context, &error)) {
            fail("open", error.message);
        }
        atexit(close_context);
    }
    qsa_status status = qsa_layer_load(context, tensors, NULL, &layer, &error);
    check(status, &error);
    if (!status && qsa_shape_check(qsa_layer_shape(layer), &error)) {
        fail("a layer's shape", error.message);
    }
    qsa_layer_destroy(layer);
}

/* ------------------------------------------------------------------------------------------------ files */

/* Of two tensors, "a" and "b", F32 [1] each. */
static const char shard[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                            "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}abcdefgh";

static char folder[64], index_path[128], shard_path[128];

static void remove_folder(void) {
    remove(index_path);
    remove(shard_path);
    remove(folder);
}

static void write_file(const char *path, const void *head, size_t head_bytes, const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(head, 1, head_bytes, file) != head_bytes || fwrite(data, 1, bytes, file) != bytes || fclose(file)) {
        fail(path, "cannot be written");
    }
}

static void make_folder(void) {
    if (!folder[0]) {
        uint64_t length = sizeof shard - 1 - 8;
        unsigned char head[8];
        for (int i = 0; i < 8; i++) {
            head[i] = (unsigned char)(length >> 8 * i);
        }
        snprintf(folder, sizeof folder, "/tmp/qsa-fuzz-XXXXXX");
        if (!mkdtemp(folder)) {
            fail(folder, "cannot be made");
        }
        snprintf(index_path, sizeof index_path, "%s/model.safetensors.index.json", folder);
        snprintf(shard_path, sizeof shard_path, "%s/a.safetensors", folder);
        write_file(shard_path, head, sizeof head, shard, sizeof shard - 1);
        atexit(remove_folder);
    }
}

static void open_path(const char *path) {
    qsa_error error;
    qsa_tensors *tensors = NULL;
    qsa_status status = qsa_tensors_open(path, NULL, &tensors, &error);
    check(status, &error);
    if (status) {
        if (tensors) {
            fail(path, "tensors came of a failure");
        }
        return;
    }
    ask_everything(tensors);
    make_layer(tensors);
    qsa_tensors_close(tensors);
}

/* Input that begins with '{' is an index: a safetensors file that does would have a header of 8 GB. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size && data[0] == '{') {
        make_folder();
        write_file(index_path, data, size, data, 0);
        open_path(index_path);
        return 0;
    }
    static int descriptor = -1;
    char path[64];
    if (descriptor < 0 && (descriptor = memfd_create("qsa-fuzz", MFD_CLOEXEC)) < 0) {
        fail("memfd", "cannot be made");
    }
    if (ftruncate(descriptor, 0) || pwrite(descriptor, data, size, 0) != (ssize_t)size) {
        fail("memfd", "cannot be written");
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    open_path(path);
    return 0;
}
