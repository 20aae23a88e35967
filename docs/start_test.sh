#!/bin/sh
# Runs the blocks of the start pages and looks at what they say. It ends with "ok", or
# with what was said instead.
set -eu
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export work="$dir"
umask 077
cp -R configs "$dir/configs" # a checkout may have modes that the broker refuses
chmod -R go-w "$dir/configs"
for page in gateway security tests; do
    awk '/^```/ { inside = ($0 == "```sh"); next } inside' "docs/start-$page.md" | sed "s|configs/|$dir/configs/|"
done >"$dir/blocks.sh"

status=0
timeout 600 sh -eu "$dir/blocks.sh" >"$dir/said" 2>&1 || status=$?

said() {
    grep -Eq "$1" "$dir/said" && return
    echo "start: it does not say: $1" >&2
    status=1
}
said '^--- PASS: Example \('
said '^--- PASS: ExampleClient_Run_resumed'
said 'user:7.*records.*send'
said '^allowed$'

if [ "$status" -ne 0 ]; then
    cat "$dir/said" >&2
    exit 1
fi
echo "ok: the start pages"
