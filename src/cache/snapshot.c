/* SPDX-License-Identifier: MIT */
/* Saving, restoring and inspecting: through a caller's callbacks, and through files. */
#define _POSIX_C_SOURCE 200809L
#include "cache/snapshot.h"

#include "cache/pages.h"
#include "runtime/file.h"
#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "runtime/status.h"

#include <unistd.h>

/* ------------------------------------------------------------------------------------------------ opening */

/* The bytes of numbers are written as they lie in memory. */
static int is_little_endian(void) {
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first == 1;
}

static qsa_status open_snapshot(const qsa_allocator *allocator, qsa_read read, qsa_write write, void *user, qsa_snapshot **opened,
                                qsa_error *error) {
    if (!is_little_endian()) {
        return qsa_fail(error, QSA_E_UNSUPPORTED, "snapshots are little-endian: this machine is not");
    }
    qsa_snapshot *s = qsa_allocate(allocator, sizeof *s, 64);
    if (!s) {
        return qsa_fail(error, QSA_E_MEMORY, "%zu bytes for a snapshot were refused", sizeof *s);
    }
    s->read = read;
    s->write = write;
    s->user = user;
    s->at = 0;
    s->sum = 0;
    qsa_crc_init(&s->crc);
    *opened = s;
    return QSA_OK;
}

static void close_snapshot(const qsa_allocator *allocator, qsa_snapshot *s) {
    qsa_release(allocator, s, sizeof *s, 64);
}

/* ------------------------------------------------------------------------------------------------ saving */

static qsa_status save_all(qsa_snapshot *snapshot, const qsa_sequence *sequence, int64_t length, qsa_error *error) {
    qsa_snapshot_describe(snapshot, sequence, length);
    qsa_status status = qsa_snapshot_write_header(snapshot, error);
    for (int64_t i = 0; !status && i < snapshot->header.layers; i++) {
        status = qsa_snapshot_move_section(snapshot, sequence, i, error);
    }
    return status;
}

qsa_status qsa_sequence_save(const qsa_sequence *sequence, int64_t length, qsa_write write, void *user, qsa_error *error) {
    qsa_status status = qsa_sequence_check_cut(sequence, length, error);
    if (status) {
        return status;
    }
    if (!write) {
        return qsa_fail(error, QSA_E_ARGUMENT, "write is NULL");
    }
    const qsa_allocator *allocator = qsa_context_allocator(sequence->cache->context);
    qsa_snapshot *snapshot = NULL;
    if ((status = open_snapshot(allocator, NULL, write, user, &snapshot, error))) {
        return status;
    }
    status = save_all(snapshot, sequence, length, error);
    close_snapshot(allocator, snapshot);
    return status ? status : qsa_ok(error);
}

/* A file behind a callback, and what went wrong with it, which says more than that the callback gave up. */
typedef struct file_target {
    qsa_new_file file;
    qsa_error error;
} file_target;

static int write_file(void *user, const void *data, int64_t bytes) {
    file_target *target = user;
    return qsa_file_write(&target->file, data, bytes, &target->error) != QSA_OK;
}

qsa_status qsa_sequence_save_file(const qsa_sequence *sequence, int64_t length, const char *path, qsa_error *error) {
    file_target target = {.error = {.status = QSA_OK}};
    qsa_status status = qsa_sequence_check_cut(sequence, length, error);
    if (status) {
        return status;
    }
    if (!path || !*path) {
        return qsa_fail(error, QSA_E_ARGUMENT, "path is %s", path ? "empty" : "NULL");
    }
    if ((status = qsa_file_create(qsa_context_allocator(sequence->cache->context), path, &target.file, error))) {
        return status;
    }
    if ((status = qsa_sequence_save(sequence, length, write_file, &target, error))) {
        qsa_file_discard(&target.file);
        if (target.error.status && error) {
            *error = target.error;
        }
        return status;
    }
    status = qsa_file_replace(&target.file, error);
    return status ? status : qsa_ok(error);
}

/* ------------------------------------------------------------------------------------------------ restoring */

/* What the header says of the layers, and pages for them. */
static qsa_status make_room(const qsa_snapshot *snapshot, qsa_sequence *s, qsa_error *error) {
    int64_t longest = 0;
    for (int64_t i = 0; i < snapshot->header.layers; i++) {
        const qsa_snapshot_layer *from = &snapshot->header.layer[i];
        s->layer[i].length = from->length;
        s->layer[i].keyed = from->keyed;
        s->layer[i].raw_low = qsa_max(from->raw_low, from->keyed - s->cache->rollback);
        longest = qsa_max(longest, from->length);
    }
    if (longest > s->cache->pages * s->cache->page_cells) {
        return qsa_fail(error, QSA_E_CAPACITY, "the snapshot has %lld cells: the cache holds %lld", (long long)longest,
                        (long long)(s->cache->pages * s->cache->page_cells));
    }
    return qsa_pages_own(s, 0, longest, error);
}

static qsa_status restore_all(qsa_snapshot *snapshot, qsa_cache *cache, qsa_sequence **sequence, qsa_error *error) {
    qsa_sequence *s = NULL;
    qsa_status status = qsa_snapshot_read_header(snapshot, error);
    if (status || (status = qsa_snapshot_fits(snapshot, cache, error)) || (status = qsa_sequence_create(cache, &s, error))) {
        return status;
    }
    status = make_room(snapshot, s, error);
    for (int64_t i = 0; !status && i < cache->layers; i++) {
        status = qsa_snapshot_move_section(snapshot, s, i, error);
    }
    if (status) {
        qsa_sequence_destroy(s);
        return status;
    }
    *sequence = s;
    return QSA_OK;
}

qsa_status qsa_sequence_restore(qsa_cache *cache, qsa_read read, void *user, qsa_sequence **sequence, qsa_error *error) {
    if (!cache || !read || !sequence) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL", !cache ? "cache" : !read ? "read" : "sequence");
    }
    *sequence = NULL;
    const qsa_allocator *allocator = qsa_context_allocator(cache->context);
    qsa_snapshot *snapshot = NULL;
    qsa_status status = open_snapshot(allocator, read, NULL, user, &snapshot, error);
    if (status) {
        return status;
    }
    status = restore_all(snapshot, cache, sequence, error);
    close_snapshot(allocator, snapshot);
    return status ? status : qsa_ok(error);
}

/* ------------------------------------------------------------------------------------------------ inspecting */

static void fill_info(const qsa_snapshot_header *h, qsa_snapshot_info *info) {
    *info = (qsa_snapshot_info){
        .size = sizeof *info,
        .version = QSA_SNAPSHOT_VERSION,
        .bytes = h->bytes,
        .shape = h->shape,
        .layers = h->layers,
        .kv_type = h->kv_type,
        .key_type = h->key_type,
        .eps = h->eps,
        .rope = {.size = sizeof info->rope, .dims = h->rope_dims, .theta = h->rope_theta},
        .shortest = h->layer[0].length,
    };
    for (int64_t i = 0; i < h->layers; i++) {
        info->longest = qsa_max(info->longest, h->layer[i].length);
        info->shortest = qsa_min(info->shortest, h->layer[i].length);
        info->unkeyed += h->layer[i].keyed < h->layer[i].length;
    }
}

qsa_status qsa_snapshot_inspect(const qsa_allocator *allocator, qsa_read read, void *user, qsa_snapshot_info *info,
                                qsa_error *error) {
    if (!read || !info || info->size != sizeof *info) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is %s", read ? "info" : "read",
                        !read || !info ? "NULL" : "of another size: expected a qsa_snapshot_info with its size set");
    }
    qsa_snapshot *snapshot = NULL;
    qsa_status status = open_snapshot(allocator, read, NULL, user, &snapshot, error);
    if (status) {
        return status;
    }
    status = qsa_snapshot_read_header(snapshot, error);
    for (int64_t i = 0; !status && i < snapshot->header.layers; i++) {
        status = qsa_snapshot_skip_section(snapshot, i, error);
    }
    if (!status) {
        fill_info(&snapshot->header, info);
    }
    close_snapshot(allocator, snapshot);
    return status ? status : qsa_ok(error);
}

/* ------------------------------------------------------------------------------------------------ from a file */

typedef struct file_source {
    const char *path;
    int descriptor;
    int64_t size, at;
    qsa_error error;
} file_source;

static int64_t read_file(void *user, void *data, int64_t bytes) {
    file_source *source = user;
    int64_t part = qsa_min(bytes, source->size - source->at);
    if (qsa_file_read(source->path, source->descriptor, data, part, source->at, &source->error)) {
        return -1;
    }
    source->at += part;
    return part;
}

static qsa_status open_source(const char *path, file_source *source, qsa_error *error) {
    *source = (file_source){.path = path, .descriptor = -1, .error = {.status = QSA_OK}};
    if (!path || !*path) {
        return qsa_fail(error, QSA_E_ARGUMENT, "path is %s", path ? "empty" : "NULL");
    }
    return qsa_file_open(path, &source->descriptor, &source->size, error);
}

/* Closes it. What the status was, or that the file goes on behind the snapshot. */
static qsa_status close_source(file_source *source, qsa_status status, qsa_error *error) {
    close(source->descriptor);
    if (status && source->error.status && error) {
        *error = source->error;
    }
    if (!status && source->at < source->size) {
        return qsa_fail(error, QSA_E_FORMAT, "%s: %lld bytes behind the snapshot's %lld", qsa_show(source->path).text,
                        (long long)(source->size - source->at), (long long)source->at);
    }
    return status;
}

qsa_status qsa_sequence_restore_file(qsa_cache *cache, const char *path, qsa_sequence **sequence, qsa_error *error) {
    file_source source;
    if (!cache || !sequence) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL", cache ? "sequence" : "cache");
    }
    *sequence = NULL;
    qsa_status status = open_source(path, &source, error);
    if (status) {
        return status;
    }
    status = close_source(&source, qsa_sequence_restore(cache, read_file, &source, sequence, error), error);
    if (status) {
        qsa_sequence_destroy(*sequence);
        *sequence = NULL;
    }
    return status;
}

qsa_status qsa_snapshot_inspect_file(const qsa_allocator *allocator, const char *path, qsa_snapshot_info *info, qsa_error *error) {
    file_source source;
    if (!info || info->size != sizeof *info) {
        return qsa_fail(error, QSA_E_ARGUMENT, "info is %s",
                        info ? "of another size: expected a qsa_snapshot_info with its size set" : "NULL");
    }
    qsa_status status = open_source(path, &source, error);
    if (status) {
        return status;
    }
    QSA_INIT(qsa_snapshot_info, found);
    status = close_source(&source, qsa_snapshot_inspect(allocator, read_file, &source, &found, error), error);
    if (!status) {
        *info = found;
    }
    return status;
}
