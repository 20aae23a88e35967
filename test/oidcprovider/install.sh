#!/bin/sh
# Installs oidc-provider for the tests, once, into the cache, with the Node that
# it wants. Every file is checked against the hash in package-lock.json, and no
# script of a package runs.
#
#   BROKER_CACHE   the cache's folder (default: ~/.cache/onbehalf-broker)
set -eu
cd "$(dirname "$0")"

sh ../node22/install.sh

. ../cache.sh
PATH=$cache/node-22.23.3/bin:$PATH
into oidc-provider-9.13.3
npm_ci .
keep "$new"
