#!/bin/sh
# Everything below deploy/ that is read by other programs than ours, looked at by
# their own readers, and a release, made twice. It needs Go and systemd-analyze, and
# starts nothing. The chart is for the tests with the tag real, which have Helm.
set -eu
cd "$(dirname "$0")"
: "${GO:=go}"

sh systemd/check.sh
for module in docker/check prometheus/check release; do
    (cd "$module" && $GO vet ./... && $GO test -count=1 ./...)
done
