/* SPDX-License-Identifier: MIT */
/* What this machine can do at most: bytes read from memory and multiply-adds a second, with a number of threads. */
#ifndef QSA_TOOLS_BENCH_PEAKS_H
#define QSA_TOOLS_BENCH_PEAKS_H

#include <stddef.h>
#include <stdint.h>

int64_t bench_now_ns(void);

/* Bytes of the last-level caches of all CPUs; 32 MiB where the system does not say. */
int64_t bench_last_level_cache(void);

/* Memory that may be taken without swapping, in bytes; 1 GiB where the system does not say. */
int64_t bench_free_memory(void);

/* Memory on huge pages where there are any, written once; free() releases it. bytes: a multiple of 2 MiB. Or NULL. */
char *bench_huge_memory(int64_t bytes);

/* Runs body(arg, i) for i in 0..threads-1, each on its own thread, started together; nanoseconds to the last end.
 * Fewer bodies run where threads cannot be made. */
int64_t bench_team(int64_t threads, void (*body)(void *arg, int64_t thread), void *arg);

/* Reads `bytes` bytes from the start to the end; gbs[i]: bytes a nanosecond in slice i of `slice` bytes each. What does
 * not fill a slice is left out. Returns how many slices there were; 0 without memory. */
int64_t bench_read(int64_t threads, const char *memory, int64_t bytes, int64_t slice, double *gbs);

/* What the multiply-adds are made of, by the end of a kernel's name: "c", "avx2", "avx512", "amx", "neon". */
typedef enum bench_isa { BENCH_C, BENCH_AVX2, BENCH_AVX512, BENCH_AMX, BENCH_NEON } bench_isa;
bench_isa bench_isa_of(const char *kernel_name);

/* f32 multiply-adds a nanosecond, of all threads. */
double bench_float_rate(int64_t threads, bench_isa isa);

/* Multiply-adds of 16-bit integers into 32-bit sums a nanosecond, of all threads. AMX has 8-bit ones only: two count
 * as one. */
double bench_integer_rate(int64_t threads, bench_isa isa);

#endif
