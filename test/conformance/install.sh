#!/bin/sh
# Installs two versions of the protocol's own conformance suite, once, into the
# cache, with the Node that they need.
#
#   BROKER_CACHE   the cache's folder (default: ~/.cache/onbehalf-broker)
set -eu
cd "$(dirname "$0")"

sh ../node22/install.sh

. ../cache.sh
PATH=$cache/node-22.23.3/bin:$PATH
for version in 0.1.16 0.2.0-alpha.12; do
    (
        into "conformance-$version"
        npm_ci "suite-$version"
        keep "$new"
    )
done
