#!/bin/sh
# Every fuzz target for FUZZTIME each (default 60s). The seeds run with the
# ordinary tests. Without its own bound the making smaller of what is interesting
# takes nearly all of the time. Before Go 1.27.1 the end of the time could look like a
# failure (https://go.dev/issue/75804).
set -eu
cd "$(dirname "$0")/.."
: "${GO:=go}" "${FUZZTIME:=60s}"
export GOTOOLCHAIN=go1.27.3

for file in $(grep -rl --include='*_test.go' '^func Fuzz' .); do
    for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' "$file"); do
        echo "== $(dirname "$file") $target"
        $GO test -run '^$' -fuzz "^$target\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 100x "$(dirname "$file")"
    done
done
