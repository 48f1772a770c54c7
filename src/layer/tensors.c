/* SPDX-License-Identifier: MIT */
/* Opening a safetensors file, an index with its shards or a folder, and reading tensors. */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include "layer/tensors.h"

#include "layer/json.h"
#include "runtime/file.h"
#include "runtime/memory.h"
#include "runtime/status.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---------------------------------------------------------------------------------------------- paths */

typedef struct path {
    char *text;
    size_t bytes; /* as allocated */
} path;

static qsa_status no_memory(qsa_error *error) {
    return qsa_fail(error, QSA_E_MEMORY, "memory for a table of tensors was refused");
}

/* The first `length` bytes of folder, then name. text is NULL without memory. */
static path join(const qsa_allocator *allocator, const char *folder, size_t length, const char *name) {
    size_t rest = strlen(name) + 1;
    path joined = {NULL, length + rest};
    joined.text = qsa_allocate(allocator, joined.bytes, 1);
    if (joined.text) {
        memcpy(joined.text, folder, length);
        memcpy(joined.text + length, name, rest);
    }
    return joined;
}

static int ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* How good an entry point of a checkpoint a file of a folder is: 0 none, higher is better. */
static int rank_of(const char *name) {
    static const char *const by_rank[] = {".safetensors", ".index.json", "/model.safetensors",
                                          "/model.safetensors.index.json"};
    for (int rank = 4; rank > 0; rank--) {
        const char *wanted = by_rank[rank - 1];
        if (*wanted == '/' ? strcmp(name, wanted + 1) == 0 : ends_with(name, wanted)) {
            return rank;
        }
    }
    return 0;
}

/* The file of a folder to open: the usual names first, then any other index or file, if it is the only one. */
static qsa_status pick_file(const qsa_allocator *allocator, const char *folder, path *picked, qsa_error *error) {
    int best = 0, ties = 0;
    char name[1024] = "/";
    DIR *entries = opendir(folder);
    if (!entries) {
        return qsa_fail(error, QSA_E_IO, "%s: the folder cannot be listed", qsa_show(folder).text);
    }
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        size_t bytes = strlen(entry->d_name) + 1;
        int rank = bytes + 1 > sizeof name ? 0 : rank_of(entry->d_name);
        if (rank > best) {
            best = rank;
            ties = 0;
            memcpy(name + 1, entry->d_name, bytes);
        }
        ties += rank > 0 && rank == best;
    }
    closedir(entries);
    if (ties != 1) {
        return qsa_fail(error, ties ? QSA_E_ARGUMENT : QSA_E_IO,
                        "%s: the folder holds %d %s files: expected one, or an index", qsa_show(folder).text, ties,
                        best == 2 ? ".index.json" : ".safetensors");
    }
    *picked = join(allocator, folder, strlen(folder), name);
    return picked->text ? QSA_OK : no_memory(error);
}

/* ---------------------------------------------------------------------------------------------- files */

static void release_file(const qsa_allocator *allocator, qsa_tensor_file *file) {
    if (file->descriptor >= 0) {
        close(file->descriptor);
    }
    qsa_list_release(allocator, &file->tensors, sizeof(qsa_tensor));
    qsa_list_release(allocator, &file->metadata, sizeof(qsa_metadata));
    qsa_release(allocator, file->header, file->header_bytes, 1);
    qsa_release(allocator, file->path, file->path_bytes, 1);
}

/* Takes over the path and reads the file's header. What fails is released with the handle. */
static qsa_status add_file(qsa_tensors *t, path from, qsa_error *error) {
    qsa_tensor_file *file = from.text ? qsa_list_add(&t->allocator, &t->files, sizeof *file) : NULL;
    if (!file) {
        qsa_release(&t->allocator, from.text, from.bytes, 1);
        return no_memory(error);
    }
    *file = (qsa_tensor_file){.path = from.text, .path_bytes = from.bytes, .descriptor = -1};
    return qsa_header_read(&t->allocator, file, error);
}

static qsa_status open_single(qsa_tensors *t, path from, qsa_error *error) {
    qsa_status status = add_file(t, from, error);
    if (!status) {
        qsa_tensor_file *file = t->files.items;
        t->tensors = file->tensors;
        file->tensors = (qsa_list){0};
    }
    return status;
}

/* ---------------------------------------------------------------------------------------------- index */

/* One line of a weight_map. */
typedef struct mapping {
    const char *name, *shard;
} mapping;

typedef struct index_file {
    const char *path;
    size_t folder; /* leading bytes of path that name the folder, with its '/' */
    char *text;
    int64_t size;
    qsa_list map; /* of mapping */
} index_file;

static qsa_status refuse_index(const index_file *index, int64_t at, const char *name, const char *what,
                               qsa_error *error) {
    return qsa_fail(error, QSA_E_FORMAT, "%s: byte %lld: %s%s%s%s", qsa_show(index->path).text, (long long)at,
                    *name ? "\"" : "", *name ? qsa_show(name).text : "", *name ? "\": " : "", what);
}

/* A shard lies beside its index, nowhere else. */
static int is_inside(const char *shard) {
    return *shard && !strchr(shard, '/') && !strchr(shard, '\\') && !strstr(shard, "..") && strcmp(shard, ".") != 0;
}

static qsa_status read_map(const qsa_allocator *allocator, qsa_json *j, index_file *index, qsa_error *error) {
    const char *name;
    qsa_json_enter(j, '{');
    while (qsa_json_member(j, &name)) {
        const char *shard = qsa_json_string(j);
        if (!shard) {
            return QSA_OK;
        }
        if (!is_inside(shard)) {
            return refuse_index(index, shard - j->text - 1, shard, "expected the name of a file in the index's folder",
                                error);
        }
        mapping *line = qsa_list_add(allocator, &index->map, sizeof *line);
        if (!line) {
            return no_memory(error);
        }
        *line = (mapping){name, shard};
    }
    qsa_list_sort(&index->map, sizeof(mapping), qsa_by_name);
    const mapping *twice = qsa_list_repeated(&index->map, sizeof *twice);
    return twice ? refuse_index(index, twice->name - j->text - 1, twice->name, "occurs twice in weight_map", error)
                 : QSA_OK;
}

static qsa_status parse_index(const qsa_allocator *allocator, index_file *index, qsa_error *error) {
    qsa_json j = qsa_json_begin(index->text, index->size);
    qsa_status status = QSA_OK;
    const char *name;
    int mapped = 0;
    qsa_json_enter(&j, '{');
    while (!status && qsa_json_member(&j, &name)) {
        if (strcmp(name, "weight_map") != 0) {
            qsa_json_skip(&j);
        } else if (mapped++) {
            qsa_json_refuse(&j, name - j.text - 1, "weight_map occurs twice");
        } else {
            status = read_map(allocator, &j, index, error);
        }
    }
    if (status) {
        return status;
    }
    if (!qsa_json_end(&j)) {
        return refuse_index(index, j.at, "", j.reason, error);
    }
    return index->map.count ? QSA_OK : refuse_index(index, 0, "", "expected a weight_map with tensors in it", error);
}

/* The part of a shard's path that the index gave. */
static const char *shard_name(const index_file *index, const qsa_tensor_file *file) {
    return file->path + index->folder;
}

/* The shard's number among the open files, opened now if it was not yet; -1 on failure. Neighbours share a shard often.
 */
static int64_t shard_number(qsa_tensors *t, const index_file *index, const char *shard, int64_t guess,
                            qsa_status *status, qsa_error *error) {
    const qsa_tensor_file *files = t->files.items;
    for (int64_t i = 0; i < t->files.count; i++) {
        int64_t candidate = (guess + i) % t->files.count;
        if (strcmp(shard_name(index, &files[candidate]), shard) == 0) {
            return candidate;
        }
    }
    *status = add_file(t, join(&t->allocator, index->path, index->folder, shard), error);
    return *status ? -1 : t->files.count - 1;
}

/* Opens the shards and takes the mapped tensors out of them. */
static qsa_status collect(qsa_tensors *t, const index_file *index, qsa_error *error) {
    const mapping *lines = index->map.items;
    int64_t number = 0;
    for (int64_t i = 0; i < index->map.count; i++) {
        qsa_status status = QSA_OK;
        number = shard_number(t, index, lines[i].shard, number, &status, error);
        if (status) {
            return status;
        }
        const qsa_tensor_file *file = (const qsa_tensor_file *)t->files.items + number;
        const qsa_tensor *found = qsa_list_find(&file->tensors, sizeof *found, lines[i].name);
        if (!found) {
            return refuse_index(index, lines[i].name - index->text - 1, lines[i].name,
                                "the shard that weight_map names does not hold it", error);
        }
        qsa_tensor *taken = qsa_list_add(&t->allocator, &t->tensors, sizeof *taken);
        if (!taken) {
            return no_memory(error);
        }
        *taken = *found;
        taken->file = number;
    }
    qsa_tensor_file *files = t->files.items;
    for (int64_t i = 0; i < t->files.count; i++) {
        qsa_list_release(&t->allocator, &files[i].tensors, sizeof(qsa_tensor));
        if (strcmp(files[i].path, files[t->first].path) < 0) {
            t->first = i;
        }
    }
    return QSA_OK;
}

static qsa_status open_index(qsa_tensors *t, const char *from, qsa_error *error) {
    const char *slash = strrchr(from, '/');
    index_file index = {.path = from, .folder = slash ? (size_t)(slash - from) + 1 : 0};
    int descriptor = -1;
    qsa_status status = qsa_file_open(from, &descriptor, &index.size, error);
    if (status) {
        return status;
    }
    if (index.size > QSA_HEADER_LIMIT) {
        status = refuse_index(&index, QSA_HEADER_LIMIT, "", "an index of more than 100000000 bytes", error);
        index.size = 0;
    } else {
        index.text = qsa_allocate(&t->allocator, (size_t)index.size, 1);
        status = index.text ? qsa_file_read(from, descriptor, index.text, index.size, 0, error) : no_memory(error);
    }
    close(descriptor);
    if (!status) {
        status = parse_index(&t->allocator, &index, error);
    }
    if (!status) {
        status = collect(t, &index, error);
    }
    qsa_list_release(&t->allocator, &index.map, sizeof(mapping));
    qsa_release(&t->allocator, index.text, (size_t)index.size, 1);
    return status;
}

/* ---------------------------------------------------------------------------------------------- handle */

static qsa_status open_any(qsa_tensors *t, const char *from, qsa_error *error) {
    struct stat about;
    path picked = {NULL, 0};
    if (stat(from, &about) == 0 && S_ISDIR(about.st_mode)) {
        qsa_status status = pick_file(&t->allocator, from, &picked, error);
        if (status) {
            return status;
        }
    } else {
        picked = join(&t->allocator, "", 0, from);
    }
    if (!picked.text || !ends_with(picked.text, ".json")) {
        return open_single(t, picked, error);
    }
    qsa_status status = open_index(t, picked.text, error);
    qsa_release(&t->allocator, picked.text, picked.bytes, 1);
    return status;
}

qsa_status qsa_tensors_open(const char *from, const qsa_allocator *allocator, qsa_tensors **tensors, qsa_error *error) {
    if (!tensors) {
        return qsa_fail(error, QSA_E_ARGUMENT, "tensors is NULL: expected where to put the handle");
    }
    *tensors = NULL;
    if (!from || !*from) {
        return qsa_fail(error, QSA_E_ARGUMENT, "path is %s: expected a file or a folder", from ? "empty" : "NULL");
    }
    if (allocator && (allocator->alloc == NULL) != (allocator->release == NULL)) {
        return qsa_fail(error, QSA_E_ARGUMENT, "allocator.%s is NULL: expected both functions or neither",
                        allocator->alloc ? "release" : "alloc");
    }
    qsa_tensors *t = qsa_allocate(allocator, sizeof *t, 16);
    if (!t) {
        return no_memory(error);
    }
    *t = (qsa_tensors){.allocator = allocator && allocator->alloc ? *allocator : qsa_system_allocator};
    qsa_status status = open_any(t, from, error);
    if (status) {
        qsa_tensors_close(t);
        return status;
    }
    *tensors = t;
    return qsa_ok(error);
}

void qsa_tensors_close(qsa_tensors *t) {
    if (!t) {
        return;
    }
    qsa_allocator allocator = t->allocator;
    qsa_tensor_file *files = t->files.items;
    for (int64_t i = 0; i < t->files.count; i++) {
        release_file(&allocator, &files[i]);
    }
    qsa_list_release(&allocator, &t->files, sizeof *files);
    qsa_list_release(&allocator, &t->tensors, sizeof(qsa_tensor));
    qsa_release(&allocator, t, sizeof *t, 16);
}

int64_t qsa_tensors_count(const qsa_tensors *t) {
    return t ? t->tensors.count : 0;
}

static void describe(const qsa_tensors *t, const qsa_tensor *tensor, qsa_tensor_info *info) {
    *info = (qsa_tensor_info){
        .name = tensor->name,
        .dtype = tensor->dtype->name,
        .rank = tensor->rank,
        .bytes = tensor->bytes,
        .offset = tensor->begin,
        .file = ((const qsa_tensor_file *)t->files.items)[tensor->file].path,
    };
    memcpy(info->shape, tensor->shape, sizeof info->shape);
}

qsa_status qsa_tensors_get(const qsa_tensors *t, int64_t i, qsa_tensor_info *info, qsa_error *error) {
    if (!t || !info) {
        return qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL", t ? "info" : "tensors");
    }
    if (i < 0 || i >= t->tensors.count) {
        return qsa_fail(error, QSA_E_ARGUMENT, "i is %lld: there are %lld tensors", (long long)i,
                        (long long)t->tensors.count);
    }
    describe(t, (const qsa_tensor *)t->tensors.items + i, info);
    return qsa_ok(error);
}

const qsa_tensor *qsa_tensors_named(const qsa_tensors *t, const char *name, qsa_error *error) {
    if (!t || !name) {
        qsa_fail(error, QSA_E_ARGUMENT, "%s is NULL", t ? "name" : "tensors");
        return NULL;
    }
    const qsa_tensor *found = qsa_list_find(&t->tensors, sizeof *found, name);
    if (!found) {
        qsa_fail(error, QSA_E_ARGUMENT, "name is \"%s\": there is no such tensor", qsa_show(name).text);
    }
    return found;
}

qsa_status qsa_tensors_find(const qsa_tensors *t, const char *name, qsa_tensor_info *info, qsa_error *error) {
    if (!info) {
        return qsa_fail(error, QSA_E_ARGUMENT, "info is NULL");
    }
    const qsa_tensor *tensor = qsa_tensors_named(t, name, error);
    if (!tensor) {
        return QSA_E_ARGUMENT;
    }
    describe(t, tensor, info);
    return qsa_ok(error);
}

const char *qsa_tensors_metadata(const qsa_tensors *t, const char *key) {
    if (!t || !key || !t->files.count) {
        return NULL;
    }
    const qsa_tensor_file *file = (const qsa_tensor_file *)t->files.items + t->first;
    const qsa_metadata *found = qsa_list_find(&file->metadata, sizeof *found, key);
    return found ? found->value : NULL;
}
