#!/bin/sh
# SPDX-License-Identifier: MIT
# The program text in README.md compiles, and its list of packages is the one that is installed.
set -eu
source=$1 compiler=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed -n '/^```c$/,/^```$/p' "$source/README.md" | grep -v '^```' >"$work/readme.c"
[ -s "$work/readme.c" ]
"$compiler" -std=c11 -Wall -Wextra -Wpedantic -Werror -Wno-missing-prototypes -I"$source/include" -c "$work/readme.c" -o "$work/readme.o"
for package in $(grep -v '^#' "$source/packaging/debian-packages" | sed 's/^[a-z]* *//'); do
    grep -q -F "$package" "$source/README.md" || { echo "README.md does not name $package" >&2; exit 1; }
done
