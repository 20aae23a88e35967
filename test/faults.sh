#!/bin/sh
# The broker killed at every step, and FAULTS_KILLS times (default 40) at moments that
# FAULTS_SEED decides; see package test/crash. The last line says what was found.
set -eu
cd "$(dirname "$0")/.."
: "${GO:=go}"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The tests take turns to kill; -parallel lets all of them wait at once for epochs to end.
$GO test -race -count=1 -tags real -parallel 8 -timeout 60m -v ./test/crash >"$log" 2>&1 || {
    grep -aE '^ *(--- FAIL|[a-z_]+_test\.go|panic|FAIL|faults:)' "$log" | head -n 80 >&2
    exit 1
}
grep -a -A2 'FAULTS_SEED' "$log" | grep -a 'load_test.go' | sed 's/^ *load_test.go:[0-9]*: //'
grep -a '^faults:' "$log"
