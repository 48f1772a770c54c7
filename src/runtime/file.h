/* SPDX-License-Identifier: MIT */
/* Files: reading regular ones, writing new ones that replace old ones whole, and names that are fit for a message. */
#ifndef QSA_RUNTIME_FILE_H
#define QSA_RUNTIME_FILE_H

#include <qsa/qsa.h>

/* Text from a file or a caller, made fit for a message: no control characters, valid UTF-8, cut to the buffer. */
typedef struct qsa_shown {
    char text[144];
} qsa_shown;
qsa_shown qsa_show(const char *text);

/* QSA_E_IO: "path: what: the system's reason for `code`". */
qsa_status qsa_file_refuse(const char *path, const char *what, int code, qsa_error *error);

/* Opens a regular file for reading: its descriptor and size. Refuses everything else, and an empty one, with QSA_E_IO. */
qsa_status qsa_file_open(const char *path, int *descriptor, int64_t *size, qsa_error *error);

/* All `bytes` bytes at `offset`. */
qsa_status qsa_file_read(const char *path, int descriptor, void *out, int64_t bytes, int64_t offset, qsa_error *error);

/* A file on the way to its place: whoever opens `path` finds what was there before, or all of the new one. It is written
 * beside it, under a name that ends in ".part", and only its owner may read it. */
typedef struct qsa_new_file {
    const qsa_allocator *allocator;
    const char *path; /* the caller's, for as long as the file is on its way */
    char *temporary;
    size_t bytes; /* of that name, as allocated */
    int descriptor;
} qsa_new_file;

/* After QSA_OK one of replace and discard must follow, and ends it. */
qsa_status qsa_file_create(const qsa_allocator *allocator, const char *path, qsa_new_file *file, qsa_error *error);
qsa_status qsa_file_write(qsa_new_file *file, const void *data, int64_t bytes, qsa_error *error);

/* Onto the disk, into its place, and the folder onto the disk. On failure what was there is still there, but where the
 * folder is what failed: the message says so. */
qsa_status qsa_file_replace(qsa_new_file *file, qsa_error *error);
void qsa_file_discard(qsa_new_file *file);

#endif
