/* SPDX-License-Identifier: MIT */
/* Multiply-add peaks: loops of independent multiply-adds on registers, as many as hide their latency. */
#define _DEFAULT_SOURCE
#include "bench_peaks.h"

#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define RATES_X86 1
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__GNUC__)
#define RATES_ARM 1
#include <arm_neon.h>
#endif

enum { LOOPS = 40000, CHAINS = 12, TILE_LOOPS = LOOPS / 8 };

#define EACH_CHAIN(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)

/* Returns the multiply-adds it made. */
typedef int64_t rate_loop(void);

#if defined(RATES_X86)
#define TARGET(isa)     __attribute__((target(isa), noinline))
#define DECLARE_F(i)    __m512 f##i = _mm512_setzero_ps();
#define DECLARE_I(i)    __m512i s##i = _mm512_setzero_si512();
#define DECLARE_F256(i) __m256 f##i = _mm256_setzero_ps();
#define DECLARE_I256(i) __m256i s##i = _mm256_setzero_si256(), p##i;
#define DECLARE_F128(i) __m128 f##i = _mm_setzero_ps(), p##i;
#define DECLARE_I128(i) __m128i s##i = _mm_setzero_si128(), p##i;

TARGET("avx512f") static int64_t float_avx512(void) {
    __m512 x = _mm512_set1_ps(0.5f);
    EACH_CHAIN(DECLARE_F)
    for (int n = 0; n < LOOPS; n++) {
#define STEP(i) __asm__ volatile("vfmadd231ps %1, %1, %0" : "+v"(f##i) : "v"(x));
        EACH_CHAIN(STEP)
#undef STEP
    }
    return (int64_t)LOOPS * CHAINS * 16;
}

TARGET("avx512f,avx512vnni") static int64_t integer_avx512(void) {
    __m512i x = _mm512_set1_epi16(3);
    EACH_CHAIN(DECLARE_I)
    for (int n = 0; n < LOOPS; n++) {
#define STEP(i) __asm__ volatile("vpdpwssd %1, %1, %0" : "+v"(s##i) : "v"(x));
        EACH_CHAIN(STEP)
#undef STEP
    }
    return (int64_t)LOOPS * CHAINS * 32;
}

TARGET("avx2,fma") static int64_t float_avx2(void) {
    __m256 x = _mm256_set1_ps(0.5f);
    EACH_CHAIN(DECLARE_F256)
    for (int n = 0; n < LOOPS; n++) {
#define STEP(i) __asm__ volatile("vfmadd231ps %1, %1, %0" : "+x"(f##i) : "x"(x));
        EACH_CHAIN(STEP)
#undef STEP
    }
    return (int64_t)LOOPS * CHAINS * 8;
}

TARGET("avx2") static int64_t integer_avx2(void) {
    __m256i x = _mm256_set1_epi16(3);
    EACH_CHAIN(DECLARE_I256)
    for (int n = 0; n < LOOPS; n++) {
#define STEP(i) __asm__ volatile("vpmaddwd %2, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(s##i), "=&x"(p##i) : "x"(x));
        EACH_CHAIN(STEP)
#undef STEP
    }
    return (int64_t)LOOPS * CHAINS * 16;
}

TARGET("sse2") static int64_t float_c(void) {
    __m128 x = _mm_set1_ps(0.5f);
    EACH_CHAIN(DECLARE_F128)
    for (int n = 0; n < LOOPS; n++) {
#define STEP(i) __asm__ volatile("movaps %2, %1\n\tmulps %2, %1\n\taddps %1, %0" : "+x"(f##i), "=&x"(p##i) : "x"(x));
        EACH_CHAIN(STEP)
#undef STEP
    }
    return (int64_t)LOOPS * CHAINS * 4;
}

TARGET("sse2") static int64_t integer_c(void) {
    __m128i x = _mm_set1_epi16(3);
    EACH_CHAIN(DECLARE_I128)
    for (int n = 0; n < LOOPS; n++) {
#define STEP(i) __asm__ volatile("movdqa %2, %1\n\tpmaddwd %2, %1\n\tpaddd %1, %0" : "+x"(s##i), "=&x"(p##i) : "x"(x));
        EACH_CHAIN(STEP)
#undef STEP
    }
    return (int64_t)LOOPS * CHAINS * 8;
}

/* Eight tiles of 16 rows of 64 bytes; four of them are sums. */
typedef struct tile_setup {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_setup;

TARGET("amx-tile,amx-int8") static int64_t integer_amx(void) {
    tile_setup setup = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        setup.bytes[i] = 64;
        setup.rows[i] = 16;
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(setup)); /* the intrinsic of gcc 12 forgets that it reads memory */
    _tile_zero(4);
    _tile_zero(5);
    for (int n = 0; n < TILE_LOOPS; n++) {
        _tile_dpbssd(0, 4, 5);
        _tile_dpbssd(1, 4, 5);
        _tile_dpbssd(2, 4, 5);
        _tile_dpbssd(3, 4, 5);
    }
    _tile_release();
    return (int64_t)TILE_LOOPS * 4 * (16 * 16 * 64 / 2);
}

static rate_loop *float_loop(bench_isa isa) {
    return isa == BENCH_AVX512 || isa == BENCH_AMX ? float_avx512 : isa == BENCH_AVX2 ? float_avx2 : float_c;
}

static rate_loop *integer_loop(bench_isa isa) {
    switch (isa) {
    case BENCH_AMX:
        return integer_amx;
    case BENCH_AVX512:
        return integer_avx512;
    case BENCH_AVX2:
        return integer_avx2;
    default:
        return integer_c;
    }
}

#elif defined(RATES_ARM)

static int64_t float_neon(void) {
    float32x4_t x = vdupq_n_f32(0.5f);
#define DECLARE_F(i) float32x4_t f##i = vdupq_n_f32(0.0f);
    EACH_CHAIN(DECLARE_F)
    for (int n = 0; n < LOOPS; n++) {
#define STEP(i)      __asm__ volatile("fmla %0.4s, %1.4s, %1.4s" : "+w"(f##i) : "w"(x));
        EACH_CHAIN(STEP)
#undef STEP
    }
    return (int64_t)LOOPS * CHAINS * 4;
}

static int64_t integer_neon(void) {
    int16x8_t x = vdupq_n_s16(3);
#define DECLARE_I(i) int32x4_t s##i = vdupq_n_s32(0);
    EACH_CHAIN(DECLARE_I)
    for (int n = 0; n < LOOPS; n++) {
#define STEP(i)      __asm__ volatile("smlal %0.4s, %1.4h, %1.4h" : "+w"(s##i) : "w"(x));
        EACH_CHAIN(STEP)
#undef STEP
    }
    return (int64_t)LOOPS * CHAINS * 4;
}

static rate_loop *float_loop(bench_isa isa) {
    (void)isa;
    return float_neon;
}

static rate_loop *integer_loop(bench_isa isa) {
    (void)isa;
    return integer_neon;
}

#else

static int64_t float_c(void) {
    volatile float sink;
    float sum[16] = {0}, x = 0.5f;
    __asm__ volatile("" : "+m"(x));
    for (int n = 0; n < LOOPS; n++) {
        for (int i = 0; i < 16; i++) {
            sum[i] += x * x;
        }
    }
    for (int i = 0; i < 16; i++) {
        sink = sum[i];
    }
    (void)sink;
    return (int64_t)LOOPS * 16;
}

static int64_t integer_c(void) {
    volatile int32_t sink;
    int32_t sum[16] = {0};
    int16_t x = 3;
    __asm__ volatile("" : "+m"(x));
    for (int n = 0; n < LOOPS; n++) {
        for (int i = 0; i < 16; i++) {
            sum[i] += x * (x + n % 2);
        }
    }
    for (int i = 0; i < 16; i++) {
        sink = sum[i];
    }
    (void)sink;
    return (int64_t)LOOPS * 16;
}

static rate_loop *float_loop(bench_isa isa) {
    (void)isa;
    return float_c;
}

static rate_loop *integer_loop(bench_isa isa) {
    (void)isa;
    return integer_c;
}

#endif

bench_isa bench_isa_of(const char *kernel_name) {
    static const char *const ends[] = {"_c", "_avx2", "_avx512", "_amx", "_neon"};
    const char *end = strrchr(kernel_name, '_');
    for (int i = 0; end && i <= BENCH_NEON; i++) {
        if (strcmp(end, ends[i]) == 0) {
            return (bench_isa)i;
        }
    }
    return BENCH_C;
}

typedef struct rate_run {
    rate_loop *loop;
    _Atomic int64_t made; /* multiply-adds of all threads */
} rate_run;

static void run_loop(void *arg, int64_t thread) {
    rate_run *run = arg;
    (void)thread;
    atomic_fetch_add(&run->made, run->loop());
}

static double rate(int64_t threads, rate_loop *loop) {
    rate_run run = {.loop = loop};
    int64_t taken = bench_team(threads, run_loop, &run);
    return (double)run.made / (double)(taken > 0 ? taken : 1);
}

double bench_float_rate(int64_t threads, bench_isa isa) {
    return rate(threads, float_loop(isa));
}

double bench_integer_rate(int64_t threads, bench_isa isa) {
    return rate(threads, integer_loop(isa));
}
