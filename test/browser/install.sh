#!/bin/sh
# Installs axe-core for the tests, once, into the cache.
#
#   BROKER_CACHE   the cache's folder (default: ~/.cache/onbehalf-broker)
set -eu
cd "$(dirname "$0")"

. ../cache.sh
into axe-core-4.14.1
npm_ci .
keep "$new"
