#!/bin/sh
# Builds zitadel's example server for the tests, once, into the cache.
#
#   BROKER_CACHE   the cache's folder (default: ~/.cache/onbehalf-broker)
#
# The first run downloads some 20 modules and compiles for half a minute.
set -eu
cd "$(dirname "$0")"

. ../cache.sh
into bin/zitadel-op-3.52.0
${GO:-go} build -trimpath -ldflags="-s -w" -o "$new/server" github.com/zitadel/oidc/v3/example/server
keep "$new/server"
