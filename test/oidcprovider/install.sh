#!/bin/sh
# Installs oidc-provider for the tests, once, into the cache, with the Node that
# it wants. Every file is checked against the hash in package-lock.json, and no
# script of a package runs.
#
#   BROKER_CACHE   the cache's folder (default: ~/.cache/onbehalf-broker)
set -eu
cd "$(dirname "$0")"

sh ../node22/install.sh
cache=${BROKER_CACHE:-$HOME/.cache/onbehalf-broker}
PATH=$cache/node-22.23.3/bin:$PATH
out=$cache/oidc-provider-9.13.3
[ ! -d "$out" ] || exit 0

mkdir -p "$cache"
new=$(mktemp -d "$cache/.oidc-provider.XXXXXX")
trap 'rm -rf "$new"' EXIT
trap 'exit 1' HUP INT TERM
echo "installing $out" >&2
cp package.json package-lock.json "$new"
(cd "$new" && npm ci --ignore-scripts --no-audit --no-fund --silent)
chmod 755 "$new"
# Whole or not at all. Another run may have been faster; mv would then move the
# folder into the other one.
node -e 'fs.renameSync(process.argv[1], process.argv[2])' "$new" "$out" 2>/dev/null || [ -d "$out" ]
