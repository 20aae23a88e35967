#!/bin/sh
# Builds dex for the tests, once, into the cache.
#
#   BROKER_CACHE   the cache's folder (default: ~/.cache/onbehalf-broker)
#
# It needs a C compiler: dex has SQLite in C, also where it is told to keep its
# data in memory. The first run downloads some 170 modules and compiles for some
# minutes.
set -eu
cd "$(dirname "$0")"

bin=${BROKER_CACHE:-$HOME/.cache/onbehalf-broker}/bin
out=$bin/dex-20240807
[ ! -x "$out" ] || exit 0

mkdir -p "$bin"
new=$(mktemp "$bin/.dex.XXXXXX")
trap 'rm -f "$new"' EXIT
trap 'exit 1' HUP INT TERM
echo "building $out: this takes some minutes, once" >&2
CGO_ENABLED=1 ${GO:-go} build -trimpath -ldflags="-s -w" -o "$new" github.com/dexidp/dex/cmd/dex
chmod 755 "$new"
mv "$new" "$out" # whole or not at all: another run may be under way
