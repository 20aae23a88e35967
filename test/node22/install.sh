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

cache=${BROKER_CACHE:-$HOME/.cache/onbehalf-broker}
out=$cache/node-22.23.3
[ ! -d "$out" ] || exit 0

mkdir -p "$cache"
new=$(mktemp -d "$cache/.node.XXXXXX")
trap 'rm -rf "$new"' EXIT
trap 'exit 1' HUP INT TERM
echo "installing $out" >&2
cp package.json package-lock.json "$new"
(cd "$new" && npm ci --ignore-scripts --no-audit --no-fund --silent)
mkdir "$new/bin"
mv "$new"/node_modules/node-linux-*/bin/node "$new/bin/node" # npm took the one for this platform
rm -r "$new/node_modules"
chmod 755 "$new"
# Whole or not at all. Another run may have been faster; mv would then move the
# folder into the other one.
"$new/bin/node" -e 'fs.renameSync(process.argv[1], process.argv[2])' "$new" "$out" 2>/dev/null || [ -d "$out" ]
