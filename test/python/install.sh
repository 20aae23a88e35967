#!/bin/sh
# Installs the Python MCP libraries for the tests, once, into a virtual
# environment in the cache. It needs Python 3.11 or newer. No code of a package
# runs while it is installed.
#
#   BROKER_CACHE   the cache's folder (default: ~/.cache/onbehalf-broker)
#   PYTHON         the interpreter (default: python3)
set -eu
cd "$(dirname "$0")"

python=${PYTHON:-python3}
cache=${BROKER_CACHE:-$HOME/.cache/onbehalf-broker}
out=$cache/python-mcp-2.3.0-fastmcp-4.2.3
[ ! -d "$out" ] || exit 0

mkdir -p "$cache"
new=$(mktemp -d "$cache/.python.XXXXXX")
trap 'rm -rf "$new"' EXIT
trap 'exit 1' HUP INT TERM
echo "installing $out" >&2
# The environment is moved at the end, which only its bin/python survives; that
# is all that the tests use.
"$python" -m venv --without-pip "$new"
"$python" -m pip --python "$new/bin/python" install --quiet --no-deps --only-binary :all: -r requirements.txt
chmod 755 "$new"
# Whole or not at all. Another run may have been faster; mv would then move the
# folder into the other one.
"$python" -c 'import os, sys; os.rename(sys.argv[1], sys.argv[2])' "$new" "$out" 2>/dev/null || [ -d "$out" ]
