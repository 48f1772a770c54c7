/* SPDX-License-Identifier: MIT */
/* qsa.h alone, with nothing before it: C11 and C++17 compile this file (header.cpp is the same text as C++). It also
 * pins what a compiled caller relies on: where `size` is, and the values of the enums. */
#include <qsa/qsa.h>
#include <qsa/qsa.h> /* twice is once */

#ifdef __cplusplus
#define PIN(what) static_assert(what, #what)
#else
#define PIN(what) _Static_assert(what, #what)
#endif
#define SIZE_FIRST(type) PIN(offsetof(type, size) == 0 && sizeof(((type *)0)->size) == sizeof(size_t))

SIZE_FIRST(qsa_shape);
SIZE_FIRST(qsa_options);
SIZE_FIRST(qsa_kv);
SIZE_FIRST(qsa_keys);
SIZE_FIRST(qsa_score_args);
SIZE_FIRST(qsa_select_args);
SIZE_FIRST(qsa_attend_args);
SIZE_FIRST(qsa_merge_args);
SIZE_FIRST(qsa_rope);
SIZE_FIRST(qsa_block_keys_args);
SIZE_FIRST(qsa_cache_options);
SIZE_FIRST(qsa_cache_stats);
SIZE_FIRST(qsa_append_args);
SIZE_FIRST(qsa_decode_args);
SIZE_FIRST(qsa_snapshot_info);
SIZE_FIRST(qsa_layer_options);
SIZE_FIRST(qsa_layer_args);

PIN(QSA_OK == 0 && QSA_E_ARGUMENT == 1 && QSA_E_SHAPE == 2 && QSA_E_MEMORY == 3 && QSA_E_CAPACITY == 4 &&
    QSA_E_STATE == 5);
PIN(QSA_E_UNSUPPORTED == 6 && QSA_E_IO == 7 && QSA_E_FORMAT == 8);
PIN(QSA_F32 == 1 && QSA_F16 == 2 && QSA_BF16 == 3 && QSA_I8_G64 == 4 && QSA_Q8_0 == 5);
PIN(QSA_BLOCKS == 0 && QSA_CELLS == 1 && QSA_DENSE == 2);
PIN(QSA_CPU_AUTO == 0 && QSA_CPU_C == 1 && QSA_CPU_AVX2 == 2 && QSA_CPU_AVX512 == 3 && QSA_CPU_AMX == 4 &&
    QSA_CPU_NEON == 5);
PIN(QSA_KEYS_ROWS == 0 && QSA_KEYS_TILES == 1);
PIN(sizeof(((qsa_error *)0)->message) == 512);

/* Every struct through the macro: size set, the rest zero. */
int header_is_usable(void);
int header_is_usable(void) {
    QSA_INIT(qsa_shape, shape);
    QSA_INIT(qsa_options, options);
    QSA_INIT(qsa_kv, kv);
    QSA_INIT(qsa_keys, keys);
    QSA_INIT(qsa_score_args, score);
    QSA_INIT(qsa_select_args, select_args);
    QSA_INIT(qsa_attend_args, attend);
    QSA_INIT(qsa_merge_args, merge);
    QSA_INIT(qsa_rope, rope);
    QSA_INIT(qsa_block_keys_args, block_keys);
    QSA_INIT(qsa_cache_options, cache);
    QSA_INIT(qsa_cache_stats, stats);
    QSA_INIT(qsa_append_args, append);
    QSA_INIT(qsa_decode_args, decode);
    QSA_INIT(qsa_snapshot_info, snapshot);
    QSA_INIT(qsa_layer_options, layer_options);
    QSA_INIT(qsa_layer_args, layer);
    return shape.size == sizeof(qsa_shape) && options.size == sizeof(qsa_options) && kv.size == sizeof(qsa_kv) &&
           keys.size == sizeof(qsa_keys) && score.size == sizeof(qsa_score_args) &&
           select_args.size == sizeof(qsa_select_args) && attend.size == sizeof(qsa_attend_args) &&
           merge.size == sizeof(qsa_merge_args) && rope.size == sizeof(qsa_rope) &&
           block_keys.size == sizeof(qsa_block_keys_args) && cache.size == sizeof(qsa_cache_options) &&
           stats.size == sizeof(qsa_cache_stats) && append.size == sizeof(qsa_append_args) &&
           decode.size == sizeof(qsa_decode_args) &&
           snapshot.size == sizeof(qsa_snapshot_info) && layer_options.size == sizeof(qsa_layer_options) &&
           layer.size == sizeof(qsa_layer_args) && !shape.q_heads && !options.threads && !kv.pages && !cache.rope.table;
}
