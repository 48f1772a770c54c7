/* SPDX-License-Identifier: MIT */
/*
 * Faults of files while a snapshot is saved: each system call fails at its n-th time, for every n; writes are cut short and
 * interrupted; the process is killed at any call. There is the old file or the new one, whole, and no other. The linker puts
 * the calls here in front of libc's.
 */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "support/counted.h"
#include "support/sample.h"
#include "support/stream.h"

/* ------------------------------------------------------------------------------------------------ in front of libc */

enum call { OPEN, WRITE, FSYNC, CLOSE, RENAME, CALLS };

static const char *const names[CALLS] = {"open", "write", "fsync", "close", "rename"};

static struct {
    int64_t calls[CALLS], all;  /* so far */
    int64_t fail_at[CALLS];     /* the call that fails, 0: none */
    int code;                   /* and how */
    int64_t kill_at;            /* of all: the process ends before it */
    size_t short_by;            /* bytes that each write leaves; 0: none */
    int interrupts;             /* every second write is interrupted */
} plan;

static int fails(enum call call) {
    if (++plan.all == plan.kill_at) {
        _exit(42); /* nothing of ours runs any more, as after kill -9 */
    }
    if (++plan.calls[call] != plan.fail_at[call]) {
        return 0;
    }
    errno = plan.code;
    return 1;
}

int __real_open(const char *path, int flags, ...);
ssize_t __real_write(int file, const void *data, size_t bytes);
int __real_fsync(int file);
int __real_close(int file);
int __real_rename(const char *from, const char *to);

int __wrap_open(const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    unsigned mode = flags & O_CREAT ? va_arg(list, unsigned) : 0;
    va_end(list);
    return fails(OPEN) ? -1 : __real_open(path, flags, mode);
}

int __wrap_open64(const char *path, int flags, unsigned mode) { /* what a libc may make of it; always with a mode here */
    return fails(OPEN) ? -1 : __real_open(path, flags, mode);
}

ssize_t __wrap_write(int file, const void *data, size_t bytes) {
    if (fails(WRITE)) {
        return -1;
    }
    if (plan.interrupts && plan.calls[WRITE] % 2 == 0) {
        errno = EINTR;
        return -1;
    }
    return __real_write(file, data, bytes > plan.short_by + 1 ? bytes - plan.short_by : bytes);
}

int __wrap_fsync(int file) {
    return fails(FSYNC) ? -1 : __real_fsync(file);
}

int __wrap_close(int file) {
    int result = __real_close(file); /* a failing close() has closed, too */
    return fails(CLOSE) ? -1 : result;
}

int __wrap_rename(const char *from, const char *to) {
    return fails(RENAME) ? -1 : __real_rename(from, to);
}

/* ------------------------------------------------------------------------------------------------ the scene */

enum { OLD = 21, NEW = 133 };

static counter count;
static qsa_context *context;
static sample cells;
static qsa_cache *cache;
static qsa_sequence *sequence;
static char folder[64], path[96];

static int set_up(void **state) {
    (void)state;
    qsa_shape shape = sample_shape();
    QSA_INIT(qsa_options, options);
    options.threads = 1;
    options.allocator = counted(&count);
    assert_int_equal(qsa_open(&options, &context, NULL), QSA_OK);
    cells = sample_make(&shape, 200, 29);
    qsa_cache_options cache_options = sample_options(&cells, QSA_I8_G64, QSA_BF16, 400);
    cache = sample_cache(context, &cache_options);
    sequence = sample_sequence(cache);
    sample_grow(sequence, &cells, NEW);
    snprintf(folder, sizeof folder, "injected-%ld", (long)getpid());
    snprintf(path, sizeof path, "%s/chat.qsa", folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    unlink(path);
    assert_int_equal(rmdir(folder), 0); /* nothing else is in it */
    qsa_sequence_destroy(sequence);
    qsa_cache_destroy(cache);
    sample_free(&cells);
    qsa_close(context);
    assert_int_equal(count.bytes, 0);
    return 0;
}

static void put_old_file(void) {
    memset(&plan, 0, sizeof plan);
    qsa_sequence *old = NULL;
    assert_int_equal(qsa_sequence_fork(sequence, OLD - 1, &old, NULL), QSA_OK); /* a multiple of block */
    assert_int_equal(qsa_sequence_save_file(old, INT64_MAX, path, NULL), QSA_OK);
    qsa_sequence_destroy(old);
    memset(&plan, 0, sizeof plan);
}

static int64_t files_there(void) {
    int64_t files = 0;
    DIR *opened = opendir(folder);
    assert_non_null(opened);
    for (struct dirent *entry; (entry = readdir(opened));) {
        files += entry->d_name[0] != '.';
    }
    closedir(opened);
    return files;
}

/* Cells of the snapshot at `path`, whose checksums are right. */
static int64_t cells_there(void) {
    QSA_INIT(qsa_snapshot_info, info);
    qsa_error error;
    memset(&plan, 0, sizeof plan);
    sample_ok(qsa_snapshot_inspect_file(NULL, path, &info, &error), &error);
    return info.longest;
}

static void the_new_file_is_right(void) {
    qsa_sequence *restored = NULL;
    qsa_error error;
    assert_int_equal(files_there(), 1);
    assert_int_equal(cells_there(), NEW);
    sample_ok(qsa_sequence_restore_file(cache, path, &restored, &error), &error);
    stream one = stream_saved(sequence, INT64_MAX), two = stream_saved(restored, INT64_MAX);
    stream_same(&one, &two);
    stream_free(&one);
    stream_free(&two);
    qsa_sequence_destroy(restored);
}

/* ------------------------------------------------------------------------------------------------ the faults */

static void each_call_fails(void **state) {
    (void)state;
    static const int codes[CALLS] = {EACCES, ENOSPC, EIO, EIO, EXDEV};
    for (int call = 0; call < CALLS; call++) {
        int64_t n = 1;
        for (;; n++) {
            qsa_error error;
            put_old_file();
            plan.fail_at[call] = n;
            plan.code = codes[call];
            int64_t held = count.bytes;
            qsa_status status = qsa_sequence_save_file(sequence, INT64_MAX, path, &error);
            int reached = plan.calls[call] >= n, folder_call = reached && call != WRITE && call != RENAME && n == 2;
            assert_int_equal(count.bytes, held);
            if (!status) {
                /* Either the plan was over, or the folder's close() failed, by when everything is on the disk. */
                assert_true(!reached || (call == CLOSE && n == 2));
                the_new_file_is_right();
                if (reached) {
                    continue;
                }
                break;
            }
            assert_int_equal(status, QSA_E_IO);
            assert_true(reached);
            assert_non_null(strstr(error.message, folder));
            assert_null(strchr(error.message, '\n'));
            if (folder_call) { /* the new one is in place, and the message says what is open */
                assert_non_null(strstr(error.message, "is whole, but its folder"));
                the_new_file_is_right();
            } else {
                assert_int_equal(files_there(), 1);
                assert_int_equal(cells_there(), OLD - 1);
            }
        }
        if (call == WRITE ? n < 10 : n < 2) {
            fail_msg("%s was called %lld times", names[call], (long long)n - 1);
        }
    }
}

/* A file system that cannot bring folders to the disk says EINVAL: no fault. */
static void folders_that_cannot_be_synced(void **state) {
    (void)state;
    put_old_file();
    plan.fail_at[FSYNC] = 2;
    plan.code = EINVAL;
    assert_int_equal(qsa_sequence_save_file(sequence, INT64_MAX, path, NULL), QSA_OK);
    the_new_file_is_right();
}

static void writes_are_cut_and_interrupted(void **state) {
    (void)state;
    for (size_t by = 0; by < 5000; by = by * 3 + 1) {
        put_old_file();
        plan.short_by = by;
        plan.interrupts = 1;
        assert_int_equal(qsa_sequence_save_file(sequence, INT64_MAX, path, NULL), QSA_OK);
        assert_true(plan.calls[WRITE] > 20);
        the_new_file_is_right();
    }
}

/* Killed before the n-th call of any kind: the file is the old or the new one. What lies beside it ends in ".part". */
static void killed_at_any_call(void **state) {
    (void)state;
    int64_t n = 1, old = 0, new = 0;
    for (int alive = 0; !alive; n++) {
        put_old_file();
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            plan.kill_at = n;
            _exit(qsa_sequence_save_file(sequence, INT64_MAX, path, NULL) == QSA_OK ? 0 : 1);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 42));
        alive = WEXITSTATUS(status) == 0;
        int64_t found = cells_there();
        old += found == OLD - 1;
        new += found == NEW;
        DIR *opened = opendir(folder);
        assert_non_null(opened);
        for (struct dirent *entry; (entry = readdir(opened));) {
            size_t length = strlen(entry->d_name);
            if (length > 5 && !strcmp(entry->d_name + length - 5, ".part")) {
                char part[512];
                snprintf(part, sizeof part, "%s/%s", folder, entry->d_name);
                assert_int_equal(unlink(part), 0);
            }
        }
        closedir(opened);
        assert_int_equal(files_there(), 1);
    }
    assert_int_equal(old + new, n - 1);
    assert_true(old > 10 && new >= 3); /* killed before the folder's open, fsync and not at all, at least */
}

/* To where no file can be. */
static void impossible_paths(void **state) {
    (void)state;
    qsa_error error;
    memset(&plan, 0, sizeof plan);
    char path_of[128];
    snprintf(path_of, sizeof path_of, "%s/none/chat.qsa", folder);
    assert_int_equal(qsa_sequence_save_file(sequence, INT64_MAX, path_of, &error), QSA_E_IO);
    assert_non_null(strstr(error.message, "none/chat.qsa"));
    assert_int_equal(qsa_sequence_save_file(sequence, INT64_MAX, folder, &error), QSA_E_IO); /* a folder */
    assert_int_equal(qsa_sequence_save_file(sequence, INT64_MAX, "", &error), QSA_E_ARGUMENT);
    assert_int_equal(qsa_sequence_save_file(sequence, INT64_MAX, NULL, &error), QSA_E_ARGUMENT);
    qsa_sequence *none = sequence;
    assert_int_equal(qsa_sequence_restore_file(cache, path_of, &none, &error), QSA_E_IO);
    assert_null(none);
    assert_int_equal(qsa_sequence_restore_file(cache, folder, &none, &error), QSA_E_IO);
    put_old_file();
    assert_int_equal(files_there(), 1);
}

/* Another user of the machine must not read a conversation. */
static void only_its_owner_reads_it(void **state) {
    (void)state;
    struct stat about;
    put_old_file();
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
}

/* A name without a folder, in the folder where we are. */
static void names_without_a_folder(void **state) {
    (void)state;
    char name[64];
    memset(&plan, 0, sizeof plan);
    snprintf(name, sizeof name, "injected-%ld.qsa", (long)getpid());
    assert_int_equal(qsa_sequence_save_file(sequence, INT64_MAX, name, NULL), QSA_OK);
    assert_int_equal(plan.calls[FSYNC], 2);
    qsa_sequence *restored = NULL;
    assert_int_equal(qsa_sequence_restore_file(cache, name, &restored, NULL), QSA_OK);
    qsa_sequence_destroy(restored);
    assert_int_equal(unlink(name), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_paths),
        cmocka_unit_test(each_call_fails),
        cmocka_unit_test(folders_that_cannot_be_synced),
        cmocka_unit_test(writes_are_cut_and_interrupted),
        cmocka_unit_test(killed_at_any_call),
        cmocka_unit_test(only_its_owner_reads_it),
        cmocka_unit_test(names_without_a_folder),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
