#!/bin/sh
# Everything that `make test` runs. Building the counterparts takes minutes on
# an empty cache, so the suites that do not need them run beside it. What cannot
# be built or started is a failure.
set -eu
cd "$(dirname "$0")/.."
: "${GO:=go}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
begun=$(date +%s)
part() { echo "== $1 ($(($(date +%s) - begun)) s since the start)"; }

{ if nice -n 19 sh test/install.sh >"$work/install.log" 2>&1; then touch "$work/installed"; fi; } &

part "unit tests over the dev servers, race"
$GO vet ./...
$GO test -race ./...

part "waiting for the counterparts"
wait
grep -a ' s$' "$work/install.log" || true
if [ ! -e "$work/installed" ]; then
    tail -n 60 "$work/install.log" >&2
    exit 1
fi

part "the protocol's own conformance suite"
sh test/conformance/run.sh >"$work/conformance.log" 2>&1 || { tail -n 80 "$work/conformance.log" >&2; exit 1; }
tail -n 1 "$work/conformance.log"

part "real Vault, OpenBao, dex, zitadel, MCP servers; the real program end to end"
table=TestProvidersServersEngines
ran="TestOperations|TestUpkeep" # above, by the unit tests
$GO test -race -count=1 -tags real -skip "$table|$ran" $(cat test/real-packages)

part "provider x server x engine"
$GO test -race -count=1 -tags real -run $table -v ./test/e2e >"$work/table.log" 2>&1 || { grep -aE '^ *(---|[a-z_]+\.go)' "$work/table.log" | head -n 80 >&2; exit 1; }
grep -a '^table:' "$work/table.log"

part "the broker killed at every step, and under load"
sh test/faults.sh
part "deployment files, the API's description, the first hour word by word"
sh deploy/check.sh
(cd docs/check && $GO vet ./... && $GO test -race ./...)
sh docs/start_test.sh
sh docs/first-hour_test.sh
sh docs/security_test.sh

part "the page in a real browser"
(cd test/browser && $GO vet ./... && $GO test -race -count=1 ./...)
part done
