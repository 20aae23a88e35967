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
said '^ok  retrieval: 1 operations; '
said '^ok  vault: version "1\.21\.1", answers within '
said '^ok  vault login: by approle, '
said '^ok  vault epoch: lives 1m1[45]s, and can hold, read and drop, and nothing else$'
said '^ok  vault policy: what is needed at [0-9]+ paths, and nothing beside$'
said '^ok  provider company: takes us as "broker" and refuses a token that is none$'
said '^--  server notes: not asked: it has no discovery credential$'
said '^NO  provider company: .*provider_unreachable'
said '^      curl -v http://127\.0\.0\.1:5567/dex/token from this host'
said '^doctor: status 1$'
said '^not_sent  ran: no \(local\)  retry: safe  cause: provider_unreachable$'
said '^status 2$'

if [ "$status" -ne 0 ]; then
    cat "$dir/said" >&2
    exit 1
fi
[ -z "${SHOW-}" ] || cat "$dir/said"
echo "ok: the first hour"
