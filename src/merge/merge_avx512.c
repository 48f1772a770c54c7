/* SPDX-License-Identifier: MIT */
/* The merge kernel for AVX-512. */
#include "runtime/cpu.h"

#if defined(QSA_X86)
#define QSA_SIMD_AVX512
#include "runtime/simd.h"

#include "merge/merge_kernel.h"
#else
typedef int qsa_no_merge_here; /* a translation unit must not be empty */
#endif
