#!/bin/sh
# SPDX-License-Identifier: MIT
# Every symbol that libqsa.so exports is a public call of qsa.h, and every public call is exported; libqsa.a defines qsa_* alone.
set -eu
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

nm -D --defined-only "$build/libqsa.so" | awk '{print $3}' | sort >"$work/exported"
grep -v '^#' "$source/include/qsa/qsa.h" | tr '\n' ' ' | grep -o 'QSA_API [^(;]*(' | grep -o 'qsa_[a-z0-9_]*($' | tr -d '(' | sort >"$work/public"
[ -s "$work/public" ]
diff -u "$work/public" "$work/exported"

nm --defined-only "$build/libqsa.a" 2>/dev/null | awk 'NF == 3 && $2 ~ /[A-TV-Z]/ {print $3}' | sort -u >"$work/global"
if grep -v '^qsa_' "$work/global"; then
    echo "libqsa.a defines names without the prefix qsa_" >&2
    exit 1
fi
readelf -d "$build/libqsa.so" | grep -q "SONAME.*libqsa.so.$(sed -n 's/^#define QSA_API_VERSION \([0-9]*\).*/\1/p' "$source/include/qsa/qsa.h")\]"
# The core needs libc and nothing else.
if readelf -d "$build/libqsa.so" | grep NEEDED | grep -v -e 'libc\.so' -e 'ld-linux'; then
    exit 1
fi
echo "$(wc -l <"$work/exported") symbols"
