#!/bin/sh
# Builds zitadel's example server for the tests, once, into the cache.
#
#   BROKER_CACHE   the cache's folder (default: ~/.cache/onbehalf-broker)
#
# The first run downloads some 20 modules and compiles for half a minute.
set -eu
cd "$(dirname "$0")"

bin=${BROKER_CACHE:-$HOME/.cache/onbehalf-broker}/bin
out=$bin/zitadel-op-3.52.0
[ ! -x "$out" ] || exit 0

mkdir -p "$bin"
new=$(mktemp "$bin/.zitadel-op.XXXXXX")
trap 'rm -f "$new"' EXIT
trap 'exit 1' HUP INT TERM
echo "building $out, once" >&2
${GO:-go} build -trimpath -ldflags="-s -w" -o "$new" github.com/zitadel/oidc/v3/example/server
chmod 755 "$new"
mv "$new" "$out" # whole or not at all: another run may be under way
