/* SPDX-License-Identifier: MIT */
/* Right safetensors files, shards and folders are read; wrong requests and refused memory leave nothing behind. */
#define _XOPEN_SOURCE 700
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "support/counted.h"
#include "support/tensor_fixture.h"

/* ------------------------------------------------------------------------------------------ right files */

static void tensors_are_described(void **state) {
    (void)state;
    static const struct {
        const char *name, *dtype;
        int rank;
        int64_t shape[8];
        size_t bytes;
    } added[] = {
        {"z", "F64", 1, {3}, 24},   {"b.0", "F32", 2, {2, 2}, 16},  {"b", "BOOL", 0, {0}, 1},
        {"c", "C64", 1, {1}, 8},    {"empty", "F32", 2, {0, 5}, 0}, {"eight", "U8", 8, {1, 1, 1, 2, 1, 1, 1, 2}, 4},
        {"f4", "F4", 1, {4}, 2},    {"f6", "F6_E3M2", 1, {4}, 3},   {"f8", "F8_E4M3", 1, {2}, 2},
        {"void", "F16", 1, {0}, 0}, {"i64", "I64", 1, {1}, 8},      {"u16", "U16", 1, {2}, 4},
    };
    static const char *const sorted[] = {"b",  "b.0", "c",   "eight", "empty", "f4",
                                         "f6", "f8",  "i64", "u16",   "void",  "z"};
    const int64_t count = sizeof added / sizeof *added;
    unsigned char data[32] = {0};
    char *path = st_path(folder, "all.safetensors");
    st_writer *writer = st_new();
    st_metadata(writer, "b", "\\u00fc\\ud83d\\ude00\\n\\\"");
    st_metadata(writer, "a", "first");
    for (int64_t i = 0; i < count; i++) {
        st_add(writer, added[i].name, added[i].dtype, added[i].rank, added[i].shape, data, added[i].bytes);
    }
    st_write(writer, path);
    st_free(writer);
    qsa_tensors *tensors;
    qsa_error error;
    assert_int_equal(qsa_tensors_open(path, NULL, &tensors, &error), QSA_OK);
    assert_int_equal(error.status, QSA_OK);
    assert_string_equal(error.message, "");
    assert_int_equal(qsa_tensors_count(tensors), count);
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    int64_t end = 0;
    for (int64_t i = 0; i < count; i++) {
        qsa_tensor_info info;
        assert_int_equal(qsa_tensors_get(tensors, i, &info, &error), QSA_OK);
        assert_string_equal(info.name, sorted[i]);
        assert_int_equal(qsa_tensors_find(tensors, added[i].name, &info, &error), QSA_OK);
        assert_string_equal(info.dtype, added[i].dtype);
        assert_int_equal(info.rank, added[i].rank);
        assert_memory_equal(info.shape, added[i].shape, sizeof info.shape);
        assert_int_equal(info.bytes, added[i].bytes);
        assert_string_equal(info.file, path);
        assert_true(!end || info.offset == end);
        end = info.offset + info.bytes;
    }
    assert_int_equal(end, about.st_size);
    assert_string_equal(qsa_tensors_metadata(tensors, "a"), "first");
    assert_string_equal(qsa_tensors_metadata(tensors, "b"), "\xc3\xbc\xf0\x9f\x98\x80\n\"");
    assert_null(qsa_tensors_metadata(tensors, "c"));
    qsa_tensors_close(tensors);
    free(path);
}

static void values_are_read(void **state) {
    (void)state;
    static const uint16_t half[] = {0x0000, 0x8000, 0x0001, 0x03ff, 0x0400, 0x3c00, 0x7bff, 0x7c00, 0xfc00, 0xc500};
    static const double half_value[] = {0, 0, 0x1p-24, 0x3ffp-24, 0x1p-14, 1, 65504, HUGE_VAL, -HUGE_VAL, -5};
    static const uint16_t brain[] = {0x0000, 0x8000, 0x0001, 0x3f80, 0xc2f7, 0x7f80};
    static const double brain_value[] = {0, 0, 0x1p-133, 1, -123.5, HUGE_VAL};
    static const float single[] = {0.1f, -3e38f, 0x1p-149f};
    static const int32_t whole[] = {0, -1, INT32_MIN, INT32_MAX, 2051};
    static float many[20000], back[20000];
    for (int i = 0; i < 20000; i++) {
        many[i] = (float)i * 0.37f - 1000.0f;
    }
    st_writer *writer = st_new();
    st_add(writer, "half", "F16", 1, (const int64_t[]){10}, half, sizeof half);
    st_add(writer, "brain", "BF16", 1, (const int64_t[]){6}, brain, sizeof brain);
    st_add(writer, "single", "F32", 2, (const int64_t[]){1, 3}, single, sizeof single);
    st_add(writer, "whole", "I32", 1, (const int64_t[]){5}, whole, sizeof whole);
    st_add_f32(writer, "many", 2, (const int64_t[]){100, 200}, many);
    st_add(writer, "none", "F32", 1, (const int64_t[]){0}, NULL, 0);
    size_t size;
    unsigned char *bytes = st_bytes(writer, &size), raw[20];
    st_free(writer);
    qsa_tensors *tensors;
    qsa_error error;
    assert_int_equal(open_bytes(bytes, size, &tensors, &error), QSA_OK);
    free(bytes);
    float f[10];
    int32_t n[5];
    assert_int_equal(qsa_tensors_read_f32(tensors, "half", f, 10, &error), QSA_OK);
    for (int i = 0; i < 10; i++) {
        assert_true((double)f[i] == half_value[i] && !signbit(f[i]) == !(half[i] >> 15));
    }
    assert_int_equal(qsa_tensors_read_f32(tensors, "brain", f, 6, &error), QSA_OK);
    for (int i = 0; i < 6; i++) {
        assert_true((double)f[i] == brain_value[i] && !signbit(f[i]) == !(brain[i] >> 15));
    }
    assert_int_equal(qsa_tensors_read_f32(tensors, "single", f, 3, &error), QSA_OK);
    assert_memory_equal(f, single, sizeof single);
    assert_int_equal(qsa_tensors_read_i32(tensors, "whole", n, 5, &error), QSA_OK);
    assert_memory_equal(n, whole, sizeof whole);
    assert_int_equal(qsa_tensors_read_f32(tensors, "many", back, 20000, &error), QSA_OK);
    assert_memory_equal(back, many, sizeof many);
    assert_int_equal(qsa_tensors_read_bytes(tensors, "half", raw, 20, &error), QSA_OK);
    assert_memory_equal(raw, half, sizeof half);
    assert_int_equal(qsa_tensors_read_f32(tensors, "none", NULL, 0, &error), QSA_OK);
    qsa_tensors_close(tensors);
}

static void bad_requests_are_refused(void **state) {
    (void)state;
    size_t size;
    unsigned char *bytes = small_file(&size), data[64];
    qsa_tensors *tensors;
    qsa_tensor_info info;
    qsa_error error;
    float f[8];
    int32_t n[8];
    assert_int_equal(open_bytes(bytes, size, &tensors, &error), QSA_OK);
    free(bytes);
    const struct {
        qsa_status got, expected;
    } cases[] = {
        {qsa_tensors_get(tensors, -1, &info, &error), QSA_E_ARGUMENT},
        {qsa_tensors_get(tensors, 3, &info, &error), QSA_E_ARGUMENT},
        {qsa_tensors_get(tensors, 0, NULL, &error), QSA_E_ARGUMENT},
        {qsa_tensors_get(NULL, 0, &info, &error), QSA_E_ARGUMENT},
        {qsa_tensors_find(tensors, "weigh", &info, &error), QSA_E_ARGUMENT},
        {qsa_tensors_find(tensors, "weight2", &info, &error), QSA_E_ARGUMENT},
        {qsa_tensors_find(tensors, NULL, &info, &error), QSA_E_ARGUMENT},
        {qsa_tensors_find(tensors, "weight", NULL, &error), QSA_E_ARGUMENT},
        {qsa_tensors_find(NULL, "weight", &info, &error), QSA_E_ARGUMENT},
        {qsa_tensors_read_f32(tensors, "weight", f, 5, &error), QSA_E_ARGUMENT},
        {qsa_tensors_read_f32(tensors, "weight", f, -1, &error), QSA_E_ARGUMENT},
        {qsa_tensors_read_f32(tensors, "weight", NULL, 6, &error), QSA_E_ARGUMENT},
        {qsa_tensors_read_f32(tensors, "scalar", f, 1, &error), QSA_E_SHAPE},
        {qsa_tensors_read_f32(NULL, "weight", f, 6, &error), QSA_E_ARGUMENT},
        {qsa_tensors_read_i32(tensors, "n\xc3\xa9", n, 2, &error), QSA_E_SHAPE},
        {qsa_tensors_read_i32(tensors, "no\nsuch\xff", n, 2, &error), QSA_E_ARGUMENT},
        {qsa_tensors_read_bytes(tensors, "weight", data, 11, &error), QSA_E_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(cases[i].got, cases[i].expected);
    }
    assert_int_equal(qsa_tensors_read_bytes(tensors, "weight", data, 11, &error), QSA_E_ARGUMENT);
    check_message(&error, QSA_E_ARGUMENT);
    assert_non_null(strstr(error.message, "bytes is 11"));
    assert_int_equal(qsa_tensors_get(tensors, -1, &info, &error), QSA_E_ARGUMENT);
    assert_non_null(strstr(error.message, "i is -1"));
    assert_int_equal(qsa_tensors_read_i32(tensors, "no\nsuch\xff", n, 2, &error), QSA_E_ARGUMENT);
    check_message(&error, QSA_E_ARGUMENT);
    assert_non_null(strstr(error.message, "no?such?"));
    assert_int_equal(qsa_tensors_read_f32(tensors, "weight", f, 6, &error), QSA_OK);
    assert_null(qsa_tensors_metadata(tensors, NULL));
    assert_null(qsa_tensors_metadata(NULL, "format"));
    assert_string_equal(qsa_tensors_metadata(tensors, "format"), "pt");
    qsa_tensors_close(tensors);
    qsa_tensors_close(NULL);
    assert_int_equal(qsa_tensors_open(NULL, NULL, &tensors, &error), QSA_E_ARGUMENT);
    assert_int_equal(qsa_tensors_open("", NULL, &tensors, &error), QSA_E_ARGUMENT);
    assert_int_equal(qsa_tensors_open("x", NULL, NULL, &error), QSA_E_ARGUMENT);
}

static void what_is_no_file_is_refused(void **state) {
    (void)state;
    qsa_tensors *tensors;
    qsa_error error;
    assert_int_equal(open_named("missing.safetensors", &tensors, &error), QSA_E_IO);
    assert_non_null(strstr(error.message, "missing.safetensors"));
    assert_int_equal(open_named("missing.index.json", &tensors, &error), QSA_E_IO);
    write_text("empty.safetensors", "");
    assert_int_equal(open_named("empty.safetensors", &tensors, &error), QSA_E_IO);
    char *path = st_path(folder, "folder.safetensors");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(qsa_tensors_open(path, NULL, &tensors, &error), QSA_E_IO);
    check_message(&error, QSA_E_IO);
    rmdir(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(qsa_tensors_open(path, NULL, &tensors, &error), QSA_E_IO);
    assert_non_null(strstr(error.message, "regular file"));
    remove(path);
    if (geteuid() != 0) { /* root may read everything */
        write_text("folder.safetensors", "x");
        assert_int_equal(chmod(path, 0), 0);
        assert_int_equal(qsa_tensors_open(path, NULL, &tensors, &error), QSA_E_IO);
    }
    free(path);
}

/* ------------------------------------------------------------------------------------------ shards, folders */

static void shards_are_one_checkpoint(void **state) {
    (void)state;
    write_shard("model-00001.safetensors", "b", "unmapped", 1.0f);
    write_shard("model-00002.safetensors", "a", "c", 2.0f);
    write_text(
        "model.safetensors.index.json",
        INDEX("\"a\":\"model-00002.safetensors\",\"b\":\"model-00001.safetensors\",\"c\":\"model-00002.safetensors\""));
    for (int as_folder = 0; as_folder < 2; as_folder++) {
        qsa_tensors *tensors;
        qsa_error error;
        qsa_status status = as_folder ? qsa_tensors_open(folder, NULL, &tensors, &error)
                                      : open_named("model.safetensors.index.json", &tensors, &error);
        assert_int_equal(status, QSA_OK);
        assert_int_equal(qsa_tensors_count(tensors), 3);
        static const char *const names[] = {"a", "b", "c"};
        for (int64_t i = 0; i < 3; i++) {
            qsa_tensor_info info;
            assert_int_equal(qsa_tensors_get(tensors, i, &info, &error), QSA_OK);
            assert_string_equal(info.name, names[i]);
            assert_non_null(strstr(info.file, i == 1 ? "/model-00001.safetensors" : "/model-00002.safetensors"));
        }
        float x[2];
        assert_int_equal(qsa_tensors_read_f32(tensors, "b", x, 2, &error), QSA_OK);
        assert_true(x[0] == 1.0f && x[1] == 1.5f);
        assert_int_equal(qsa_tensors_read_f32(tensors, "a", x, 2, &error), QSA_OK);
        assert_true(x[0] == 2.0f && x[1] == 2.5f);
        assert_int_equal(qsa_tensors_read_f32(tensors, "c", x, 1, &error), QSA_OK);
        assert_true(x[0] == 2.0f);
        assert_int_equal(qsa_tensors_read_f32(tensors, "unmapped", x, 1, &error), QSA_E_ARGUMENT);
        assert_string_equal(qsa_tensors_metadata(tensors, "shard"), "model-00001.safetensors");
        qsa_tensors_close(tensors);
    }
}

static void folders_are_searched(void **state) {
    (void)state;
    qsa_tensors *tensors;
    qsa_error error;
    assert_int_equal(qsa_tensors_open(folder, NULL, &tensors, &error), QSA_E_IO);
    write_shard("only.safetensors", "one", "x", 1.0f);
    assert_int_equal(qsa_tensors_open(folder, NULL, &tensors, &error), QSA_OK);
    qsa_tensors_close(tensors);
    write_shard("other.safetensors", "two", "x", 1.0f);
    assert_int_equal(qsa_tensors_open(folder, NULL, &tensors, &error), QSA_E_ARGUMENT);
    check_message(&error, QSA_E_ARGUMENT);
    write_shard("model.safetensors", "three", "x", 1.0f);
    qsa_tensor_info info;
    assert_int_equal(qsa_tensors_open(folder, NULL, &tensors, &error), QSA_OK);
    assert_int_equal(qsa_tensors_find(tensors, "three", &info, &error), QSA_OK);
    qsa_tensors_close(tensors);
    write_text("model.safetensors.index.json", INDEX("\"two\":\"other.safetensors\""));
    assert_int_equal(qsa_tensors_open(folder, NULL, &tensors, &error), QSA_OK);
    assert_int_equal(qsa_tensors_find(tensors, "two", &info, &error), QSA_OK);
    qsa_tensors_close(tensors);
}

/* ------------------------------------------------------------------------------------------ memory */

static void refused_memory_leaves_nothing(void **state) {
    (void)state;
    char text[4096] = "{\"weight_map\":{";
    for (int i = 0; i < 20; i++) { /* more than a list holds before it grows */
        char shard[32], tensor[32];
        snprintf(shard, sizeof shard, "s%02d.safetensors", i);
        snprintf(tensor, sizeof tensor, "t%02d", i);
        write_shard(shard, tensor, "other", 1.0f);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s\"%s\":\"%s\"", i ? "," : "", tensor, shard);
    }
    strcat(text, "}}");
    write_text("model.safetensors.index.json", text);
    int64_t needed = 0;
    for (int64_t n = 1; !needed; n++) {
        counter c = {0, n, 0};
        qsa_allocator allocator = counted(&c);
        qsa_tensors *tensors;
        qsa_error error;
        qsa_status status = qsa_tensors_open(folder, &allocator, &tensors, &error);
        if (status == QSA_OK) {
            needed = n;
            assert_true(c.bytes > 0);
            assert_int_equal(qsa_tensors_count(tensors), 20);
            qsa_tensors_close(tensors);
        } else {
            check_message(&error, QSA_E_MEMORY);
        }
        assert_int_equal(c.bytes, 0);
    }
    assert_true(needed > 10);
    counter unused = {0, 0, 0};
    qsa_allocator half = counted(&unused);
    half.release = NULL;
    qsa_tensors *tensors;
    assert_int_equal(qsa_tensors_open(folder, &half, &tensors, NULL), QSA_E_ARGUMENT);
}

/* Thousands of tensors in falling order of name: found, sorted, and lists grow. */
static void many_tensors_are_found(void **state) {
    (void)state;
    enum { MANY = 3000 };
    char *header = malloc(MANY * 80), *to = header;
    for (int i = 0; i < MANY; i++) {
        to += sprintf(to, "%c\"t%05d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}", i ? ',' : '{',
                      MANY - 1 - i, i, i + 1);
    }
    strcpy(to, "}");
    size_t size;
    unsigned char *bytes = st_raw(header, MANY, &size);
    for (int i = 0; i < MANY; i++) {
        bytes[size - MANY + (size_t)i] = (unsigned char)(i % 251);
    }
    qsa_tensors *tensors;
    counter c = {0, 0, 0};
    qsa_allocator allocator = counted(&c);
    char *path = st_path(folder, "many.safetensors");
    st_write_bytes(path, bytes, size);
    assert_int_equal(qsa_tensors_open(path, &allocator, &tensors, NULL), QSA_OK);
    for (int i = 0; i < MANY; i++) {
        char name[16];
        unsigned char value;
        qsa_tensor_info info;
        sprintf(name, "t%05d", i);
        assert_int_equal(qsa_tensors_get(tensors, i, &info, NULL), QSA_OK);
        assert_string_equal(info.name, name);
        assert_int_equal(qsa_tensors_read_bytes(tensors, name, &value, 1, NULL), QSA_OK);
        assert_int_equal(value, (MANY - 1 - i) % 251);
    }
    qsa_tensors_close(tensors);
    assert_int_equal(c.bytes, 0);
    free(path);
    free(bytes);
    free(header);
}

/* ------------------------------------------------------------------------------------------ golden file */

static void the_golden_file_is_read(void **state) {
    (void)state;
    qsa_tensors *tensors;
    qsa_tensor_info info;
    qsa_error error;
    if (qsa_tensors_open(QSA_DATA_DIR "/qwen4exp_layer_f32.safetensors", NULL, &tensors, &error)) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(qsa_tensors_count(tensors), 15);
    assert_string_equal(qsa_tensors_metadata(tensors, "rope_theta"), "1e7");
    assert_int_equal(qsa_tensors_find(tensors, "ids", &info, &error), QSA_OK);
    assert_string_equal(info.dtype, "I32");
    assert_int_equal(info.rank, 2);
    assert_int_equal(info.shape[1], 2051);
    int32_t rows[40];
    assert_int_equal(qsa_tensors_read_i32(tensors, "rows", rows, 40, &error), QSA_OK);
    assert_int_equal(rows[0], 0);
    assert_int_equal(rows[39], 8199);
    qsa_tensors_close(tensors);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(tensors_are_described),          IN_FOLDER(values_are_read),
        IN_FOLDER(bad_requests_are_refused),       IN_FOLDER(what_is_no_file_is_refused),
        IN_FOLDER(shards_are_one_checkpoint),      IN_FOLDER(folders_are_searched),
        IN_FOLDER(refused_memory_leaves_nothing),  IN_FOLDER(many_tensors_are_found),
        cmocka_unit_test(the_golden_file_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
