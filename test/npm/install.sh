#!/bin/sh
# Installs the TypeScript everything-server for the tests, once, into the cache.
# It needs Node 20 or newer.
#
#   BROKER_CACHE   the cache's folder (default: ~/.cache/onbehalf-broker)
set -eu
cd "$(dirname "$0")"

. ../cache.sh
into server-everything-2026.8.31
npm_ci .
keep "$new"
