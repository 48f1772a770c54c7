#!/bin/sh
# SPDX-License-Identifier: MIT
# Reads src/ and tools/ with gcc's -fanalyzer and with clang-tidy (.clang-tidy). Ends non-zero on a finding.
set -u
cd "$(dirname "$0")/.." || exit 1
flags='-std=c11 -O2 -ffp-contract=off -Iinclude -Isrc -Itools'

if [ $# = 1 ]; then
    # gcc 12 does not follow arrays of vectors from the loop that fills them to the loop that reads them.
    case $1 in
    src/attend/attend_i8_*) quiet=-Wno-analyzer-use-of-uninitialized-value ;;
    *) quiet= ;;
    esac
    # shellcheck disable=SC2086
    gcc $flags -fanalyzer $quiet -Werror -c "$1" -o /dev/null && clang-tidy --quiet "$1" -- $flags 2>/dev/null && exit
    echo "$1 does not pass"
    exit 1
fi

packaging/setup.sh build lint || exit 1
printf '%s\n' src/*/*.c tools/*.c | xargs -n 1 -P "$(nproc)" packaging/lint.sh || exit 1
echo 'no finding'
