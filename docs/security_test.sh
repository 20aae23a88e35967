#!/bin/sh
# Runs the commands of the README's section for the security team, word by word, in a
# copy of what is checked out, and looks at what they say. It ends with "ok".
set -eu
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
awk '/^## / { section = $0 } /^```/ { inside = ($0 == "```sh"); next } inside && section == "## For the security team"' README.md >"$dir/blocks.sh"
[ "$(grep -c . "$dir/blocks.sh")" -eq 3 ] || { echo "security: three commands are promised" >&2; exit 1; }
git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C "$dir"
cd "$dir"

status=0
sh -eu "$dir/blocks.sh" >"$dir/said" 2>&1 || status=$?
said() {
    grep -Eq "$1" "$dir/said" && return
    echo "security: it does not say: $1" >&2
    status=1
}
said '^user:7 +gateway +company +vault:kv/broker/subjects/7#token +records .* send +write .* active +profiles.yaml:[0-9]+$'
said '^ok +grant +user:7 +profiles.yaml:[0-9]+$'
said '^allowed$'

if [ "$status" -ne 0 ]; then
    cat "$dir/said" >&2
    exit 1
fi
echo "ok: the commands for the security team"
