/* SPDX-License-Identifier: MIT */
/* Lists that grow, sorted by name. */
#include "layer/tensors.h"
#include "runtime/memory.h"

#include <string.h>

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
