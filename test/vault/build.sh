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

. ../cache.sh
into bin/vault-1.21.1
${GO:-go} build -ldflags="-s -w" -o "$new/vault" github.com/hashicorp/vault
keep "$new/vault"
