/* SPDX-License-Identifier: MIT */
#include "recording.h"

#include "options.h"
#include "report.h"
#include "settings.h"

#include <stdlib.h>
#include <string.h>

/* The tensor as f32 or int32, [rows][*width]; NULL in *x if the file has none. `rows` is -1 for any number, in *count.
 */
static int read_rows(recording *r, const char *name, int is_f32, int64_t rows, void *x, int64_t *width,
                     int64_t *count) {
    qsa_tensor_info info;
    qsa_error error;
    if (qsa_tensors_find(r->tensors, name, &info, &error)) {
        return EXIT_OK;
    }
    int64_t items = 1, first = info.rank > 0 ? info.shape[0] : 0;
    for (int64_t i = 1; i < info.rank; i++) {
        items *= info.shape[i];
    }
    if (info.rank < 1 || (rows >= 0 && first != rows) || (first > 0 && items == 0)) {
        return complain(r->command, "%s: tensor '%s' has %lld rows of %lld: expected %lld rows", r->path, name,
                        (long long)first, (long long)items, (long long)rows);
    }
    *width = items;
    if (count) {
        *count = first;
    }
    void *memory = take_memory(r->command, first * items, 4);
    qsa_status status = is_f32 ? qsa_tensors_read_f32(r->tensors, name, memory, first * items, &error)
                               : qsa_tensors_read_i32(r->tensors, name, memory, first * items, &error);
    memcpy(x, &memory, sizeof memory);
    return status ? complain_library(r->command, r->path, &error) : EXIT_OK;
}

static int check_positions(const recording *r) {
    for (int64_t i = 0; i < r->rows; i++) {
        int64_t least = i ? r->position[i - 1] + 1 : 0;
        if (r->position[i] < least || r->position[i] >= r->tokens) {
            return complain(r->command, "%s: rows[%lld] is %lld: expected %lld..%lld, ascending tokens", r->path,
                            (long long)i, (long long)r->position[i], (long long)least, (long long)(r->tokens - 1));
        }
    }
    return EXIT_OK;
}

static int check_ids(const recording *r) {
    for (int64_t i = 0; r->ids && i < r->rows; i++) {
        const int32_t *ids = r->ids + i * r->id_stride;
        for (int64_t j = 0; j < r->id_stride; j++) {
            int ended = j > 0 && ids[j - 1] < 0;
            int good = ids[j] == -1 || (!ended && ids[j] <= r->position[i] && ids[j] >= (j ? ids[j - 1] + 1 : 0));
            if (!good) {
                return complain(r->command,
                                "%s: ids[%lld][%lld] is %lld: expected cells of 0..%lld, ascending, then -1", r->path,
                                (long long)i, (long long)j, (long long)ids[j], (long long)r->position[i]);
            }
        }
    }
    return EXIT_OK;
}

int recording_open(const char *command, const char *path, recording *r) {
    *r = (recording){.command = command, .path = path};
    qsa_error error;
    if (qsa_tensors_open(path, NULL, &r->tensors, &error)) {
        return complain_library(command, path, &error);
    }
    int64_t one = 1, width = 0;
    if (read_rows(r, "hidden", 1, -1, &r->hidden, &r->hidden_size, &r->tokens) ||
        read_rows(r, "rows", 0, -1, &r->position, &one, &r->rows)) {
        return EXIT_USAGE;
    }
    if (!r->hidden || r->tokens < 1) {
        return complain(command, "%s has no tensor 'hidden' of [tokens][hidden size]: the hidden states to decode",
                        path);
    }
    if (one != 1) {
        return complain(command, "%s: tensor 'rows' is %lld wide: expected one position a row", path, (long long)one);
    }
    if (!r->position) {
        return EXIT_OK;
    }
    if (check_positions(r) || read_rows(r, "ids", 0, r->rows, &r->ids, &r->id_stride, NULL) || check_ids(r) ||
        read_rows(r, "scores", 1, r->rows, &r->scores, &r->score_stride, NULL) ||
        read_rows(r, "gated", 1, r->rows, &r->gated, &r->gated_size, NULL) ||
        read_rows(r, "out", 1, r->rows, &r->out, &width, NULL)) {
        return EXIT_USAGE;
    }
    if (r->out && width != r->hidden_size) {
        return complain(command, "%s: tensor 'out' is %lld wide: expected the %lld of 'hidden'", path, (long long)width,
                        (long long)r->hidden_size);
    }
    return EXIT_OK;
}

void recording_close(recording *r) {
    free(r->hidden), free(r->position), free(r->ids), free(r->scores), free(r->gated), free(r->out);
    qsa_tensors_close(r->tensors);
    *r = (recording){0};
}

int64_t recording_row_of(const recording *r, int64_t position) {
    for (int64_t i = 0; i < r->rows; i++) {
        if (r->position[i] == position) {
            return i;
        }
    }
    return -1;
}

int64_t recording_id_count(const recording *r, int64_t row) {
    int64_t count = 0;
    while (count < r->id_stride && r->ids[row * r->id_stride + count] >= 0) {
        count++;
    }
    return count;
}

int recording_is_bf16(const recording *r) {
    const char *source = qsa_tensors_metadata(r->tensors, "source");
    return source && strstr(source, "bfloat16");
}
