#!/bin/sh
# Runs our MCP client through the protocol's own conformance suite, in two
# versions of the suite and three revisions of the protocol. README.md says what
# the last line counts.
#
#   BROKER_CACHE   where install.sh has put the suites (default: ~/.cache/onbehalf-broker)
#   KEEP           the absolute path of a new folder for the results; else they go
set -eu
cd "$(dirname "$0")"
: "${GO:=go}"

sh install.sh
cache=${BROKER_CACHE:-$HOME/.cache/onbehalf-broker}
here=$PWD
if [ -n "${KEEP:-}" ]; then
    mkdir "$KEEP"
    work=$(cd "$KEEP" && pwd)
else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
fi
$GO build -o "$work" ./driver ./tally

# run <name> <suite> <options>: what the suite ends with is for tally to judge.
# The suite splits the command at blanks, hence a command without any path.
run() {
    name=$1
    suite=$cache/conformance-$2/node_modules/@modelcontextprotocol/conformance/dist/index.js
    shift 2
    mkdir "$work/$name"
    status=0
    (cd "$work" && "$cache/node-22.23.3/bin/node" --import "$here/loopback.mjs" "$suite" client --command ./driver "$@" \
        --expected-failures "$here/baseline/$name.yaml" -o "$name" >"$name/log" 2>&1) || status=$?
    echo "$status" >"$work/$name/status"
}
run 0.1.16 0.1.16 --suite all
run 2025-06-18 0.2.0-alpha.12 --suite all --spec-version 2025-06-18
run 2025-11-25 0.2.0-alpha.12 --requirements 2025-11-25
run 2026-07-28 0.2.0-alpha.12 --requirements 2026-07-28

set --
for name in 0.1.16 2025-06-18 2025-11-25 2026-07-28; do
    set -- "$@" "$work/$name" "baseline/$name.yaml"
done
"$work/tally" "$@"
