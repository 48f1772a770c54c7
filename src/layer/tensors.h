/* SPDX-License-Identifier: MIT */
/* The inside of qsa_tensors: the files it holds open, and their tensors in order of name. */
#ifndef QSA_LAYER_TENSORS_H
#define QSA_LAYER_TENSORS_H

#include <qsa/qsa.h>

#define QSA_HEADER_LIMIT 100000000 /* bytes; what the format's own reader allows */

enum { QSA_RANK_LIMIT = 8 };

/* An element type of the format. Some are smaller than a byte. */
typedef struct qsa_dtype {
    const char *name;
    int bits;
} qsa_dtype;

typedef struct qsa_tensor {
    const char *name; /* in its file's header, or in the index */
    const qsa_dtype *dtype;
    int64_t rank, shape[QSA_RANK_LIMIT];
    int64_t begin, bytes; /* in its file */
    int64_t at;           /* where the file (or the index) speaks of it */
    int64_t file;         /* in qsa_tensors.files */
} qsa_tensor;

typedef struct qsa_metadata {
    const char *name, *value;
} qsa_metadata;

/* An array that grows by doubling. */
typedef struct qsa_list {
    void *items;
    int64_t count, capacity;
} qsa_list;

typedef struct qsa_tensor_file {
    char *path;
    size_t path_bytes; /* as allocated */
    int descriptor;
    int64_t size;
    char *header; /* its strings are decoded in place and stay here */
    size_t header_bytes;
    qsa_list tensors;  /* of qsa_tensor, by name */
    qsa_list metadata; /* of qsa_metadata, by name */
} qsa_tensor_file;

struct qsa_tensors {
    qsa_allocator allocator;
    qsa_list files;   /* of qsa_tensor_file */
    qsa_list tensors; /* of qsa_tensor, by name; the files' own lists are empty by then */
    int64_t first;    /* the file whose name sorts first: metadata come from it */
};

/* A new zeroed item at the end, or NULL. */
void *qsa_list_add(const qsa_allocator *allocator, qsa_list *list, size_t item);
void qsa_list_release(const qsa_allocator *allocator, qsa_list *list, size_t item);

/* In place, without memory of its own, in n log n steps whatever the input. */
void qsa_list_sort(qsa_list *list, size_t item, int (*compare)(const void *a, const void *b));

/* For items whose first member is their name: their order, the item of that name in a list in that order, and the first
 * item whose name its successor repeats (NULL: none). */
int qsa_by_name(const void *a, const void *b);
void *qsa_list_find(const qsa_list *list, size_t item, const char *name);
void *qsa_list_repeated(const qsa_list *list, size_t item);

/* Opens a safetensors file and checks its header; `path` is set and everything else zero before, descriptor -1. On
 * failure the caller releases what the file holds so far. */
qsa_status qsa_header_read(const qsa_allocator *allocator, qsa_tensor_file *file, qsa_error *error);

/* The tensor of that name; NULL, with the reason in *error, for a NULL argument or when there is none. */
const qsa_tensor *qsa_tensors_named(const qsa_tensors *tensors, const char *name, qsa_error *error);

/* Elements of a tensor. */
int64_t qsa_tensor_elements(const qsa_tensor *tensor);

/* Elements first..first+count-1 of an F32, F16 or BF16 tensor as f32; QSA_E_SHAPE for another type. */
qsa_status qsa_tensors_read_part(const qsa_tensors *tensors, const qsa_tensor *tensor, int64_t first, int64_t count,
                                 float *out, qsa_error *error);

#endif
