#!/bin/sh
# Runs the blocks of first-hour.md in order and looks at what they say. It ends
# with "ok", or with what was said instead.
set -eu
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
{
    echo 'set -eu'
    # What a block has started ends with it, also where one fails before the last.
    echo 'trap '\''kill ${broker-} ${notes-} ${exchange-} ${people-} ${vault-} 2>/dev/null; rm -rf "${work-}"'\'' EXIT'
    awk '/^```/ { inside = ($0 == "```sh"); next } inside' docs/first-hour.md
    echo 'trap - EXIT'
} >"$dir/blocks.sh"

status=0
timeout 900 sh "$dir/blocks.sh" >"$dir/said" 2>&1 || status=$?

said() {
    grep -Eq "$1" "$dir/said" && return
    echo "first-hour: it does not say: $1" >&2
    status=1
}
said '^ok: 0 servers, 0 profiles, 0 grants'
said '^ok: 0 servers, 1 profiles, 1 grants'
said '^ok: 1 servers, 1 profiles, 1 grants'
said '^allowed$'
said '^succeeded  ran: yes \(peer\)  retry: never$'
said 'you are [A-Za-z0-9]+'
said '403 no_grant'
said '^status 1$'
said '^not_sent  ran: no \(local\)  retry: safe  cause: provider_unreachable$'
said '^status 2$'

if [ "$status" -ne 0 ]; then
    cat "$dir/said" >&2
    exit 1
fi
[ -z "${SHOW-}" ] || cat "$dir/said"
echo "ok: the first hour"
