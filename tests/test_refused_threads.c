/* SPDX-License-Identifier: MIT */
/* The n-th thread cannot be made, for every n: qsa_open() says so, those before it are joined, nothing is lost. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <qsa/qsa.h>

#include "support/counted.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED

int main(void) {
    puts("skipped: the sanitizer of this build has a pthread_create of its own, which ours would have to replace");
    return 0;
}

#else

static int created, refuse_at; /* so far; the one to refuse, 0: none */
static atomic_int ended;

typedef struct job {
    void *(*body)(void *);
    void *arg;
} job;

static job jobs[64];

static void *run_job(void *arg) {
    const job *j = arg;
    void *result = j->body(j->arg);
    atomic_fetch_add(&ended, 1);
    return result;
}

/* In front of the system's. */
int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attr, void *(*body)(void *),
                   void *restrict arg) {
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    void *symbol = dlsym(RTLD_NEXT, "pthread_create");
    memcpy(&real, &symbol, sizeof real);
    if (created + 1 == refuse_at || created == 64) {
        refuse_at = 0;
        return 11; /* EAGAIN */
    }
    jobs[created] = (job){body, arg};
    return real(thread, attr, run_job, &jobs[created++]);
}

static void every_thread_is_refused_in_turn(void **state) {
    (void)state;
    enum { THREADS = 9 };
    counter count = {0, 0, 0};
    QSA_INIT(qsa_options, options);
    options.threads = THREADS;
    options.allocator = counted(&count);
    for (int n = 1; n <= THREADS; n++) {
        qsa_context *context;
        qsa_error error;
        created = 0;
        atomic_store(&ended, 0);
        refuse_at = n;
        qsa_status status = qsa_open(&options, &context, &error);
        if (n < THREADS) { /* the caller is one of them */
            assert_int_equal(status, QSA_E_MEMORY);
            assert_null(context);
            assert_non_null(strstr(error.message, "options.threads is 9"));
            assert_int_equal(created, n - 1);
        } else {
            assert_int_equal(status, QSA_OK);
            assert_int_equal(created, THREADS - 1);
            assert_int_equal(atomic_load(&ended), 0);
            qsa_close(context);
        }
        assert_int_equal(atomic_load(&ended), created);
        assert_int_equal(count.bytes, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_thread_is_refused_in_turn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
