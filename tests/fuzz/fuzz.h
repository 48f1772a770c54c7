/* SPDX-License-Identifier: MIT */
/*
 * What every target shares. A target reads its input as a story, not as a format: bytes taken one after the other decide what happens
 * next, so that each input means something and small changes of it are small changes of the story.
 */
#ifndef QSA_FUZZ_FUZZ_H
#define QSA_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* libFuzzer's name for a target; replay.c calls it for each file of a corpus. It aborts on a find, and returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct story {
    const uint8_t *at;
    size_t left;
} story;

/* The next byte, 0 behind the last. */
static inline unsigned next_byte(story *s) {
    if (!s->left) {
        return 0;
    }
    s->left--;
    return *s->at++;
}

#endif
