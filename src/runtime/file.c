/* SPDX-License-Identifier: MIT */
/* Files: reading regular ones, writing new ones that replace old ones whole, and names that are fit for a message. */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include "runtime/file.h"

#include "runtime/memory.h"
#include "runtime/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    PART = 1 << 30, /* what one call may be asked for everywhere */
    SUFFIX = 24,    /* of a temporary name: a dot, 16 digits, ".part", NUL */
    ATTEMPTS = 100
};

/* ------------------------------------------------------------------------------------------------ names */

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

qsa_status qsa_file_refuse(const char *path, const char *what, int code, qsa_error *error) {
    char reason[128];
    if (strerror_r(code, reason, sizeof reason) != 0) {
        reason[0] = '\0';
    }
    return qsa_fail(error, QSA_E_IO, "%s: %s: %s", qsa_show(path).text, what, reason);
}

/* ------------------------------------------------------------------------------------------------ reading */

/* The wait of a pipe that nobody writes to is avoided; a regular file does not notice O_NONBLOCK. */
qsa_status qsa_file_open(const char *path, int *descriptor, int64_t *size, qsa_error *error) {
    struct stat about;
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0) {
        return qsa_file_refuse(path, "cannot open", errno, error);
    }
    int code = fstat(opened, &about) ? errno : 0;
    if (!code && S_ISREG(about.st_mode) && about.st_size > 0) {
        *descriptor = opened;
        *size = (int64_t)about.st_size;
        return QSA_OK;
    }
    close(opened);
    if (code) {
        return qsa_file_refuse(path, "cannot look at it", code, error);
    }
    return qsa_fail(error, QSA_E_IO, "%s: %s", qsa_show(path).text,
                    S_ISREG(about.st_mode) ? "the file is empty" : "expected a regular file");
}

qsa_status qsa_file_read(const char *path, int descriptor, void *out, int64_t bytes, int64_t offset, qsa_error *error) {
    char *to = out;
    while (bytes > 0) {
        ssize_t got = pread(descriptor, to, (size_t)qsa_min(bytes, PART), (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return qsa_file_refuse(path, "cannot read", errno, error);
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

/* ------------------------------------------------------------------------------------------------ replacing */

/* The folder of a path: what stands before its last slash, in `folder`, which has room for the path and two bytes. */
static void folder_of(const char *path, char *folder) {
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) + (slash == path) : 1;
    memcpy(folder, slash ? path : ".", length);
    folder[length] = '\0';
}

/* A name beside the path that no other call takes at the same time: O_EXCL decides, the clock spares it the work. */
static int open_beside(qsa_new_file *file) {
    struct timespec now = {0};
    for (uint64_t attempt = 0; attempt < ATTEMPTS; attempt++) {
        clock_gettime(CLOCK_REALTIME, &now);
        uint64_t mark = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + (attempt << 56);
        snprintf(file->temporary, file->bytes, "%s.%016llx.part", file->path, (unsigned long long)mark);
        int opened = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
        if (opened >= 0 || errno != EEXIST) {
            return opened;
        }
    }
    return -1;
}

qsa_status qsa_file_create(const qsa_allocator *allocator, const char *path, qsa_new_file *file, qsa_error *error) {
    size_t bytes = strlen(path) + SUFFIX;
    *file = (qsa_new_file){.allocator = allocator, .path = path, .bytes = bytes, .descriptor = -1};
    file->temporary = qsa_allocate(allocator, bytes, 16);
    if (!file->temporary) {
        return qsa_fail(error, QSA_E_MEMORY, "%zu bytes for a file's name were refused", bytes);
    }
    file->descriptor = open_beside(file);
    if (file->descriptor < 0) {
        int code = errno;
        qsa_release(allocator, file->temporary, bytes, 16);
        file->temporary = NULL;
        return qsa_file_refuse(path, "cannot make a file beside it", code, error);
    }
    return QSA_OK;
}

qsa_status qsa_file_write(qsa_new_file *file, const void *data, int64_t bytes, qsa_error *error) {
    const char *from = data;
    while (bytes > 0) {
        ssize_t put = write(file->descriptor, from, (size_t)qsa_min(bytes, PART));
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            return qsa_file_refuse(file->temporary, "cannot write", put < 0 ? errno : ENOSPC, error);
        }
        from += put;
        bytes -= put;
    }
    return QSA_OK;
}

/* A rename lives through a power cut once its folder is on the disk. File systems that cannot do that say EINVAL. */
static qsa_status sync_folder(qsa_new_file *file, qsa_error *error) {
    folder_of(file->path, file->temporary); /* its memory is free by now */
    int folder = open(file->temporary, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    int code = folder < 0 ? errno : 0;
    if (!code && fsync(folder) && errno != EINVAL) {
        code = errno;
    }
    if (folder >= 0) {
        close(folder);
    }
    return code ? qsa_file_refuse(file->path, "is whole, but its folder cannot be brought to the disk", code, error) : QSA_OK;
}

/* close() gives the descriptor up even where it fails, so it is called once. */
static int close_once(qsa_new_file *file) {
    int descriptor = file->descriptor;
    file->descriptor = -1;
    return close(descriptor);
}

qsa_status qsa_file_replace(qsa_new_file *file, qsa_error *error) {
    qsa_status status = QSA_OK;
    if (fsync(file->descriptor)) {
        status = qsa_file_refuse(file->temporary, "cannot be brought to the disk", errno, error);
    } else if (close_once(file)) {
        status = qsa_file_refuse(file->temporary, "cannot be closed", errno, error);
    } else if (rename(file->temporary, file->path)) {
        status = qsa_file_refuse(file->path, "cannot be replaced", errno, error);
    }
    if (status) {
        qsa_file_discard(file);
        return status;
    }
    status = sync_folder(file, error);
    qsa_release(file->allocator, file->temporary, file->bytes, 16);
    return status;
}

void qsa_file_discard(qsa_new_file *file) {
    if (file->descriptor >= 0) {
        close_once(file);
    }
    unlink(file->temporary);
    qsa_release(file->allocator, file->temporary, file->bytes, 16);
}
