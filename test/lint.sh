#!/bin/sh
# The code as tools see it: form, vet, staticcheck, module sums.
set -eu
cd "$(dirname "$0")/.."
: "${GO:=go}"

unformatted=$(gofmt -l .)
if [ -n "$unformatted" ]; then
    echo "gofmt would change:" $unformatted >&2
    exit 1
fi
$GO vet ./...
$GO vet -tags real ./...
$GO vet -tags crash ./cmd/broker
$GO mod verify
$GO mod tidy -diff
$GO tool -modfile=tools/go.mod staticcheck ./...
$GO tool -modfile=tools/go.mod staticcheck -tags real $(cat test/real-packages) ./test/crash
$GO tool -modfile=tools/go.mod staticcheck -tags crash ./cmd/broker
