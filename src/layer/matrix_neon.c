/* SPDX-License-Identifier: MIT */
/* The projection kernel for NEON. */
#include "runtime/cpu.h"

#if defined(QSA_ARM)
#define QSA_SIMD_NEON
#include "runtime/simd.h"

#include "layer/matrix_kernel.h"
#else
typedef int qsa_no_projection_here; /* a translation unit must not be empty */
#endif
