#!/bin/sh
# Installs MCP clients for the tests, once, into the cache, with the Node that they need: the
# two client libraries in TypeScript, and the Inspector. The Python library is there already,
# see ../python.
#
#   BROKER_CACHE   the cache's folder (default: ~/.cache/onbehalf-broker)
set -eu
cd "$(dirname "$0")"

sh ../node22/install.sh

. ../cache.sh
PATH=$cache/node-22.23.3/bin:$PATH
(
    into mcpclients-2.4.0
    npm_ci .
    keep "$new"
)
# The Inspector's web part wants a newer vite, which names a package that nobody has
# published; its command line uses neither.
into inspector-2.12.0
npm_ci inspector
keep "$new"
