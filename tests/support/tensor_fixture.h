/* SPDX-License-Identifier: MIT */
/* What the tests of the safetensors reader share: a folder for each test, and files in it. */
#ifndef QSA_TEST_TENSOR_FIXTURE_H
#define QSA_TEST_TENSOR_FIXTURE_H

#include <qsa/qsa.h>

#include "support/safetensors_writer.h"

/* The running test's folder. */
extern char *folder;
int make_folder(void **state);
int remove_folder(void **state);
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

/* That the error has the status and a message of one line. */
void check_message(const qsa_error *error, qsa_status status);

/* Opens a file of those bytes; a file of the folder. */
qsa_status open_bytes(const void *bytes, size_t size, qsa_tensors **tensors, qsa_error *error);
qsa_status open_named(const char *name, qsa_tensors **tensors, qsa_error *error);

void write_text(const char *name, const char *text);

/* A file with tensors {value, value + 0.5} and {value}, and its own name as metadata "shard". */
void write_shard(const char *name, const char *tensor, const char *other, float value);

/* A file of three tensors, 21 bytes of data: "weight" BF16 [2][3], "n\u00e9" F32 [2], "scalar" I8 []. From malloc. */
unsigned char *small_file(size_t *size);

/* An index with that weight_map. */
#define INDEX(lines)                                                                                                   \
    "{\"metadata\":{\"total_size\":24,\"x\":[1,{\"y\":[null,true,-1.5e+3]}]},\"weight_map\":{" lines "}}"

#endif
