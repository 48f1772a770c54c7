/* SPDX-License-Identifier: MIT */
/*
 * The hashes of test_bits.c: [K/V format f32, f16, bf16, i8_g64][shape][contract BLOCKS, CELLS]. They come from
 * portable C. A change of one is a change of results: docs/numerics.md has to say why. A failing test_bits prints the
 * new ones.
 */
#ifndef QSA_TEST_GOLDEN_HASHES_H
#define QSA_TEST_GOLDEN_HASHES_H

#include <stdint.h>

static const uint64_t golden_hashes[4][2][2] = {
    {/* f32 */
     {UINT64_C(0xfff1f6213e72a6c4), UINT64_C(0x49dacbdf22c908f6)},
     {UINT64_C(0x56139b4b8af04791), UINT64_C(0x27f96c89eeca336a)}},
    {/* f16 */
     {UINT64_C(0x79d000194c08be6d), UINT64_C(0xc532160ea3eb6bc3)},
     {UINT64_C(0x0febf061e5dbc944), UINT64_C(0x91bf52e7a5e35d67)}},
    {/* bf16 */
     {UINT64_C(0x817399a412bfcd62), UINT64_C(0x975bba3d5722c020)},
     {UINT64_C(0x882cbf16d5c0c041), UINT64_C(0xf46f1e08f5898355)}},
    {/* i8_g64 */
     {UINT64_C(0xe84d8efebfd594fb), UINT64_C(0x675668cd24d383cf)},
     {UINT64_C(0x6f2b7459bc5363c9), UINT64_C(0x189f818a6eff3c16)}},
};

#endif
