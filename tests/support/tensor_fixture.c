/* SPDX-License-Identifier: MIT */
/* Folders and files for the tests of the safetensors reader. */
#define _XOPEN_SOURCE 700
#include "support/tensor_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

char *folder;

int make_folder(void **state) {
    (void)state;
    folder = st_folder();
    return 0;
}

int remove_folder(void **state) {
    (void)state;
    st_remove_folder(folder);
    return 0;
}

/* One line, not empty, within the buffer. */
void check_message(const qsa_error *error, qsa_status status) {
    assert_int_equal(error->status, status);
    size_t length = strnlen(error->message, sizeof error->message);
    assert_in_range(length, 1, sizeof error->message - 1);
    for (size_t i = 0; i < length; i++) {
        assert_true((unsigned char)error->message[i] >= 0x20);
    }
}

qsa_status open_bytes(const void *bytes, size_t size, qsa_tensors **tensors, qsa_error *error) {
    char *path = st_path(folder, "file.safetensors");
    st_write_bytes(path, bytes, size);
    qsa_status status = qsa_tensors_open(path, NULL, tensors, error);
    free(path);
    return status;
}

qsa_status open_named(const char *name, qsa_tensors **tensors, qsa_error *error) {
    char *path = st_path(folder, name);
    qsa_status status = qsa_tensors_open(path, NULL, tensors, error);
    free(path);
    return status;
}

void write_text(const char *name, const char *text) {
    char *path = st_path(folder, name);
    st_write_bytes(path, text, strlen(text));
    free(path);
}

void write_shard(const char *name, const char *tensor, const char *other, float value) {
    const float data[] = {value, value + 0.5f};
    char *path = st_path(folder, name);
    st_writer *writer = st_new();
    st_metadata(writer, "shard", name);
    st_add_f32(writer, tensor, 1, (const int64_t[]){2}, data);
    st_add_f32(writer, other, 1, (const int64_t[]){1}, data);
    st_write(writer, path);
    st_free(writer);
    free(path);
}

unsigned char *small_file(size_t *size) {
    st_writer *writer = st_new();
    const int64_t two[] = {2}, matrix[] = {2, 3};
    const unsigned char data[64] = {1, 2, 3};
    st_metadata(writer, "format", "pt");
    st_add(writer, "weight", "BF16", 2, matrix, data, 12);
    st_add(writer, "n\\u00e9", "F32", 1, two, data, 8);
    st_add(writer, "scalar", "I8", 0, NULL, data, 1);
    unsigned char *bytes = st_bytes(writer, size);
    st_free(writer);
    return bytes;
}
