/* SPDX-License-Identifier: MIT */
/* The table of the appending kernels. */
#include "cache/cells.h"

#include "runtime/cpu.h"

void qsa_cell_init(qsa_cell_kernels *kernels, qsa_cpu cpu) {
    *kernels = (qsa_cell_kernels){
        .encode = {[QSA_F32] = qsa_encode_f32_c, [QSA_F16] = qsa_encode_f16_c, [QSA_BF16] = qsa_encode_bf16_c,
                   [QSA_I8_G64] = qsa_encode_i8_c},
        .decode = {[QSA_F32] = qsa_decode_f32_c, [QSA_F16] = qsa_decode_f16_c, [QSA_BF16] = qsa_decode_bf16_c,
                   [QSA_I8_G64] = qsa_decode_i8_c},
        .block_key = qsa_block_key_f32_c,
        .angles = qsa_angles_f64_c,
        .encode_name = {[QSA_F32] = "qsa_encode_f32_c", [QSA_F16] = "qsa_encode_f16_c", [QSA_BF16] = "qsa_encode_bf16_c",
                        [QSA_I8_G64] = "qsa_encode_i8_c"},
        .decode_name = {[QSA_F32] = "qsa_decode_f32_c", [QSA_F16] = "qsa_decode_f16_c", [QSA_BF16] = "qsa_decode_bf16_c",
                        [QSA_I8_G64] = "qsa_decode_i8_c"},
        .block_key_name = "qsa_block_key_f32_c",
        .angles_name = "qsa_angles_f64_c",
    };
#if defined(QSA_X86)
    if (cpu == QSA_CPU_AVX2) {
        qsa_cell_init_avx2(kernels);
    } else if (cpu == QSA_CPU_AVX512 || cpu == QSA_CPU_AMX) {
        qsa_cell_init_avx512(kernels);
    }
#elif defined(QSA_ARM)
    if (cpu == QSA_CPU_NEON) {
        qsa_cell_init_neon(kernels);
    }
#else
    (void)cpu;
#endif
}
