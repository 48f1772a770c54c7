#!/bin/sh
# SPDX-License-Identifier: MIT
# qsa.h compiles alone as C11 and as C++, with every warning an error.
set -eu
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
warnings='-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wdouble-promotion -Werror'
cat >"$work/alone.c" <<'C'
#include <qsa/qsa.h>
#include <qsa/qsa.h>
int alone(void);
int alone(void) {
    QSA_INIT(qsa_shape, shape);
    QSA_INIT(qsa_cache_options, options);
    return shape.size == sizeof(qsa_shape) && options.size == sizeof(qsa_cache_options) && !shape.q_heads && !options.rope.table;
}
C
cp "$work/alone.c" "$work/alone.cpp"
count=0
for compiler in cc gcc clang; do
    command -v "$compiler" >/dev/null || continue
    # shellcheck disable=SC2086
    "$compiler" -std=c11 $warnings -Wvla -I"$source/include" -c "$work/alone.c" -o "$work/alone.o"
    count=$((count + 1))
done
for compiler in c++ g++ clang++; do
    command -v "$compiler" >/dev/null || continue
    for standard in c++11 c++17 c++20; do
        # shellcheck disable=SC2086
        "$compiler" -std=$standard $warnings -I"$source/include" -c "$work/alone.cpp" -o "$work/alone.o"
        count=$((count + 1))
    done
done
[ "$count" -ge 2 ]
echo "$count compilations"
