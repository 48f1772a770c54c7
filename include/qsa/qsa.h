/* SPDX-License-Identifier: MIT */
/*
 * qsa - QSA (Qwen Sparse Attention) decode on CPUs: the whole public interface.
 *
 * For each new token of a sequence QSA runs four stages:
 *
 *     score   an index query against the keys of blocks of `block` cached cells   -> one score a block
 *     select  the `budget` best cells' worth of blocks, and the unfinished tail   -> ascending cell ids
 *     attend  the queries against those cells only, in chunks                     -> partials (acc, m, l)
 *     merge   the partials of all chunks, times sigmoid(gate)                     -> the attention output
 *
 * A CELL is one cached token of one layer. A BLOCK is `block` consecutive cells of one sequence, cut by cell rank. A ROW is
 * one query token. n is the number of cells that a row sees: its own cell and all before it. The TAIL is the n % block cells
 * after the last complete block. The formulas are in docs/spec.md, the rounding of each in docs/numerics.md.
 *
 * Two levels. (1) The STAGES work on arrays the caller owns. (2) A CONTEXT holds threads and kernels, a CACHE holds pages of
 * cells for all layers, a SEQUENCE holds a page table; qsa_append() and qsa_decode() do a whole step.
 *
 * Rules that hold for every call:
 *   - Structs that start with `size` are filled by the caller: set size = sizeof(the struct), zero the rest; a field left
 *     zero means its stated default. QSA_INIT(type, name) does both.
 *   - A call that can fail returns a qsa_status and takes a `qsa_error *` (may be NULL) last, in which it says which argument
 *     was wrong, what it was and what was expected. After a failure nothing has changed and every object is usable.
 *   - Handles are opaque; who creates one destroys it. Destroying NULL does nothing. Arrays passed in are borrowed for the
 *     call only, unless their comment says otherwise; outputs must not overlap inputs or each other.
 *   - Sizes, counts and strides are int64_t, in the unit their comment names. Float arrays must be 4-byte aligned.
 *   - Same inputs, same bits out: for every CPU level, thread count, batch, page size and key layout.
 *   - The library never prints, exits, aborts, reads the environment or keeps global state.
 *   - Thread safety: a context may be used by many threads at once. A cache too, except qsa_cache_destroy(). Different
 *     sequences may be used at the same time, also where they share pages. Of one sequence, calls that take it as const
 *     (decode, fork, save, views) may run at the same time; one that changes it (append, truncate, destroy) runs alone.
 */
#ifndef QSA_QSA_H
#define QSA_QSA_H

#include <stddef.h>
#include <stdint.h>

#define QSA_VERSION "0.1.0"
#define QSA_API_VERSION 0 /* the SONAME: grows when a compiled caller would break */

#if defined(_WIN32)
#define QSA_API
#elif defined(__GNUC__)
#define QSA_API __attribute__((visibility("default")))
#else
#define QSA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* `QSA_INIT(qsa_shape, s);` declares s with its size set and everything else zero. */
#ifdef __cplusplus
#define QSA_INIT(type, name) \
    type name = {};          \
    name.size = sizeof(type)
#else
#define QSA_INIT(type, name) type name = {.size = sizeof(type)}
#endif

/* ------------------------------------------------------------------------------------------------ status */

typedef enum qsa_status {
    QSA_OK = 0,
    QSA_E_ARGUMENT = 1,    /* an argument is NULL, out of range or inconsistent with another */
    QSA_E_SHAPE = 2,       /* a shape, format or pair of formats that this library does not compute */
    QSA_E_MEMORY = 3,      /* the allocator returned NULL, or a thread could not be made */
    QSA_E_CAPACITY = 4,    /* the cache has not enough free pages, or the workspace is too small */
    QSA_E_STATE = 5,       /* the object is not in a state that allows this (index keys missing, cells gone) */
    QSA_E_UNSUPPORTED = 6, /* this CPU or this build lacks what was asked for */
    QSA_E_IO = 7,          /* the operating system or a caller's callback refused to open, read or write */
    QSA_E_FORMAT = 8       /* a file is truncated, malformed, or not what it says */
} qsa_status;

typedef struct qsa_error {
    qsa_status status;
    char message[512]; /* one line of UTF-8 without newline; empty when status is QSA_OK */
} qsa_error;

/* "ok", "argument", "shape", ...; never NULL. */
QSA_API const char *qsa_status_name(qsa_status status);

/* QSA_VERSION of the library that is linked, which may be newer than this header. */
QSA_API const char *qsa_version(void);

/* ------------------------------------------------------------------------------------------------ formats */

typedef enum qsa_type {
    QSA_F32 = 1,
    QSA_F16 = 2,    /* IEEE binary16 */
    QSA_BF16 = 3,   /* the upper 16 bits of an f32, rounded to nearest even */
    QSA_I8_G64 = 4, /* int8, one IEEE half scale for each 64 channels: value = int8 * scale (K/V only) */
    QSA_Q8_0 = 5    /* ggml's block_q8_0: {half d; int8 q[32]}, 34 bytes for 32 values (merged output only) */
} qsa_type;

/* "f32", "f16", "bf16", "i8_g64", "q8_0"; "unknown" for anything else. */
QSA_API const char *qsa_type_name(qsa_type type);

/* ------------------------------------------------------------------------------------------------ shape */

typedef struct qsa_shape {
    size_t size;
    int64_t q_heads;     /* 1..256, a multiple of kv_heads; query head h reads KV head h / (q_heads / kv_heads) */
    int64_t kv_heads;    /* 1..64, and q_heads / kv_heads <= 64 */
    int64_t head_dim;    /* 64, 128, ..., 512 */
    int64_t index_heads; /* 1..64 query heads of the indexer; it has one key head */
    int64_t index_dim;   /* 16, 32, ..., 512 */
    int64_t block;       /* 2, 4 or 8 cells */
    int64_t budget;      /* cells that selection may take besides the tail: a multiple of block, block..2^30 */
    float scale;         /* of q.k before the softmax: finite, > 0 */
    float index_scale;   /* of a block score: finite, > 0; spec.md's is 1/sqrt(index_dim) */
} qsa_shape;

/* Fills *shape (size included) for Qwen3.8-Flash-Next: 24 / 2 / 256, index 4 / 128, block 4, budget 2048, scales
 * 1/16 and 1/sqrt(128). */
QSA_API void qsa_shape_qwen38_flash_next(qsa_shape *shape);

/* QSA_OK, or QSA_E_SHAPE with the field, its value and the range. */
QSA_API qsa_status qsa_shape_check(const qsa_shape *shape, qsa_error *error);

/* Which cells a row may take (docs/spec.md, "Selection"). r = n % block. Never mixed inside one call. */
typedef enum qsa_contract {
    QSA_BLOCKS = 0, /* the best budget / block complete blocks, and the r tail cells on top: budget + r cells at most */
    QSA_CELLS = 1,  /* exactly min(n, budget + block - 1) cells: the tail, then whole blocks by score, the last one cut */
    QSA_DENSE = 2   /* all n cells; no index is read. For comparison. Not for qsa_select(). */
} qsa_contract;

/* How many cells a row with n visible cells reads under the contract; 0 for n <= 0. The shape must be valid. */
QSA_API int64_t qsa_width(const qsa_shape *shape, qsa_contract contract, int64_t n);

/* Bytes one cell takes in one layer of a cache: K, V, their scales, and 1/block of an index key. A cache that screens takes
 * (index_dim + 8) / block more. The shape must be valid; 0 for a type that is not a K/V (F32, F16, BF16, I8_G64) or key (F32,
 * BF16) format. */
QSA_API int64_t qsa_bytes_per_cell(const qsa_shape *shape, qsa_type kv_type, qsa_type key_type);

/* ------------------------------------------------------------------------------------------------ context */

/* Instruction sets, each holding those before it on its architecture. */
typedef enum qsa_cpu {
    QSA_CPU_AUTO = 0,   /* the best that this machine has */
    QSA_CPU_C = 1,      /* portable C: the definition of every bit */
    QSA_CPU_AVX2 = 2,   /* AVX2, FMA, F16C */
    QSA_CPU_AVX512 = 3, /* AVX-512 F, BW, VL, DQ, VNNI */
    QSA_CPU_AMX = 4,    /* AMX-INT8 */
    QSA_CPU_NEON = 5    /* aarch64 Advanced SIMD */
} qsa_cpu;

/* "auto", "c", "avx2", "avx512", "amx", "neon"; "unknown" for anything else. */
QSA_API const char *qsa_cpu_name(qsa_cpu cpu);

/* 1 if this build has kernels for the level and this machine can run them, else 0. AUTO and C: always 1. */
QSA_API int qsa_cpu_available(qsa_cpu cpu);

/* alloc returns `bytes` bytes aligned to `align` (a power of two, at most 2 MiB), or NULL; release gets the same sizes back.
 * Both may be called from any thread that calls the library. */
typedef struct qsa_allocator {
    void *user;
    void *(*alloc)(void *user, size_t bytes, size_t align);
    void (*release)(void *user, void *memory, size_t bytes, size_t align);
} qsa_allocator;

/* Runs body(arg, i) once for every i in 0..items-1, on any threads, in any order, and returns when all are done. */
typedef void (*qsa_parallel_for)(void *user, int64_t items, void (*body)(void *arg, int64_t item), void *arg);

typedef struct qsa_options {
    size_t size;
    int64_t threads;               /* 1..1024 that take part, the caller included; 0: one per online core. Ignored with parallel_for */
    qsa_cpu cpu;                   /* a level that is not available is refused with QSA_E_UNSUPPORTED */
    qsa_allocator allocator;       /* all NULL: aligned_alloc and free, with huge pages asked for where the system has them */
    qsa_parallel_for parallel_for; /* NULL: threads of the context's own */
    void *parallel_user;           /* handed to parallel_for */
} qsa_options;

typedef struct qsa_context qsa_context;

/* options may be NULL: all defaults. Threads are made here and wait asleep between calls. A call that finds them busy with
 * another thread's call runs on its own thread alone. */
QSA_API qsa_status qsa_open(const qsa_options *options, qsa_context **context, qsa_error *error);

/* Destroy all caches first. Joins the context's threads. */
QSA_API void qsa_close(qsa_context *context);

/* The level chosen (never AUTO) and the threads that take part (1 with parallel_for). */
QSA_API qsa_cpu qsa_context_cpu(const qsa_context *context);
QSA_API int64_t qsa_context_threads(const qsa_context *context);

/* The kernels chosen: names of kernel i = 0, 1, ... as "qsa_<stage>_<format>_<isa>", NULL after the last. */
QSA_API const char *qsa_context_kernel(const qsa_context *context, int64_t i);

/* ------------------------------------------------------------------------------------------------ views */

/*
 * K and V of one sequence and layer. Channel d of KV head g of cell c is element d (of `type`) at byte
 *     page(c) * page_stride + (c % page_cells) * cell_stride + g * head_stride      behind k or v,
 * its scale (I8_G64) is the half number d / 64 at the same sum of scale_* strides behind k_scale or v_scale, and
 * page(c) = pages[c / page_cells]. With pages == NULL there is one page: byte c * cell_stride + g * head_stride.
 * Strides left 0 mean the packed layout of docs/spec.md: [cell][kv_heads][head_dim], scales [cell][kv_heads][head_dim / 64],
 * page_stride = page_cells * cell_stride.
 */
typedef struct qsa_kv {
    size_t size;
    qsa_type type; /* F32, F16, BF16 or I8_G64 */
    const void *k;
    const void *v;
    const uint16_t *k_scale; /* I8_G64 only, else NULL */
    const uint16_t *v_scale;
    int64_t cell_stride, head_stride, page_stride;                   /* bytes; multiples of the element's size */
    int64_t scale_cell_stride, scale_head_stride, scale_page_stride; /* bytes, even */
    const int32_t *pages;                                            /* page table, or NULL */
    int64_t page_cells;                                              /* a power of two >= block; read only with pages */
    int64_t cells;                                                   /* that exist: every id must be below it */
} qsa_kv;

/* How index keys lie in memory. The scores have the same bits in both. */
typedef enum qsa_key_layout {
    QSA_KEYS_ROWS = 0,  /* block b is [index_dim] elements at byte b * block_stride */
    QSA_KEYS_TILES = 1, /* 16 blocks together: BF16 [index_dim / 2][16 blocks][2], F32 [index_dim][16 blocks] */
} qsa_key_layout;

/* The block keys of one sequence and layer. page(b) = pages[b / page_blocks]; block b lies in its page at index
 * b % page_blocks. With pages == NULL there is one page. TILES: data and page_stride must be 64-byte aligned, whole tiles
 * must be readable, page_blocks is a multiple of 16. */
typedef struct qsa_keys {
    size_t size;
    qsa_type type; /* F32 or BF16 */
    qsa_key_layout layout;
    const void *data;
    int64_t block_stride; /* bytes, ROWS only; 0: packed */
    int64_t page_stride;  /* bytes; 0: packed */
    const int32_t *pages; /* page table, or NULL */
    int64_t page_blocks;  /* a power of two; read only with pages */
    int64_t blocks;       /* complete blocks that exist */
} qsa_keys;

/* ------------------------------------------------------------------------------------------------ stages */

/*
 * score. For row t and block b < n[t] / block:
 *     scores[t][b] = index_scale * sum over h of max(0, iq[t][h] . key[b])
 * and scores[t][n[t] / block] = +infinity, the place of the tail. A NaN in a key or query gives a NaN score.
 */
typedef struct qsa_score_args {
    size_t size;
    const float *iq;      /* [rows][index_heads][index_dim], normed and rotated */
    int64_t rows;         /* >= 0 */
    const int64_t *n;     /* [rows] visible cells, >= 0; n[t] / block <= keys->blocks */
    const qsa_keys *keys; /* shared by all rows */
    float *scores;        /* [rows][score_stride] */
    int64_t score_stride; /* floats, >= max n / block + 1 */
} qsa_score_args;
QSA_API qsa_status qsa_score(qsa_context *context, const qsa_shape *shape, const qsa_score_args *args, qsa_error *error);

/*
 * select. For row t: the cells that `contract` grants, strictly ascending. Higher score first; among equals the lower cell;
 * -0 equals +0; NaN ranks below every number. Only the first n[t] / block scores of a row are read.
 */
typedef struct qsa_select_args {
    size_t size;
    qsa_contract contract; /* BLOCKS or CELLS */
    const float *scores;   /* [rows][score_stride] */
    int64_t score_stride;  /* floats */
    int64_t rows;          /* >= 0 */
    const int64_t *n;      /* [rows] visible cells, 0..2^31 - 1 */
    int32_t *ids;          /* [rows][id_stride]; entries behind the last selected one become -1 */
    int64_t id_stride;     /* entries, >= qsa_width of the longest row */
    int64_t *n_ids;        /* [rows] out: cells selected; may be NULL */
} qsa_select_args;
QSA_API qsa_status qsa_select(qsa_context *context, const qsa_shape *shape, const qsa_select_args *args, qsa_error *error);

/*
 * attend. Part j of row t covers ids[t][j * chunk * fold .. (j + 1) * chunk * fold - 1] and is, for each query head,
 * {acc[head_dim], m, l}: m = max s_c, l = sum exp(s_c - m), acc = sum exp(s_c - m) v_c, s_c = scale * q . k_c.
 * A part without cells is {0, -infinity, 0}. An id of -1 is a hole, skipped; any other id outside 0..kv->cells-1 is refused
 * before anything is written. I8_G64 uses exact integer sums (docs/numerics.md), the other formats f32.
 */
typedef struct qsa_attend_args {
    size_t size;
    const float *q;       /* [rows][q_heads][head_dim], normed and rotated */
    int64_t rows;         /* >= 0 */
    const int32_t *ids;   /* [rows][id_stride]; NULL: the ids of row t are 0..n_ids[t]-1 */
    int64_t id_stride;    /* entries */
    const int64_t *n_ids; /* [rows] entries of each row to read, holes included, >= 0 */
    const qsa_kv *kv;     /* shared by all rows */
    int64_t chunk;        /* 32 or 64 ids; 0: 64 */
    int64_t fold;         /* chunks added up inside one part, >= 1; 0: 1 */
    float *partials;      /* [rows][parts][q_heads][head_dim + 2] */
    int64_t parts;        /* >= ceil(max n_ids / (chunk * fold)) */
} qsa_attend_args;
QSA_API qsa_status qsa_attend(qsa_context *context, const qsa_shape *shape, const qsa_attend_args *args, qsa_error *error);

/*
 * merge. M = max m_j; o = sum acc_j exp(m_j - M) / sum l_j exp(m_j - M), in part order, parts with l = 0 skipped; then
 * o * 1 / (1 + exp(-gate)) element by element; then rounded to out_type. A row without cells gives zeros.
 * Q8_0: d = half(absmax / 127) and q = rint(value * (127 / absmax)), ties to even, for each 32 values.
 */
typedef struct qsa_merge_args {
    size_t size;
    const float *partials; /* [rows][parts][q_heads][head_dim + 2] */
    int64_t parts;         /* >= 0 */
    int64_t rows;          /* >= 0 */
    const float *gate;     /* [rows][q_heads][head_dim]; NULL: no gate */
    void *out;             /* [rows] of q_heads * head_dim values of out_type */
    qsa_type out_type;     /* F32 (also 0), F16, BF16 or Q8_0 */
    int64_t out_stride;    /* bytes between rows; 0: packed */
} qsa_merge_args;
QSA_API qsa_status qsa_merge(qsa_context *context, const qsa_shape *shape, const qsa_merge_args *args, qsa_error *error);

/* Rotation of RoPE: channels i and i + dims/2 of a head turn by pos * theta^(-2i/dims), the first `dims` channels only. */
typedef struct qsa_rope {
    size_t size;
    int64_t dims;       /* even, 2..head_dim and 2..index_dim; 0: 64 */
    double theta;       /* > 1; 0: 1e7. Ignored with a table */
    const float *table; /* [positions][dims / 2][2] = {cos, sin}, for scaled RoPE; NULL: made from theta */
    int64_t positions;  /* rows of the table; a position outside is an error. Without table: positions below 2^31 */
} qsa_rope;

/* {cos, sin} of each pair at `position` >= 0: what a table's row holds. out: [dims / 2][2]. */
QSA_API qsa_status qsa_rope_row(const qsa_rope *rope, int64_t position, float *out, qsa_error *error);

/*
 * The block-key builder: key[i] = round(RoPE(norm(round(mean of its `block` raw keys)))), round being to `type` and
 * norm(x) = x / sqrt(mean(x^2) + eps) * (1 + weight), the rotation that of the block's FIRST cell.
 */
typedef struct qsa_block_keys_args {
    size_t size;
    const float *raw;           /* [blocks * block][index_dim], as projected */
    int64_t blocks;             /* >= 0 */
    const int64_t *positions;   /* [blocks] of first cells; NULL: 0, block, 2 * block, ... */
    const float *norm_weight;   /* [index_dim] */
    float eps;                  /* >= 0 */
    const qsa_rope *rope;       /* NULL: the defaults */
    qsa_type type;              /* F32 or BF16 */
    void *keys;                 /* [blocks][index_dim] */
} qsa_block_keys_args;
QSA_API qsa_status qsa_block_keys(qsa_context *context, const qsa_shape *shape, const qsa_block_keys_args *args, qsa_error *error);

/*
 * The K/V codec on packed arrays. x is [count][64 * groups] f32; encoded is the same count of elements of `type`, and for
 * I8_G64 scales is [count][groups] halves: scale = half(absmax / 127), 1.0 for a group of zeros, element =
 * clamp(rint(x / scale), -127, 127), ties to even. A scale that would round to a half of 0 or infinity becomes the smallest
 * or largest finite half. A NaN becomes element 0. scales is NULL for other types. groups >= 1, count >= 0.
 */
QSA_API qsa_status qsa_kv_encode(qsa_type type, int64_t count, int64_t groups, const float *x, void *encoded, uint16_t *scales,
                                 qsa_error *error);
QSA_API qsa_status qsa_kv_decode(qsa_type type, int64_t count, int64_t groups, const void *encoded, const uint16_t *scales,
                                 float *x, qsa_error *error);

/* ------------------------------------------------------------------------------------------------ cache */

typedef struct qsa_cache qsa_cache;
typedef struct qsa_sequence qsa_sequence;

typedef struct qsa_cache_options {
    size_t size;
    qsa_shape shape;          /* its size set, too */
    int64_t layers;           /* 1..1024 */
    qsa_type kv_type;         /* F32, F16, BF16 or I8_G64; 0: I8_G64 */
    qsa_type key_type;        /* F32 or BF16, never quantised with K/V; 0: BF16 */
    int64_t capacity;         /* cells of each layer that all sequences share, 1..2^31 - 1; rounded up to whole pages */
    int64_t page_cells;       /* a power of two, 16 * block .. 2^20; 0: 256 */
    int64_t rollback;         /* cells of raw index keys kept per layer and sequence, block..65536; 0: 64. See qsa_truncate() */
    const float *index_norm;  /* [layers][index_dim] weights of the index key's norm; copied */
    float eps;                /* of that norm, >= 0; 0: 1e-6 */
    qsa_rope rope;            /* of the index keys (its size set, or all zero for the defaults); the table must outlive the cache */
    int screen;               /* 0 or 1. 1: beside each block key an int8 copy of it with a bound of its error; 0: none */
} qsa_cache_options;

/*
 * screen: rows of 32 times the budget and more (and of 1,024 blocks) then read the int8 copies of all block keys, half the bytes
 * of bf16, and the keys themselves only of blocks that these cannot rule out. The selected cells are the same, always: where
 * the copies rule out too little, all keys are read after all. It takes (index_dim + 8) / block bytes more a cell, and more
 * workspace; the index keys lie in rows then, not in tiles, which makes reading all of them a little slower.
 */

/* Takes all pages at once from the context's allocator: qsa_decode() and qsa_append() allocate nothing. */
QSA_API qsa_status qsa_cache_create(qsa_context *context, const qsa_cache_options *options, qsa_cache **cache, qsa_error *error);

/* Destroy its sequences first. */
QSA_API void qsa_cache_destroy(qsa_cache *cache);

typedef struct qsa_cache_stats {
    size_t size;
    int64_t pages;            /* in all */
    int64_t pages_free;       /* held by no sequence */
    int64_t pages_shared;     /* held by two sequences or more */
    int64_t pages_copied;     /* since the cache was created: written to while shared */
    int64_t page_cells;       /* cells in a page */
    int64_t bytes_per_cell;   /* of one layer: qsa_bytes_per_cell(), and what screening takes */
    int64_t bytes_held;       /* taken from the allocator by the cache and its sequences, all layers */
    int64_t bytes_used;       /* of pages that sequences hold, all layers; a shared page counts once */
    int64_t sequences;        /* alive */
    int64_t block_keys_built; /* since the cache was created; one step of k cells builds at most ceil(k / block) + 1 a layer */
} qsa_cache_stats;
QSA_API qsa_status qsa_cache_get_stats(const qsa_cache *cache, qsa_cache_stats *stats, qsa_error *error);

/* An empty sequence; it takes pages as it grows. */
QSA_API qsa_status qsa_sequence_create(qsa_cache *cache, qsa_sequence **sequence, qsa_error *error);
QSA_API void qsa_sequence_destroy(qsa_sequence *sequence);

/*
 * A new sequence with the first `length` cells of each layer of `source` (all of a layer that is shorter). The two share the
 * pages of these cells; whichever of them, or of later forks, first writes to a shared page takes a page of its own and copies
 * that page's cells (QSA_E_CAPACITY of qsa_append() where none is free). Neither sees what the other appends or truncates.
 * Which lengths work: as in qsa_truncate(). Takes memory for one sequence, and no pages.
 */
QSA_API qsa_status qsa_sequence_fork(const qsa_sequence *source, int64_t length, qsa_sequence **fork, qsa_error *error);

/* Cells of a layer; -1 for a bad argument. */
QSA_API int64_t qsa_sequence_length(const qsa_sequence *sequence, int64_t layer);

/*
 * Appends `cells` cells to one layer. Layers grow apart (a model appends to one, decodes it, then goes on to the next).
 * raw_index NULL stores K/V alone: the layer then has no block keys from here on, and a decode that would need them is
 * refused with QSA_E_STATE until a truncate removes those cells. QSA_E_CAPACITY: not enough pages; nothing was changed.
 * rotation is for positions that are not the cell's rank, such as those of image tokens, of which many share one. Blocks are
 * cut by rank all the same, and a block's key turns by the rotation of its first cell. Without it, every cell's block must
 * begin at a position that the cache's rope has.
 */
typedef struct qsa_append_args {
    size_t size;
    int64_t layer;          /* 0..layers-1 */
    int64_t cells;          /* >= 0 */
    const float *k;         /* [cells][kv_heads][head_dim], normed and rotated */
    const float *v;         /* [cells][kv_heads][head_dim] */
    const float *raw_index; /* [cells][index_dim] as projected, or NULL */
    const float *rotation;  /* [cells][rope.dims / 2][2] = {cos, sin} of the index key at each cell's position; NULL: of its rank */
} qsa_append_args;
QSA_API qsa_status qsa_append(qsa_sequence *sequence, const qsa_append_args *args, qsa_error *error);

/*
 * Shortens every layer that is longer than `length` to it and gives whole pages back. A length inside a block (length %
 * block != 0) needs the raw keys of that block's cells: those of the last `rollback` cells are kept, so that any length
 * >= (longest the layer has been since that cell was written) - rollback + block works; beyond, only multiples of block do,
 * and others are refused with QSA_E_STATE and a length near it that works. Decoding afterwards gives the bits it would have
 * given had the removed cells never been there.
 */
QSA_API qsa_status qsa_truncate(qsa_sequence *sequence, int64_t length, qsa_error *error);

/* Views of a layer, valid until the sequence next grows, shrinks or dies: the stages may run on them. */
QSA_API qsa_status qsa_sequence_kv(const qsa_sequence *sequence, int64_t layer, qsa_kv *view, qsa_error *error);
QSA_API qsa_status qsa_sequence_keys(const qsa_sequence *sequence, int64_t layer, qsa_keys *view, qsa_error *error);

/* ------------------------------------------------------------------------------------------------ decode */

/* The rows of one sequence: its last `rows` cells are their own cells, appended before. Row t sees length - rows + t + 1 cells. */
typedef struct qsa_item {
    const qsa_sequence *sequence;
    int64_t rows;            /* 0..length of the layer */
    const float *q;          /* [rows][q_heads][head_dim], normed and rotated */
    const float *gate;       /* [rows][q_heads][head_dim], or NULL */
    const float *iq;         /* [rows][index_heads][index_dim], normed and rotated; may be NULL where no row needs scores */
    void *out;               /* [rows] of q_heads * head_dim values of out_type, packed */
    const int32_t *ids;      /* attend these instead of selecting: lists of id_stride entries, holes allowed; or NULL */
    const int64_t *n_ids;    /* entries of each list; NULL: id_stride */
    int64_t lists;           /* of ids; 0: one a row */
    const int64_t *list_of;  /* [rows] the list that each row reads; NULL: row t reads list t */
    const int64_t *seen;     /* of each list: behind its entries, its rows read cells seen .. own cell, too; NULL: the list alone */
    int64_t id_stride;       /* of ids and ids_out, entries */
    int32_t *ids_out;        /* [rows][id_stride] out: the selected cells, then -1; NULL: not wanted. id_stride >= the widest row */
} qsa_item;

/*
 * A later draft step may reuse what an earlier step selected instead of scoring: keep ids_out of (sequence, row), pass it as
 * `ids` of an item of that sequence, and as `seen` the visible cells of the row that selected it; the cells that came since
 * are then read as a tail. Lists are the caller's own, so nothing a later layer or step does can change them. Every entry
 * of a list must be below `seen`, and `seen` at most the visible cells of its rows.
 */

typedef struct qsa_decode_args {
    size_t size;
    int64_t layer;
    const qsa_item *items;   /* [item_count] */
    int64_t item_count;      /* >= 0; a sequence may stand in several items */
    qsa_contract contract;
    int64_t chunk;           /* 32 or 64; 0: 64 */
    int64_t fold;            /* chunks added up inside a part; 0: chosen from the width alone (docs/numerics.md) */
    qsa_type out_type;       /* as in qsa_merge_args */
    void *workspace;         /* 64-byte aligned, as planned; one call at a time. Nothing in it lives on after the call */
    size_t workspace_bytes;
    int64_t *stage_ns;       /* [4] out: nanoseconds in score, select, attend, merge are ADDED; or NULL */
} qsa_decode_args;

/* Bytes of workspace that qsa_decode() needs for any call of up to `rows` rows in all, each of up to `cells` visible cells
 * (and up to `cells` ids of its own; where `seen` adds cells, up to qsa_width() + 64 with them, that of QSA_BLOCKS for QSA_DENSE).
 * More rows than are planned for run in waves, a little slower; longer rows are refused with QSA_E_CAPACITY. chunk, fold: as in
 * qsa_decode_args. */
QSA_API qsa_status qsa_plan(const qsa_cache *cache, qsa_contract contract, int64_t rows, int64_t cells, int64_t chunk,
                            int64_t fold, size_t *workspace_bytes, qsa_error *error);

/* score > select > attend > merge for every row of every item. Nothing is allocated. A bad item is refused before anything
 * is written. QSA_E_STATE: index keys are missing where a row needs them. */
QSA_API qsa_status qsa_decode(qsa_cache *cache, const qsa_decode_args *args, qsa_error *error);

/* ------------------------------------------------------------------------------------------------ snapshots */

/*
 * A snapshot is a sequence as bytes: a header with everything that the cells depend on, then a section for each layer, each with
 * a checksum (docs/snapshot.md). What it holds depends neither on page size, screening, capacity nor threads; a sequence that is
 * restored decodes, grows and shrinks with the bits of the one that was saved. Of the raw index keys it has those that the
 * sequence keeps, of which a cache with a smaller rollback keeps the last.
 */

/* Takes the next `bytes` bytes, all of them. Not 0: it gives up, and the call fails with QSA_E_IO. */
typedef int (*qsa_write)(void *user, const void *data, int64_t bytes);

/* Fills up to `bytes` bytes and returns how many; 0: there are no more; below 0: it gives up, and the call fails with QSA_E_IO. */
typedef int64_t (*qsa_read)(void *user, void *data, int64_t bytes);

/*
 * Saves the first `length` cells of each layer (all of a layer that is shorter). Which lengths work: as in qsa_truncate(). Takes
 * some memory while it runs, and no lock: other sequences go on. The callback is called with at most 2^30 bytes at a time,
 * from this thread. To a file: it is written beside `path`, brought to the disk, renamed to `path`, and its folder brought to
 * the disk, so that whenever this stops there is the old file or the new one, whole. Its owner alone may read it.
 */
QSA_API qsa_status qsa_sequence_save(const qsa_sequence *sequence, int64_t length, qsa_write write, void *user, qsa_error *error);
QSA_API qsa_status qsa_sequence_save_file(const qsa_sequence *sequence, int64_t length, const char *path, qsa_error *error);

/*
 * A new sequence of `cache` from a snapshot. QSA_E_FORMAT: it is truncated, damaged, of a later version, or no snapshot;
 * QSA_E_ARGUMENT: it was made with another shape, number of layers, format, norm, eps or rope than the cache has, and the message
 * says which; QSA_E_CAPACITY: not enough pages are free. Of a rope's table only the rows that blocks of the sequence can have
 * read are compared. Nothing behind the snapshot's last byte is read; a file must end there.
 */
QSA_API qsa_status qsa_sequence_restore(qsa_cache *cache, qsa_read read, void *user, qsa_sequence **sequence, qsa_error *error);
QSA_API qsa_status qsa_sequence_restore_file(qsa_cache *cache, const char *path, qsa_sequence **sequence, qsa_error *error);

typedef struct qsa_snapshot_info {
    size_t size;
    int64_t version; /* of the format: 1 */
    int64_t bytes;   /* in all */
    qsa_shape shape;
    int64_t layers;
    qsa_type kv_type, key_type;
    float eps;
    qsa_rope rope;             /* its table is not in a snapshot: NULL, and theta 0 where there was one */
    int64_t longest, shortest; /* cells of a layer */
    int64_t unkeyed;           /* layers that have cells without index keys */
} qsa_snapshot_info;

/* What a snapshot holds. Reads all of it and checks every checksum; allocator may be NULL. */
QSA_API qsa_status qsa_snapshot_inspect(const qsa_allocator *allocator, qsa_read read, void *user, qsa_snapshot_info *info,
                                        qsa_error *error);
QSA_API qsa_status qsa_snapshot_inspect_file(const qsa_allocator *allocator, const char *path, qsa_snapshot_info *info,
                                             qsa_error *error);

/* ------------------------------------------------------------------------------------------------ safetensors */

/* A read-only safetensors file, or a sharded checkpoint through its model.safetensors.index.json. Every offset and size is
 * checked before it is used; a bad file is refused with QSA_E_FORMAT, the byte offset and the reason. */
typedef struct qsa_tensors qsa_tensors;

typedef struct qsa_tensor_info {
    const char *name;    /* owned by the qsa_tensors */
    const char *dtype;   /* as in the file: "BF16", "F32", "I32", ... */
    int64_t rank;        /* 0..8 */
    int64_t shape[8];
    int64_t bytes;
    int64_t offset;      /* of its first byte in its file */
    const char *file;    /* that file's path */
} qsa_tensor_info;

/* allocator may be NULL. path: a .safetensors file, an index .json, or a folder that holds either. */
QSA_API qsa_status qsa_tensors_open(const char *path, const qsa_allocator *allocator, qsa_tensors **tensors, qsa_error *error);
QSA_API void qsa_tensors_close(qsa_tensors *tensors);
QSA_API int64_t qsa_tensors_count(const qsa_tensors *tensors);

/* Tensor i in order of name; then by name. QSA_E_ARGUMENT if there is none. */
QSA_API qsa_status qsa_tensors_get(const qsa_tensors *tensors, int64_t i, qsa_tensor_info *info, qsa_error *error);
QSA_API qsa_status qsa_tensors_find(const qsa_tensors *tensors, const char *name, qsa_tensor_info *info, qsa_error *error);

/* Value of a key in __metadata__, or NULL; owned by the qsa_tensors. Of a sharded checkpoint: of its first shard. */
QSA_API const char *qsa_tensors_metadata(const qsa_tensors *tensors, const char *key);

/* Reads a tensor: as f32 (from F32, F16, BF16), as int32 (from I32 only), or its bytes. count and bytes must match. */
QSA_API qsa_status qsa_tensors_read_f32(const qsa_tensors *tensors, const char *name, float *out, int64_t count, qsa_error *error);
QSA_API qsa_status qsa_tensors_read_i32(const qsa_tensors *tensors, const char *name, int32_t *out, int64_t count, qsa_error *error);
QSA_API qsa_status qsa_tensors_read_bytes(const qsa_tensors *tensors, const char *name, void *out, int64_t bytes, qsa_error *error);

/* ------------------------------------------------------------------------------------------------ layer */

/* The model's side of one attention layer: projections, norms, RoPE, the index branch. Weights are held as f32. */
typedef struct qsa_layer qsa_layer;

typedef struct qsa_layer_options {
    size_t size;
    const char *prefix; /* of the tensor names, such as "model.language_model.layers.3."; NULL: found, if just one fits */
    int64_t block;      /* 0: 4 */
    int64_t budget;     /* cells; 0: 2048 */
    float eps;          /* of the norms; 0: 1e-6 */
    qsa_rope rope;      /* all zero: 64 dims, theta 1e7; a table must outlive the layer */
} qsa_layer_options;

/* Reads {q,k,v,o}_proj, {q,k}_norm and indexer.* behind prefix + "self_attn.". The shape follows from theirs.
 * options may be NULL. The tensors may be closed afterwards. */
QSA_API qsa_status qsa_layer_load(qsa_context *context, const qsa_tensors *tensors, const qsa_layer_options *options,
                                  qsa_layer **layer, qsa_error *error);
QSA_API void qsa_layer_destroy(qsa_layer *layer);

/* The shape; the width of hidden states; the index key norm's weights [index_dim] (owned by the layer), for
 * qsa_cache_options; the prefix that was used. layer must not be NULL. */
QSA_API const qsa_shape *qsa_layer_shape(const qsa_layer *layer);
QSA_API int64_t qsa_layer_hidden_size(const qsa_layer *layer);
QSA_API const float *qsa_layer_index_norm(const qsa_layer *layer);
QSA_API const char *qsa_layer_prefix(const qsa_layer *layer);

/* Hidden states in, everything that append and decode want out (docs/spec.md, "One layer", 1 and 2). Any output may be NULL:
 * it is not computed. */
typedef struct qsa_layer_args {
    size_t size;
    const float *hidden;      /* [tokens][hidden_size] */
    int64_t tokens;           /* >= 0 */
    int64_t first_position;   /* of token 0, >= 0; the others follow it */
    const int64_t *positions; /* [tokens], instead; or NULL */
    float *q, *gate;          /* [tokens][q_heads][head_dim] */
    float *k, *v;             /* [tokens][kv_heads][head_dim] */
    float *iq;                /* [tokens][index_heads][index_dim] */
    float *raw_index;         /* [tokens][index_dim] */
} qsa_layer_args;
QSA_API qsa_status qsa_layer_project(qsa_context *context, const qsa_layer *layer, const qsa_layer_args *args, qsa_error *error);

/* o_proj: out [tokens][hidden_size] from gated [tokens][q_heads * head_dim]. */
QSA_API qsa_status qsa_layer_output(qsa_context *context, const qsa_layer *layer, const float *gated, int64_t tokens, float *out,
                                    qsa_error *error);

#ifdef __cplusplus
}
#endif
#endif
