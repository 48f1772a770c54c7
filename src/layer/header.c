/* SPDX-License-Identifier: MIT */
/*
 * The header of a safetensors file: 8 bytes of length, then JSON that names each tensor's type, shape and place in the
 * data behind it. Nothing in it is believed: sizes are recomputed, and the tensors must cover the data without hole or
 * overlap.
 */
#include "layer/json.h"
#include "layer/tensors.h"
#include "runtime/file.h"
#include "runtime/memory.h"
#include "runtime/status.h"

#include <stdio.h>
#include <string.h>

enum { LENGTH_BYTES = 8 };

static const qsa_dtype dtypes[] = {
    {"F32", 32},    {"BF16", 16},   {"F16", 16},    {"F64", 64},    {"I8", 8},      {"U8", 8},   {"I16", 16},
    {"U16", 16},    {"I32", 32},    {"U32", 32},    {"I64", 64},    {"U64", 64},    {"BOOL", 8}, {"C64", 64},
    {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
};

static qsa_status refuse(const qsa_tensor_file *file, int64_t at, const char *what, qsa_error *error) {
    return qsa_fail(error, QSA_E_FORMAT, "%s: byte %lld: %s", qsa_show(file->path).text, (long long)at, what);
}

static qsa_status refuse_tensor(const qsa_tensor_file *file, const qsa_tensor *tensor, const char *what,
                                qsa_error *error) {
    return qsa_fail(error, QSA_E_FORMAT, "%s: byte %lld: tensor \"%s\": %s", qsa_show(file->path).text,
                    (long long)tensor->at, qsa_show(tensor->name).text, what);
}

static qsa_status no_memory(qsa_error *error) {
    return qsa_fail(error, QSA_E_MEMORY, "memory for a safetensors header was refused");
}

/* Where a decoded string began. */
static int64_t place_of(const qsa_json *j, const char *string) {
    return string - j->text - 1;
}

/* Which member of a tensor's description was read already. */
enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

static int which_member(const char *name) {
    static const char *const names[] = {"dtype", "shape", "data_offsets"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            return 1 << i;
        }
    }
    return 0;
}

static void read_dtype(qsa_json *j, qsa_tensor *tensor) {
    int64_t at = j->at;
    const char *name = qsa_json_string(j);
    for (size_t i = 0; name && i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            tensor->dtype = &dtypes[i];
            return;
        }
    }
    qsa_json_refuse(j, at, "an unknown dtype");
}

static void read_shape(qsa_json *j, qsa_tensor *tensor) {
    qsa_json_enter(j, '[');
    while (qsa_json_element(j)) {
        if (tensor->rank == QSA_RANK_LIMIT) {
            qsa_json_refuse(j, j->at, "a rank above 8");
            return;
        }
        qsa_json_count(j, &tensor->shape[tensor->rank++]);
    }
}

/* Two offsets into the data. */
static void read_offsets(qsa_json *j, int64_t offsets[2]) {
    int64_t count = 0;
    int64_t at = j->at;
    qsa_json_enter(j, '[');
    while (qsa_json_element(j)) {
        if (count == 2) {
            break;
        }
        qsa_json_count(j, &offsets[count++]);
    }
    if (!j->reason && (count != 2 || j->text[j->at - 1] != ']')) {
        qsa_json_refuse(j, at, "expected two data_offsets");
    }
}

/* The description of one tensor; offsets as they stand there. */
static void read_tensor(qsa_json *j, qsa_tensor *tensor, int64_t offsets[2]) {
    int seen = 0;
    const char *name;
    qsa_json_enter(j, '{');
    while (qsa_json_member(j, &name)) {
        int member = which_member(name);
        if (!member || seen & member) {
            qsa_json_refuse(j, place_of(j, name),
                            member ? "a member that occurs twice" : "an unknown member of a tensor");
            return;
        }
        seen |= member;
        if (member == HAS_DTYPE) {
            read_dtype(j, tensor);
        } else if (member == HAS_SHAPE) {
            read_shape(j, tensor);
        } else {
            read_offsets(j, offsets);
        }
    }
    if (seen != HAS_ALL) {
        qsa_json_refuse(j, place_of(j, tensor->name), "a tensor without dtype, shape or data_offsets");
    }
}

int64_t qsa_tensor_elements(const qsa_tensor *tensor) {
    int64_t elements = 1;
    for (int64_t i = 0; i < tensor->rank; i++) {
        elements = qsa_mul(elements, tensor->shape[i]);
    }
    return elements;
}

/* Places the tensor in its file, if its offsets are inside and its shape takes exactly those bytes. */
static qsa_status place(const qsa_tensor_file *file, qsa_tensor *tensor, const int64_t offsets[2], int64_t data,
                        qsa_error *error) {
    char what[160];
    if (offsets[0] > offsets[1] || offsets[1] > file->size - data) {
        snprintf(what, sizeof what,
                 "data_offsets are %lld, %lld: expected ascending ones within the %lld bytes of data",
                 (long long)offsets[0], (long long)offsets[1], (long long)(file->size - data));
        return refuse_tensor(file, tensor, what, error);
    }
    int64_t bits = qsa_mul(qsa_tensor_elements(tensor), tensor->dtype->bits);
    if (bits < 0) {
        return refuse_tensor(file, tensor, "its shape has too many elements", error);
    }
    tensor->begin = data + offsets[0];
    tensor->bytes = offsets[1] - offsets[0];
    if (bits % 8 || bits / 8 != tensor->bytes) {
        snprintf(what, sizeof what, "data_offsets give it %lld bytes: its shape and dtype take %lld bits",
                 (long long)tensor->bytes, (long long)bits);
        return refuse_tensor(file, tensor, what, error);
    }
    return QSA_OK;
}

static int by_place(const void *left, const void *right) {
    const qsa_tensor *a = left, *b = right;
    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

/* Every byte of the data belongs to exactly one tensor, and every name to one. */
static qsa_status check_cover(qsa_tensor_file *file, int64_t data, qsa_error *error) {
    qsa_tensor *tensors = file->tensors.items;
    int64_t count = file->tensors.count, end = data;
    qsa_list_sort(&file->tensors, sizeof *tensors, by_place);
    for (int64_t i = 0; i < count; i++) {
        if (tensors[i].begin != end) {
            return refuse_tensor(
                file, &tensors[i],
                tensors[i].begin < end ? "its data overlap another tensor's" : "a hole lies before its data", error);
        }
        end += tensors[i].bytes;
    }
    if (end != file->size) {
        return refuse(file, end, "data that belong to no tensor", error);
    }
    qsa_list_sort(&file->tensors, sizeof *tensors, qsa_by_name);
    const qsa_tensor *twice = qsa_list_repeated(&file->tensors, sizeof *tensors);
    return twice ? refuse_tensor(file, twice, "its name occurs twice", error) : QSA_OK;
}

static qsa_status read_metadata(const qsa_allocator *allocator, qsa_json *j, qsa_tensor_file *file, qsa_error *error) {
    const char *name;
    qsa_json_enter(j, '{');
    while (qsa_json_member(j, &name)) {
        const char *value = qsa_json_string(j);
        if (!value) {
            return QSA_OK;
        }
        qsa_metadata *pair = qsa_list_add(allocator, &file->metadata, sizeof *pair);
        if (!pair) {
            return no_memory(error);
        }
        *pair = (qsa_metadata){name, value};
    }
    qsa_list_sort(&file->metadata, sizeof(qsa_metadata), qsa_by_name);
    const qsa_metadata *twice = qsa_list_repeated(&file->metadata, sizeof *twice);
    if (twice) {
        qsa_json_refuse(j, place_of(j, twice->name), "a key of __metadata__ that occurs twice");
    }
    return QSA_OK;
}

static qsa_status read_members(const qsa_allocator *allocator, qsa_json *j, qsa_tensor_file *file, qsa_error *error) {
    int64_t data = LENGTH_BYTES + j->size;
    int described = 0;
    const char *name;
    qsa_status status = QSA_OK;
    if (j->size > 0 && j->text[0] != '{') {
        qsa_json_refuse(j, 0, "expected '{'");
    }
    qsa_json_enter(j, '{');
    while (qsa_json_member(j, &name)) {
        if (strcmp(name, "__metadata__") == 0) {
            if (described++) {
                qsa_json_refuse(j, place_of(j, name), "__metadata__ occurs twice");
            }
            status = read_metadata(allocator, j, file, error);
        } else {
            qsa_tensor *tensor = qsa_list_add(allocator, &file->tensors, sizeof *tensor);
            int64_t offsets[2] = {0, 0};
            if (!tensor) {
                return no_memory(error);
            }
            tensor->name = name;
            tensor->at = LENGTH_BYTES + place_of(j, name);
            read_tensor(j, tensor, offsets);
            status = j->reason ? QSA_OK : place(file, tensor, offsets, data, error);
        }
        if (status) {
            return status;
        }
    }
    if (!qsa_json_end(j)) {
        return refuse(file, LENGTH_BYTES + j->at, j->reason, error);
    }
    return QSA_OK;
}

qsa_status qsa_header_read(const qsa_allocator *allocator, qsa_tensor_file *file, qsa_error *error) {
    unsigned char prefix[LENGTH_BYTES];
    char what[160];
    uint64_t length = 0;
    qsa_status status = qsa_file_open(file->path, &file->descriptor, &file->size, error);
    if (status) {
        return status;
    }
    if (file->size < LENGTH_BYTES) {
        return refuse(file, file->size, "the file ends inside the header's length", error);
    }
    if ((status = qsa_file_read(file->path, file->descriptor, prefix, LENGTH_BYTES, 0, error))) {
        return status;
    }
    for (int i = LENGTH_BYTES; i-- > 0;) {
        length = length << 8 | prefix[i];
    }
    if (length > QSA_HEADER_LIMIT || (int64_t)length > file->size - LENGTH_BYTES) {
        snprintf(what, sizeof what,
                 "the header's length is %llu: expected at most %d, and within the file of %lld bytes",
                 (unsigned long long)length, QSA_HEADER_LIMIT, (long long)file->size);
        return refuse(file, 0, what, error);
    }
    file->header_bytes = (size_t)length;
    file->header = qsa_allocate(allocator, file->header_bytes, 1);
    if (!file->header) {
        return no_memory(error);
    }
    status = qsa_file_read(file->path, file->descriptor, file->header, (int64_t)length, LENGTH_BYTES, error);
    if (status) {
        return status;
    }
    qsa_json j = qsa_json_begin(file->header, (int64_t)length);
    status = read_members(allocator, &j, file, error);
    return status ? status : check_cover(file, LENGTH_BYTES + (int64_t)length, error);
}
