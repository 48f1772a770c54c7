#!/bin/sh
# SPDX-License-Identifier: MIT
# What docs/faults.md and docs/reliability.md name is there: each program, each function, and a test for each fault's number.
set -eu
cd "$1/tests"
bad=0
missing() {
    echo "$1" >&2
    bad=1
}

# The last column: each `test_X`, and behind it `functions` of that program up to the next one.
for page in faults reliability; do
    awk -F '|' '/^\|/ {print $(NF - 1)}' "../docs/$page.md" | grep -oE '`[a-z0-9_]+`' | tr -d '`' >"$2/named-$page"
    [ -s "$2/named-$page" ]
    program=
    while read -r name; do
        case $name in
        test_*)
            program=$name
            [ -f "$program.c" ] || missing "docs/$page.md names $program, which is no program of tests/"
            ;;
        *) grep -q "^static void $name(void \*\*state)" "$program.c" || missing "docs/$page.md names $name, which $program does not have" ;;
        esac
    done <"$2/named-$page"
done

fault=1
while [ $fault -le 46 ]; do
    row=$(grep "^| $fault |" ../docs/faults.md) || missing "docs/faults.md has no row $fault"
    for program in $(echo "$row" | grep -oE '`test_[a-z0-9_]*`' | tr -d '`'); do
        # Functions named behind the program were looked up above.
        echo "$row" | grep -q "\`$program\`: " && continue
        grep -qE "^static void fault_([0-9]+_)*$(printf %02d $fault)_" "$program.c" || missing "$program has no test of fault $fault"
    done
    fault=$((fault + 1))
done
exit $bad
