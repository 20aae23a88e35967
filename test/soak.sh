#!/bin/sh
# What takes longer than a check before every change may: by hand, its figures
# into the note of the change that was measured.
set -eu
cd "$(dirname "$0")/.."
: "${GO:=go}" "${COUNT:=10}" "${FUZZTIME:=60s}"
export FUZZTIME

echo "== $COUNT times: the broken steps, the killed writer, the killed broker"
$GO test -race -count="$COUNT" ./operation ./ledger ./store
$GO test -race -count="$COUNT" -tags real -run 'TestKilled|TestRevokedInVault|TestReload' ./test/e2e
echo "== three nodes of Vault, whose leader steps down under load"
$GO test -race -count=1 -tags 'real soak' -run TestLeaderStepsDown -v ./test/vaultfaults
echo "== fuzz targets, $FUZZTIME each"
sh test/fuzz.sh
echo "== the broker killed at every step, and 300 times under load"
FAULTS_KILLS="${FAULTS_KILLS:-300}" sh test/faults.sh
