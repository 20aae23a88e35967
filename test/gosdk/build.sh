#!/bin/sh
# Builds the everything-server of the official Go SDK for the tests, once, into
# the cache. It speaks both eras.
#
#   BROKER_CACHE   the cache's folder (default: ~/.cache/onbehalf-broker)
set -eu
cd "$(dirname "$0")"

bin=${BROKER_CACHE:-$HOME/.cache/onbehalf-broker}/bin
out=$bin/gosdk-everything-1.8.0
[ ! -x "$out" ] || exit 0

mkdir -p "$bin"
new=$(mktemp "$bin/.gosdk.XXXXXX")
trap 'rm -f "$new"' EXIT
trap 'exit 1' HUP INT TERM
echo "building $out" >&2
${GO:-go} build -ldflags="-s -w" -o "$new" github.com/modelcontextprotocol/go-sdk/conformance/everything-server
chmod 755 "$new"
mv "$new" "$out" # whole or not at all: another run may be under way
