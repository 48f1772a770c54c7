#!/bin/sh
# SPDX-License-Identifier: MIT
# setup.sh PURPOSE...: installs what packaging/debian-packages lists for the purposes and this machine lacks.
set -eu
list=$(dirname "$0")/debian-packages
missing=
for purpose in "$@"; do
    for package in $(sed -n "s/^$purpose  *//p" "$list"); do
        case $package in
        *:*) architecture=${package#*:} ;;
        *) architecture=$(dpkg --print-architecture 2>/dev/null || true) ;;
        esac
        dpkg-query -W -f '${Status} ${Architecture}\n' "${package%:*}" 2>/dev/null |
            grep -q -x -e "install ok installed $architecture" -e 'install ok installed all' || missing="$missing $package"
    done
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "This system has no apt-get. Please install the equivalents of these Debian packages:$missing" >&2
    exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
    as_root=sudo
    command -v sudo >/dev/null || { echo "Please run as root: apt-get install$missing" >&2; exit 1; }
fi
echo "Installing:$missing" >&2
case $missing in
*:arm64*) $as_root dpkg --add-architecture arm64 ;;
esac
$as_root apt-get update -q >/dev/null
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >/dev/null
