/* SPDX-License-Identifier: MIT */
/* Makes safetensors files, right ones and wrong ones, and temporary folders to put them in. For tests: failures abort.
 */
#ifndef QSA_TEST_SAFETENSORS_WRITER_H
#define QSA_TEST_SAFETENSORS_WRITER_H

#include <stddef.h>
#include <stdint.h>

typedef struct st_writer st_writer;

st_writer *st_new(void);
void st_free(st_writer *writer);

/* Names go into the header as they are: already escaped, where JSON needs it. data is copied, in file order. */
void st_metadata(st_writer *writer, const char *key, const char *value);
void st_add(st_writer *writer, const char *name, const char *dtype, int rank, const int64_t *shape, const void *data,
            size_t bytes);
void st_add_f32(st_writer *writer, const char *name, int rank, const int64_t *shape, const float *values);

/* The file's bytes, from malloc. */
unsigned char *st_bytes(const st_writer *writer, size_t *size);
void st_write(const st_writer *writer, const char *path);

/* A file of any header text and `data` bytes of zeros behind it, from malloc. */
unsigned char *st_raw(const char *header, size_t data, size_t *size);
void st_write_bytes(const char *path, const void *bytes, size_t size);

/* A new empty folder, its path from malloc; its removal with the files in it. */
char *st_folder(void);
void st_remove_folder(char *folder);

/* folder + '/' + name, from malloc. */
char *st_path(const char *folder, const char *name);

#endif
