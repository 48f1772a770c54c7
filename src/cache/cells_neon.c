/* SPDX-License-Identifier: MIT */
/* The appending kernels for aarch64. */
#include "runtime/cpu.h"

#if defined(QSA_ARM)
#define QSA_SIMD_NEON
#include "runtime/simd.h"

#include "cache/cells_kernel.h"
#else
typedef int qsa_no_cells_here; /* a translation unit must not be empty */
#endif
