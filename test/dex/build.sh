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

. ../cache.sh
into bin/dex-20240807
CGO_ENABLED=1 ${GO:-go} build -trimpath -ldflags="-s -w" -o "$new/dex" github.com/dexidp/dex/cmd/dex
keep "$new/dex"
