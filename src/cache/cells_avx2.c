/* SPDX-License-Identifier: MIT */
/* The appending kernels for AVX2. */
#include "runtime/cpu.h"

#if defined(QSA_X86)
#define QSA_SIMD_AVX2
#include "runtime/simd.h"

#include "cache/cells_kernel.h"
#else
typedef int qsa_no_cells_here; /* a translation unit must not be empty */
#endif
