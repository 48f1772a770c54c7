/* SPDX-License-Identifier: MIT */
/* Wrong safetensors files and indexes are refused with the place and the reason, whatever is wrong; nothing crashes. */
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

#include "layer/json.h"
#include "support/tensor_fixture.h"

/* ------------------------------------------------------------------------------------------ malformed files */

#define T(shape, from, to) "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"

/* Headers in order of what is wrong; `reason` must occur in the message. */
static const struct malformed {
    const char *header;
    size_t data;
    const char *reason;
} malformed[] = {
    {"", 0, "too early"},
    {"   ", 0, "expected '{'"},
    {" {}", 0, "expected '{'"},
    {"[]", 0, "expected '{'"},
    {"{", 0, "too early"},
    {"{}x", 0, "behind the end"},
    {"{\"a\"", 4, "too early"},
    {"{\"a\":", 4, "too early"},
    {"{\"a\" " T("[1]", "0", "4") "}", 4, "expected ':'"},
    {"{a:" T("[1]", "0", "4") "}", 4, "expected a string"},
    {"{\"a\":" T("[1]", "0", "4"), 4, "too early"},
    {"{\"a\":" T("[1]", "0", "4") ",}", 4, "expected a string"},
    {"{\"a\":" T("[1,]", "0", "4") "}", 4, "expected an integer"},
    {"{\"a\":" T("[1]", "0", "4") " \"b\":" T("[0]", "4", "4") "}", 4, "expected ',' or '}'"},
    {"{\"a\":" T("[1 1]", "0", "4") "}", 4, "expected ',' or ']'"},
    {"{\"a\":" T("[1]", "0", "4") ",\"a\":" T("[1]", "4", "8") "}", 8, "occurs twice"},
    {"{\"a\":" T("[1]", "0", "4") ",\"\\u0061\":" T("[1]", "4", "8") "}", 8, "occurs twice"},
    {"{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown dtype"},
    {"{\"a\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown dtype"},
    {"{\"a\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "expected a string"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
     "member that occurs twice"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"strides\":[1]}}", 4, "unknown member"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "without dtype, shape or data_offsets"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "without dtype, shape or data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "without dtype, shape or data_offsets"},
    {"{\"a\":{}}", 0, "without dtype, shape or data_offsets"},
    {"{\"a\":[]}", 0, "expected an object"},
    {"{\"a\":null}", 0, "expected an object"},
    {"{\"a\":" T("1", "0", "4") "}", 4, "expected an array"},
    {"{\"a\":" T("[\"1\"]", "0", "4") "}", 4, "expected an integer"},
    {"{\"a\":" T("[-1]", "0", "4") "}", 4, "expected an integer"},
    {"{\"a\":" T("[1.0]", "0", "4") "}", 4, "plain digits"},
    {"{\"a\":" T("[1e0]", "0", "4") "}", 4, "plain digits"},
    {"{\"a\":" T("[01]", "0", "4") "}", 4, "expected ',' or ']'"},
    {"{\"a\":" T("[[1]]", "0", "4") "}", 4, "expected an integer"},
    {"{\"a\":" T("[9223372036854775808]", "0", "4") "}", 4, "above 2^63 - 1"},
    {"{\"a\":" T("[99999999999999999999999999]", "0", "4") "}", 4, "above 2^63 - 1"},
    {"{\"a\":" T("[4294967296,4294967296]", "0", "0") "}", 0, "too many elements"},
    {"{\"a\":" T("[4294967296,1073741824]", "0", "0") "}", 0, "too many elements"},
    {"{\"a\":" T("[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "rank above 8"},
    {"{\"a\":" T("[2]", "0", "4") "}", 4, "4 bytes"},
    {"{\"a\":" T("[]", "0", "8") "}", 8, "8 bytes"},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "12 bits"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "two data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 4, "two data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[]}}", 4, "two data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":{}}}", 4, "expected an array"},
    {"{\"a\":" T("[1]", "-4", "0") "}", 4, "expected an integer"},
    {"{\"a\":" T("[1]", "4", "0") "}", 4, "expected ascending"},
    {"{\"a\":" T("[1]", "0", "4") "}", 3, "within the 3 bytes"},
    {"{\"a\":" T("[1]", "9223372036854775803", "9223372036854775807") "}", 4, "within the 4 bytes"},
    {"{\"a\":" T("[1]", "4", "8") "}", 8, "a hole"},
    {"{\"a\":" T("[1]", "0", "4") ",\"b\":" T("[1]", "8", "12") "}", 12, "a hole"},
    {"{\"a\":" T("[2]", "0", "8") ",\"b\":" T("[1]", "4", "8") "}", 8, "overlap"},
    {"{\"a\":" T("[1]", "0", "4") ",\"b\":" T("[1]", "0", "4") "}", 4, "overlap"},
    {"{\"a\":" T("[1]", "0", "4") ",\"b\":" T("[0]", "2", "2") "}", 4, "overlap"},
    {"{\"a\":" T("[1]", "0", "4") "}", 5, "belong to no tensor"},
    {"{}", 1, "belong to no tensor"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "expected a string"},
    {"{\"__metadata__\":[]}", 0, "expected an object"},
    {"{\"__metadata__\":{\"a\":\"1\",\"b\":\"2\",\"a\":\"3\"}}", 0, "occurs twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ occurs twice"},
    {"{\"a\n\":" T("[1]", "0", "4") "}", 4, "control character"},
    {"{\"\\x\":" T("[1]", "0", "4") "}", 4, "an escape"},
    {"{\"\\u00g0\":" T("[1]", "0", "4") "}", 4, "hexadecimal"},
    {"{\"\\u0000\":" T("[1]", "0", "4") "}", 4, "\\u0000"},
    {"{\"\\ud800\":" T("[1]", "0", "4") "}", 4, "surrogate"},
    {"{\"\\ud800\\u0041\":" T("[1]", "0", "4") "}", 4, "surrogate"},
    {"{\"\\udc00\":" T("[1]", "0", "4") "}", 4, "surrogate"},
    {"{\"\x80\":" T("[1]", "0", "4") "}", 4, "not UTF-8"},
    {"{\"\xc0\xaf\":" T("[1]", "0", "4") "}", 4, "not UTF-8"},
    {"{\"\xe0\x80\xaf\":" T("[1]", "0", "4") "}", 4, "not UTF-8"},
    {"{\"\xed\xa0\x80\":" T("[1]", "0", "4") "}", 4, "not UTF-8"},
    {"{\"\xf4\x90\x80\x80\":" T("[1]", "0", "4") "}", 4, "not UTF-8"},
    {"{\"\xe2\x82", 0, "not UTF-8"},
    {"{\"abc", 0, "inside a string"},
    {"{\"abc\\", 0, "an escape"},
};

static void malformed_headers_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        size_t size;
        unsigned char *bytes = st_raw(malformed[i].header, malformed[i].data, &size);
        qsa_tensors *tensors = (qsa_tensors *)&size;
        qsa_error error = {0};
        qsa_status status = open_bytes(bytes, size, &tensors, &error);
        if (status != QSA_E_FORMAT || !strstr(error.message, malformed[i].reason) || !strstr(error.message, "byte ")) {
            fail_msg("header %s: status %s, message %s, expected %s", malformed[i].header, qsa_status_name(status),
                     error.message, malformed[i].reason);
        }
        check_message(&error, QSA_E_FORMAT);
        assert_null(tensors);
        assert_int_equal(open_bytes(bytes, size, &tensors, NULL), QSA_E_FORMAT);
        free(bytes);
    }
}

static void bad_lengths_are_refused(void **state) {
    (void)state;
    static const struct {
        uint64_t length;
        size_t size;
        const char *reason;
    } cases[] = {
        {2, 1, "byte 1: the file ends inside the header's length"},
        {2, 7, "byte 7: the file ends"},
        {2, 8, "length is 2"},
        {3, 10, "length is 3"},
        {100000001, 10, "length is 100000001"},
        {UINT64_MAX, 10, "length is 18446744073709551615"},
        {UINT64_C(1) << 63, 10, "length is 9223372036854775808"},
        {UINT64_MAX - 7, 10, "length is 18446744073709551608"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char bytes[16] = {0, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
        for (int b = 0; b < 8; b++) {
            bytes[b] = (unsigned char)(cases[i].length >> (8 * b) & 255u);
        }
        qsa_tensors *tensors;
        qsa_error error;
        assert_int_equal(open_bytes(bytes, cases[i].size, &tensors, &error), QSA_E_FORMAT);
        check_message(&error, QSA_E_FORMAT);
        assert_non_null(strstr(error.message, cases[i].reason));
    }
    /* a file that is as long as it says, but too long for a header: sparse, so that it costs nothing */
    char *path = st_path(folder, "long.safetensors");
    unsigned char length[8] = {0x01, 0xe1, 0xf5, 0x05};
    st_write_bytes(path, length, sizeof length);
    assert_int_equal(truncate(path, 100000009), 0);
    qsa_tensors *tensors;
    qsa_error error;
    assert_int_equal(qsa_tensors_open(path, NULL, &tensors, &error), QSA_E_FORMAT);
    assert_non_null(strstr(error.message, "at most 100000000"));
    free(path);
}

static void every_truncation_is_refused(void **state) {
    (void)state;
    size_t size;
    unsigned char *bytes = small_file(&size);
    qsa_tensors *tensors;
    qsa_error error;
    assert_int_equal(open_bytes(bytes, size, &tensors, &error), QSA_OK);
    assert_int_equal(qsa_tensors_count(tensors), 3);
    qsa_tensors_close(tensors);
    for (size_t cut = 0; cut < size; cut++) {
        qsa_status expected = cut ? QSA_E_FORMAT : QSA_E_IO;
        assert_int_equal(open_bytes(bytes, cut, &tensors, &error), expected);
        check_message(&error, expected);
        assert_null(tensors);
    }
    free(bytes);
}

/* A flipped bit may leave a header that is right (another letter in a name); everything it describes must then be
 * readable. */
static void every_flipped_bit_is_survived(void **state) {
    (void)state;
    size_t size, refused = 0;
    unsigned char *bytes = small_file(&size), data[64];
    for (size_t bit = 0; bit < (size - 21) * 8; bit++) {
        qsa_tensors *tensors;
        qsa_error error;
        bytes[bit / 8] = (unsigned char)(bytes[bit / 8] ^ 1u << bit % 8);
        qsa_status status = open_bytes(bytes, size, &tensors, &error);
        bytes[bit / 8] = (unsigned char)(bytes[bit / 8] ^ 1u << bit % 8);
        if (status) {
            check_message(&error, QSA_E_FORMAT);
            refused++;
            continue;
        }
        for (int64_t i = 0; i < qsa_tensors_count(tensors); i++) {
            qsa_tensor_info info;
            assert_int_equal(qsa_tensors_get(tensors, i, &info, NULL), QSA_OK);
            assert_in_range(info.bytes, 0, 21);
            assert_int_equal(qsa_tensors_read_bytes(tensors, info.name, data, info.bytes, NULL), QSA_OK);
        }
        qsa_tensors_close(tensors);
    }
    assert_true(refused > 8 * 64); /* the length and the punctuation alone */
    free(bytes);
}

/* ------------------------------------------------------------------------------------------ indexes */

static void bad_indexes_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text;
        qsa_status status;
        const char *reason;
    } cases[] = {
        {INDEX("\"a\":\"s.safetensors\",\"gone\":\"s.safetensors\""), QSA_E_FORMAT, "does not hold it"},
        {INDEX("\"a\":\"gone.safetensors\""), QSA_E_IO, "gone.safetensors"},
        {INDEX("\"a\":\"broken.safetensors\""), QSA_E_FORMAT, "broken.safetensors"},
        {INDEX("\"a\":\"s.safetensors\",\"a\":\"s.safetensors\""), QSA_E_FORMAT, "occurs twice"},
        {INDEX("\"a\":\"../s.safetensors\""), QSA_E_FORMAT, "in the index's folder"},
        {INDEX("\"a\":\"/s.safetensors\""), QSA_E_FORMAT, "in the index's folder"},
        {INDEX("\"a\":\"sub/s.safetensors\""), QSA_E_FORMAT, "in the index's folder"},
        {INDEX("\"a\":\"..\""), QSA_E_FORMAT, "in the index's folder"},
        {INDEX("\"a\":\".\""), QSA_E_FORMAT, "in the index's folder"},
        {INDEX("\"a\":\"\""), QSA_E_FORMAT, "in the index's folder"},
        {INDEX("\"a\":\"\\u002e\\u002e\\u002fs.safetensors\""), QSA_E_FORMAT, "in the index's folder"},
        {INDEX("\"a\":1"), QSA_E_FORMAT, "expected a string"},
        {INDEX(""), QSA_E_FORMAT, "a weight_map with tensors"},
        {"{}", QSA_E_FORMAT, "a weight_map with tensors"},
        {"[]", QSA_E_FORMAT, "expected an object"},
        {"{\"weight_map\":[]}", QSA_E_FORMAT, "expected an object"},
        {"{\"weight_map\":{\"a\":\"s.safetensors\"},\"weight_map\":{}}", QSA_E_FORMAT, "weight_map occurs twice"},
        {"{\"weight_map\":{\"a\":\"s.safetensors\"}", QSA_E_FORMAT, "too early"},
        {"{\"weight_map\":{\"a\":\"s.safetensors\"}}{", QSA_E_FORMAT, "behind the end"},
        {"{\"metadata\":nul}", QSA_E_FORMAT, "expected a value"},
        {"{\"metadata\":01}", QSA_E_FORMAT, "expected ','"},
        {"{\"metadata\":-}", QSA_E_FORMAT, "expected a digit"},
        {"{\"metadata\":1.}", QSA_E_FORMAT, "expected a digit"},
        {"{\"metadata\":1e}", QSA_E_FORMAT, "expected a digit"},
    };
    write_shard("s.safetensors", "a", "b", 1.0f);
    write_text("broken.safetensors", "broken file");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qsa_tensors *tensors;
        qsa_error error;
        write_text("model.safetensors.index.json", cases[i].text);
        qsa_status status = open_named("model.safetensors.index.json", &tensors, &error);
        if (status != cases[i].status || !strstr(error.message, cases[i].reason)) {
            fail_msg("index %s: status %s, message %s", cases[i].text, qsa_status_name(status), error.message);
        }
        check_message(&error, cases[i].status);
        assert_null(tensors);
    }
}

/* ------------------------------------------------------------------------------------------ JSON */

static void nesting_is_limited(void **state) {
    (void)state;
    for (int depth = 1; depth <= 200; depth++) {
        char text[401];
        for (int i = 0; i < depth; i++) {
            text[i] = '[';
            text[2 * depth - 1 - i] = ']';
        }
        qsa_json j = qsa_json_begin(text, 2 * depth);
        int read = qsa_json_skip(&j) && qsa_json_end(&j);
        assert_int_equal(read, depth <= QSA_JSON_DEPTH);
        if (!read) {
            assert_string_equal(j.reason, "nested too deep");
            assert_int_equal(j.at, QSA_JSON_DEPTH);
        }
    }
}

static void strings_are_decoded(void **state) {
    (void)state;
    char text[] = "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00E4\\u20ac\\uD834\\uDD1E\xc3\xa4\"";
    qsa_json j = qsa_json_begin(text, (int64_t)strlen(text));
    assert_string_equal(qsa_json_string(&j), "\"\\/\b\f\n\r\tA\xc3\xa4\xe2\x82\xac\xf0\x9d\x84\x9e\xc3\xa4");
    assert_true(qsa_json_end(&j));
}

/* No byte behind the text is read, however it ends: each prefix lies in memory of exactly its size. */
static void every_prefix_ends_cleanly(void **state) {
    (void)state;
    static const char whole[] =
        "{\"a\":[1,-2.5e+3,true,false,null,\"\\u00e9\\ud834\\udd1e\"],\"b\":{\"c\":{}},\"\xe2\x82\xac\":[]}";
    for (size_t length = 0; length < sizeof whole; length++) {
        char *text = malloc(length ? length : 1);
        memcpy(text, whole, length);
        qsa_json j = qsa_json_begin(text, (int64_t)length);
        int read = qsa_json_skip(&j) && qsa_json_end(&j);
        assert_int_equal(read, length == sizeof whole - 1);
        assert_true(read || j.reason);
        assert_in_range(j.at, 0, length);
        free(text);
        if (length == sizeof whole - 1) {
            break;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(malformed_headers_are_refused), IN_FOLDER(bad_lengths_are_refused),
        IN_FOLDER(every_truncation_is_refused),   IN_FOLDER(every_flipped_bit_is_survived),
        IN_FOLDER(bad_indexes_are_refused),       cmocka_unit_test(nesting_is_limited),
        cmocka_unit_test(strings_are_decoded),    cmocka_unit_test(every_prefix_ends_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
