#!/bin/sh
# Installs Node 22 for the counterparts that need it, once, into the cache, as
# node-22.23.3/bin/node. It needs npm, which an older Node may run, on Linux on
# x64 or arm64.
#
#   BROKER_CACHE   the cache's folder (default: ~/.cache/onbehalf-broker)
#
# The package "node" fetches the program by a script after it is installed. No
# script of a package runs here, so we take what that script would fetch, the
# package of the platform, checked against the hash in package-lock.json.
set -eu
cd "$(dirname "$0")"

. ../cache.sh
into node-22.23.3
npm_ci .
mkdir "$new/bin"
mv "$new"/node_modules/node-linux-*/bin/node "$new/bin/node" # npm took the one for this platform
rm -r "$new/node_modules"
keep "$new"
