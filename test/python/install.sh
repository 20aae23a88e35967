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

. ../cache.sh
into python-mcp-2.3.0-fastmcp-4.2.3
# The environment is moved at the end, which only its bin/python survives; that
# is all that the tests use.
"$python" -m venv --without-pip "$new"
"$python" -m pip --python "$new/bin/python" install --quiet --no-deps --only-binary :all: -r requirements.txt
keep "$new"
