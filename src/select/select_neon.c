/* SPDX-License-Identifier: MIT */
/* The selection kernel for aarch64. */
#include "runtime/cpu.h"

#if defined(QSA_ARM)
#define QSA_SIMD_NEON
#include "runtime/simd.h"

#include "select/select_kernel.h"
#else
typedef int qsa_no_selection_here; /* a translation unit must not be empty */
#endif
