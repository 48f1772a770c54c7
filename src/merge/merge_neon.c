/* SPDX-License-Identifier: MIT */
/* The merge kernel for aarch64. */
#include "runtime/cpu.h"

#if defined(QSA_ARM)
#define QSA_SIMD_NEON
#include "runtime/simd.h"

#include "merge/merge_kernel.h"
#else
typedef int qsa_no_merge_here; /* a translation unit must not be empty */
#endif
