#!/bin/sh
# Everything below deploy/ that is read by other programs than ours, looked at by
# their own readers. It needs Go and systemd-analyze, and starts nothing.
set -eu
cd "$(dirname "$0")"
: "${GO:=go}"

sh systemd/check.sh
cd docker/check
$GO vet ./...
$GO test ./...
