/* SPDX-License-Identifier: MIT */
/*
 * Runs a target over its corpus without libFuzzer: replay FOLDER [ROUNDS]. Each file as it is, and ROUNDS times with a few
 * bytes changed, cut off or doubled by a generator that begins anew with each file. A find aborts; else "N passed, 0 failed".
 */
#define _POSIX_C_SOURCE 200809L
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 17 };

static uint64_t state;

static uint64_t random_below(uint64_t end) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % end;
}

static size_t change(unsigned char *data, size_t size) {
    for (uint64_t i = 1 + random_below(4); i && size; i--) {
        size_t at = (size_t)random_below(size);
        switch (random_below(4)) {
        case 0: data[at] = (unsigned char)(data[at] ^ 1u << random_below(8)); break;
        case 1: data[at] = (unsigned char)random_below(256); break;
        case 2: size = at + 1; break;
        default:
            if (size < MOST - 64) { /* a piece of up to 32 bytes again behind itself */
                size_t piece = 1 + (size_t)random_below(32);
                piece = piece < size - at ? piece : size - at;
                memmove(data + at + piece, data + at, size - at);
                size += piece;
            }
        }
    }
    return size;
}

/* As malloc gives it, so that sanitizers see the first byte behind. */
static void run(const unsigned char *data, size_t size) {
    unsigned char *copy = malloc(size ? size : 1);
    if (!copy) {
        abort();
    }
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static int run_file(const char *path, long rounds) {
    static unsigned char whole[MOST], data[MOST];
    FILE *file = fopen(path, "rb");
    size_t size = file ? fread(whole, 1, sizeof whole, file) : 0;
    if (!file || fclose(file) || size == sizeof whole) {
        fprintf(stderr, "%s: cannot be read, or has more than %d bytes\n", path, MOST - 1);
        return 1;
    }
    run(whole, size);
    state = size;
    for (long i = 0; i < rounds; i++) {
        memcpy(data, whole, size);
        run(data, change(data, size));
    }
    return 0;
}

int main(int argc, char **argv) {
    struct dirent **names = NULL;
    int count = argc > 1 ? scandir(argv[1], &names, NULL, alphasort) : -1, passed = 0, failed = 0;
    if (count < 0) {
        fprintf(stderr, "usage: %s FOLDER [ROUNDS]\n", argv[0]);
        return 2;
    }
    for (int i = 0; i < count; i++) {
        char path[4096];
        if (names[i]->d_name[0] != '.' && snprintf(path, sizeof path, "%s/%s", argv[1], names[i]->d_name) < (int)sizeof path) {
            int bad = run_file(path, argc > 2 ? strtol(argv[2], NULL, 10) : 0);
            passed += !bad;
            failed += bad;
        }
        free(names[i]);
    }
    free(names);
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
