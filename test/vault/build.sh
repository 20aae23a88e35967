#!/bin/sh
# Builds Vault for the tests, once, into the cache. `make vault` calls it.
#
#   BROKER_CACHE   the cache's folder (default: ~/.cache/onbehalf-broker)
#   VAULT_BIN      a vault to use instead, as is one on PATH: then nothing is built
#
# The first run downloads some 500 modules and compiles for several minutes.
set -eu
cd "$(dirname "$0")"

[ -z "${VAULT_BIN:-}" ] || exit 0
! command -v vault >/dev/null || exit 0

bin=${BROKER_CACHE:-$HOME/.cache/onbehalf-broker}/bin
out=$bin/vault-1.21.1
[ ! -x "$out" ] || exit 0

mkdir -p "$bin"
new=$(mktemp "$bin/.vault.XXXXXX")
trap 'rm -f "$new"' EXIT
trap 'exit 1' HUP INT TERM
echo "building $out: this takes some minutes, once" >&2
${GO:-go} build -ldflags="-s -w" -o "$new" github.com/hashicorp/vault
chmod 755 "$new"
mv "$new" "$out" # whole or not at all: another run may be under way
