#!/bin/sh
# Looks at broker.service as systemd does, on a machine where neither it nor the
# broker is installed. It needs systemd-analyze (Debian: systemd).
set -eu
cd "$(dirname "$0")"

fail() { echo "broker.service: $*" >&2; exit 1; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# A program that is not there is an error to `verify`, so another stands in.
sed 's|^ExecStart=/usr/local/bin/broker |ExecStart=/bin/true |' broker.service >"$dir/broker.service"
systemd-analyze verify --man=no "$dir/broker.service" 2>"$dir/said" || fail "$(cat "$dir/said")"
# An unknown key is only a warning, with status 0.
[ ! -s "$dir/said" ] || fail "$(cat "$dir/said")"

# In tenths, of 100. What is left is the network, which the broker is there for.
systemd-analyze security --offline=true --no-pager --threshold=11 "$dir/broker.service" >"$dir/said" 2>&1 ||
    fail "$(grep -v '^✓' "$dir/said")"
echo "ok: broker.service"
