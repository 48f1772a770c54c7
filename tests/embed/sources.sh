#!/bin/sh
# SPDX-License-Identifier: MIT
# The library builds without CMake, as README.md says, and the program beside it runs.
set -eu
source=$1 compiler=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$source"
"$compiler" -O2 -std=c11 -ffp-contract=off -Iinclude -Isrc src/*/*.c tests/consumer/main.c -pthread -o "$work/consumer"
"$work/consumer"
