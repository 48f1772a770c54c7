/* SPDX-License-Identifier: MIT */
/* Reading tensors: the file is little-endian whatever this machine is. */
#include "layer/tensors.h"
#include "runtime/file.h"
#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "runtime/status.h"

enum { PART_BYTES = 16384 };

static uint32_t word16(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t word32(const unsigned char *p) {
    return word16(p) | word16(p + 2) << 16;
}

/* `count` elements to out: [count] 32-bit values. */
typedef void convert_fn(const unsigned char *from, int64_t count, void *out);

static void from_f32(const unsigned char *from, int64_t count, void *out) {
    float *to = out;
    for (int64_t i = 0; i < count; i++) {
        to[i] = qsa_from_bits(word32(from + 4 * i));
    }
}

static void from_f16(const unsigned char *from, int64_t count, void *out) {
    float *to = out;
    for (int64_t i = 0; i < count; i++) {
        to[i] = qsa_f16_to_f32((uint16_t)word16(from + 2 * i));
    }
}

static void from_bf16(const unsigned char *from, int64_t count, void *out) {
    float *to = out;
    for (int64_t i = 0; i < count; i++) {
        to[i] = qsa_bf16_to_f32((uint16_t)word16(from + 2 * i));
    }
}

static void from_i32(const unsigned char *from, int64_t count, void *out) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t value = word32(from + 4 * i);
        memcpy((char *)out + 4 * i, &value, sizeof value);
    }
}

static const qsa_tensor_file *file_of(const qsa_tensors *t, const qsa_tensor *tensor) {
    return (const qsa_tensor_file *)t->files.items + tensor->file;
}

/* Elements first..first+count-1, each `element` bytes in the file, four in memory. */
static qsa_status read_converted(const qsa_tensors *t, const qsa_tensor *tensor, int64_t first, int64_t count,
                                 int64_t element, convert_fn *convert, void *out, qsa_error *error) {
    unsigned char part[PART_BYTES];
    const qsa_tensor_file *file = file_of(t, tensor);
    for (int64_t done = 0; done < count;) {
        int64_t now = qsa_min(count - done, PART_BYTES / element);
        int64_t offset = tensor->begin + (first + done) * element;
        qsa_status status = qsa_file_read(file->path, file->descriptor, part, now * element, offset, error);
        if (status) {
            return status;
        }
        convert(part, now, (char *)out + 4 * done);
        done += now;
    }
    return QSA_OK;
}

static qsa_status wrong_type(const qsa_tensor *tensor, const char *expected, qsa_error *error) {
    return qsa_fail(error, QSA_E_SHAPE, "tensor \"%s\" is %s: expected %s", qsa_show(tensor->name).text,
                    tensor->dtype->name, expected);
}

qsa_status qsa_tensors_read_part(const qsa_tensors *t, const qsa_tensor *tensor, int64_t first, int64_t count,
                                 float *out, qsa_error *error) {
    static const struct {
        const char *dtype;
        int64_t element;
        convert_fn *convert;
    } readable[] = {{"F32", 4, from_f32}, {"F16", 2, from_f16}, {"BF16", 2, from_bf16}};
    for (int i = 0; i < 3; i++) {
        if (strcmp(tensor->dtype->name, readable[i].dtype) == 0) {
            return read_converted(t, tensor, first, count, readable[i].element, readable[i].convert, out, error);
        }
    }
    return wrong_type(tensor, "F32, F16 or BF16", error);
}

/* Finds the tensor and checks what the caller brought; `have` is the size it stated, in `unit`. */
static const qsa_tensor *prepare(const qsa_tensors *t, const char *name, const void *out, int64_t have,
                                 const char *unit, qsa_error *error) {
    const qsa_tensor *tensor = qsa_tensors_named(t, name, error);
    if (!tensor) {
        return NULL;
    }
    int64_t holds = strcmp(unit, "bytes") == 0 ? tensor->bytes : qsa_tensor_elements(tensor);
    if (have != holds) {
        qsa_fail(error, QSA_E_ARGUMENT, "%s is %lld: tensor \"%s\" holds %lld", unit, (long long)have,
                 qsa_show(name).text, (long long)holds);
        return NULL;
    }
    if (have > 0 && !out) {
        qsa_fail(error, QSA_E_ARGUMENT, "out is NULL");
        return NULL;
    }
    return tensor;
}

qsa_status qsa_tensors_read_f32(const qsa_tensors *t, const char *name, float *out, int64_t count, qsa_error *error) {
    const qsa_tensor *tensor = prepare(t, name, out, count, "count", error);
    if (!tensor) {
        return QSA_E_ARGUMENT;
    }
    qsa_status status = qsa_tensors_read_part(t, tensor, 0, count, out, error);
    return status ? status : qsa_ok(error);
}

qsa_status qsa_tensors_read_i32(const qsa_tensors *t, const char *name, int32_t *out, int64_t count, qsa_error *error) {
    const qsa_tensor *tensor = prepare(t, name, out, count, "count", error);
    if (!tensor) {
        return QSA_E_ARGUMENT;
    }
    if (strcmp(tensor->dtype->name, "I32") != 0) {
        return wrong_type(tensor, "I32", error);
    }
    qsa_status status = read_converted(t, tensor, 0, count, 4, from_i32, out, error);
    return status ? status : qsa_ok(error);
}

qsa_status qsa_tensors_read_bytes(const qsa_tensors *t, const char *name, void *out, int64_t bytes, qsa_error *error) {
    const qsa_tensor *tensor = prepare(t, name, out, bytes, "bytes", error);
    if (!tensor) {
        return QSA_E_ARGUMENT;
    }
    const qsa_tensor_file *file = file_of(t, tensor);
    qsa_status status = qsa_file_read(file->path, file->descriptor, out, bytes, tensor->begin, error);
    return status ? status : qsa_ok(error);
}
