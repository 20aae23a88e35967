#!/bin/sh
# Runs our MCP client, and the façade as a server, through the protocol's own conformance
# suite, in two versions of the suite and three revisions of the protocol. README.md says
# what the last line counts.
#
#   BROKER_CACHE   where install.sh has put the suites (default: ~/.cache/onbehalf-broker)
#   KEEP           the absolute path of a new folder for the results; else they go
set -eu
cd "$(dirname "$0")"
: "${GO:=go}"

sh install.sh
sh ../gosdk/build.sh
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
$GO build -o "$work" ./driver ./tally ./front

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

# The broker as a server, until its standard input ends.
mkfifo "$work/open"
"$work/front" "$cache/bin/gosdk-everything-1.8.0" <"$work/open" >"$work/address" 2>"$work/front.log" &
exec 3>"$work/open"
tries=0
until [ -s "$work/address" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || { cat "$work/front.log" >&2; exit 1; }
    sleep 0.1
done

# serve <revision>
serve() {
    mkdir "$work/server-$1"
    status=0
    (cd "$work" && "$cache/node-22.23.3/bin/node" "$cache/conformance-0.2.0-alpha.12/node_modules/@modelcontextprotocol/conformance/dist/index.js" server \
        --url "$(cat address)" --requirements "$1" --expected-failures "$here/baseline/server-$1.yaml" -o "server-$1" >"server-$1/log" 2>&1) || status=$?
    echo "$status" >"$work/server-$1/status"
}
serve 2025-11-25
serve 2026-07-28
exec 3>&-
wait

set --
for name in 0.1.16 2025-06-18 2025-11-25 2026-07-28 server-2025-11-25 server-2026-07-28; do
    set -- "$@" "$work/$name" "baseline/$name.yaml"
done
"$work/tally" "$@"
