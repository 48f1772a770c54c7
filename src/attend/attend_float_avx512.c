/* SPDX-License-Identifier: MIT */
/* The attend kernels of float K/V for AVX-512. */
#include "runtime/cpu.h"

#if defined(QSA_X86)
#define QSA_SIMD_AVX512
#include "runtime/simd.h"

#include "attend/attend_float_kernel.h"
#else
typedef int qsa_no_attend_float_here; /* a translation unit must not be empty */
#endif
