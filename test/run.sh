#!/bin/sh
# Everything that `make test` runs. Building Vault takes minutes on an empty
# cache, so the suites that do not need it run beside the build. What cannot be
# built or started is a failure.
set -eu
cd "$(dirname "$0")/.."
: "${GO:=go}"

built=$(mktemp)
trap 'rm -f "$built"' EXIT
{ if nice -n 19 sh test/vault/build.sh >"$built.log" 2>&1; then echo ok; else echo failed; fi >"$built"; } &

echo "== unit, race, over the dev servers"
$GO vet ./...
$GO test -race ./...

echo "== real Vault: the vault contract, the set-up script, the real binary end to end"
wait
if [ "$(cat "$built")" != ok ]; then
    cat "$built.log" >&2
    rm -f "$built.log"
    exit 1
fi
rm -f "$built.log"
$GO test -race -count=1 -tags real $(cat test/real-packages)
