#!/bin/sh
# Builds the everything-server of the official Go SDK for the tests, once, into
# the cache. It speaks both eras.
#
#   BROKER_CACHE   the cache's folder (default: ~/.cache/onbehalf-broker)
set -eu
cd "$(dirname "$0")"

. ../cache.sh
into bin/gosdk-everything-1.8.0
${GO:-go} build -ldflags="-s -w" -o "$new/server" github.com/modelcontextprotocol/go-sdk/conformance/everything-server
keep "$new/server"
