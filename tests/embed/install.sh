#!/bin/sh
# SPDX-License-Identifier: MIT
# An installed copy, moved to another place, is found by find_package(qsa) and by pkg-config, and builds the consumers.
set -eu
source=$1 build=$2 compiler=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved"
for static in OFF ON; do
    cmake -G Ninja -S "$source/tests/consumer" -B "$work/build-$static" -DCMAKE_C_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$work/moved" \
        -Dqsa_USE_STATIC_LIBS=$static >/dev/null
    cmake --build "$work/build-$static" >/dev/null
    "$work/build-$static/consumer"
    "$work/build-$static/consumer_cpp"
done

PKG_CONFIG_PATH=$(dirname "$(find "$work/moved" -name qsa.pc)")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046
"$compiler" -std=c11 "$source/tests/consumer/main.c" $(pkg-config --cflags --libs qsa) -o "$work/by-pkg-config"
LD_LIBRARY_PATH=$(pkg-config --variable=libdir qsa) "$work/by-pkg-config"
# shellcheck disable=SC2046
"$compiler" -std=c11 "$source/tests/consumer/main.c" $(pkg-config --cflags qsa) "$(pkg-config --variable=libdir qsa)/libqsa.a" -pthread \
    -o "$work/static"
"$work/static"
[ "$(pkg-config --modversion qsa)" = "$(sed -n 's/^#define QSA_VERSION "\(.*\)".*/\1/p' "$source/include/qsa/qsa.h")" ]
