/* SPDX-License-Identifier: MIT */
/* What the reader of tensors needs around it: files, growing lists, and text that is fit for a message. */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include "layer/tensors.h"
#include "runtime/memory.h"
#include "runtime/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void *qsa_list_add(const qsa_allocator *allocator, qsa_list *list, size_t item) {
    if (list->count == list->capacity) {
        int64_t capacity = list->capacity ? list->capacity * 2 : 16;
        char *items = qsa_allocate(allocator, (size_t)capacity * item, 16);
        if (!items) {
            return NULL;
        }
        if (list->count) {
            memcpy(items, list->items, (size_t)list->count * item);
        }
        qsa_release(allocator, list->items, (size_t)list->capacity * item, 16);
        list->items = items;
        list->capacity = capacity;
    }
    char *added = (char *)list->items + (size_t)list->count++ * item;
    memset(added, 0, item);
    return added;
}

void qsa_list_release(const qsa_allocator *allocator, qsa_list *list, size_t item) {
    qsa_release(allocator, list->items, (size_t)list->capacity * item, 16);
    *list = (qsa_list){0};
}

static void swap(char *a, char *b, size_t bytes) {
    char held[sizeof(qsa_tensor)];
    for (size_t done = 0; done < bytes;) {
        size_t part = bytes - done < sizeof held ? bytes - done : sizeof held;
        memcpy(held, a + done, part);
        memcpy(a + done, b + done, part);
        memcpy(b + done, held, part);
        done += part;
    }
}

/* Heap sort: parents are no less than their children; then the largest goes to the end, again and again. */
void qsa_list_sort(qsa_list *list, size_t item, int (*compare)(const void *a, const void *b)) {
    char *items = list->items;
    int64_t end = list->count, start = end / 2;
    while (end > 1) {
        if (start > 0) {
            start--;
        } else {
            end--;
            swap(items, items + (size_t)end * item, item);
        }
        for (int64_t parent = start, child; (child = 2 * parent + 1) < end; parent = child) {
            char *larger = items + (size_t)child * item;
            if (child + 1 < end && compare(larger, larger + item) < 0) {
                child++;
                larger += item;
            }
            char *above = items + (size_t)parent * item;
            if (compare(above, larger) >= 0) {
                break;
            }
            swap(above, larger, item);
        }
    }
}

static const char *name_of(const void *item) {
    return *(const char *const *)item;
}

int qsa_by_name(const void *a, const void *b) {
    return strcmp(name_of(a), name_of(b));
}

void *qsa_list_find(const qsa_list *list, size_t item, const char *name) {
    int64_t low = 0, high = list->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        char *candidate = (char *)list->items + (size_t)middle * item;
        int order = strcmp(name_of(candidate), name);
        if (order == 0) {
            return candidate;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

void *qsa_list_repeated(const qsa_list *list, size_t item) {
    for (int64_t i = 1; i < list->count; i++) {
        char *at = (char *)list->items + (size_t)i * item;
        if (qsa_by_name(at - item, at) == 0) {
            return at - item;
        }
    }
    return NULL;
}

/* Bytes of the well-formed UTF-8 sequence at s, 0 for none; s ends in NUL, which continues no sequence. */
static size_t sequence_length(const unsigned char *s) {
    if (s[0] >= 0x20 && s[0] < 0x7f) {
        return 1;
    }
    size_t length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc3 || s[0] > 0xf4) { /* 0xc2 begins the controls U+0080..9f among others */
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    int wrong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
                (s[0] == 0xf4 && s[1] > 0x8f);
    return wrong ? 0 : length;
}

qsa_shown qsa_show(const char *text) {
    qsa_shown shown = {""};
    size_t to = 0, room = sizeof shown.text - 4; /* for "..." and NUL */
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t length = sequence_length(s), taken = length ? length : 1;
        if (to + taken > room) {
            memcpy(shown.text + to, "...", 4);
            return shown;
        }
        if (length) {
            memcpy(shown.text + to, s, length);
        } else {
            shown.text[to] = '?';
        }
        to += taken;
        s += taken;
    }
    return shown;
}

static qsa_status refuse_system(const char *path, const char *what, int code, qsa_error *error) {
    char reason[128];
    if (strerror_r(code, reason, sizeof reason) != 0) {
        reason[0] = '\0';
    }
    return qsa_fail(error, QSA_E_IO, "%s: %s: %s", qsa_show(path).text, what, reason);
}

/* The wait of a pipe that nobody writes to is avoided; a regular file does not notice O_NONBLOCK. */
qsa_status qsa_file_open(const char *path, int *descriptor, int64_t *size, qsa_error *error) {
    struct stat about;
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0) {
        return refuse_system(path, "cannot open", errno, error);
    }
    int code = fstat(opened, &about) ? errno : 0;
    if (!code && S_ISREG(about.st_mode) && about.st_size > 0) {
        *descriptor = opened;
        *size = (int64_t)about.st_size;
        return QSA_OK;
    }
    close(opened);
    if (code) {
        return refuse_system(path, "cannot look at it", code, error);
    }
    return qsa_fail(error, QSA_E_IO, "%s: %s", qsa_show(path).text,
                    S_ISREG(about.st_mode) ? "the file is empty" : "expected a regular file");
}

qsa_status qsa_file_read(const char *path, int descriptor, void *out, int64_t bytes, int64_t offset, qsa_error *error) {
    enum { PART = 1 << 30 }; /* what one call may be asked for everywhere */
    char *to = out;
    while (bytes > 0) {
        ssize_t got = pread(descriptor, to, (size_t)qsa_min(bytes, PART), (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return refuse_system(path, "cannot read", errno, error);
        }
        if (got == 0) {
            return qsa_fail(error, QSA_E_IO, "%s: the file was cut to %lld bytes while it was open",
                            qsa_show(path).text, (long long)offset);
        }
        to += got;
        offset += got;
        bytes -= got;
    }
    return QSA_OK;
}
