#!/bin/sh
# SPDX-License-Identifier: MIT
# qsa.h compiles alone as C11 and as C++, with every warning an error; tests/header.c also pins what compiled callers rely on.
set -eu
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
warnings='-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wdouble-promotion -Werror'
count=0
for compiler in cc gcc clang; do
    command -v "$compiler" >/dev/null || continue
    # shellcheck disable=SC2086
    "$compiler" -std=c11 $warnings -Wvla -I"$source/include" -c "$source/tests/header.c" -o "$work/alone.o"
    count=$((count + 1))
done
for compiler in c++ g++ clang++; do
    command -v "$compiler" >/dev/null || continue
    for standard in c++11 c++17; do
        # shellcheck disable=SC2086
        "$compiler" -std=$standard $warnings -I"$source/include" -c "$source/tests/header.cpp" -o "$work/alone.o"
        count=$((count + 1))
    done
done
[ "$count" -ge 2 ]
echo "$count compilations"
