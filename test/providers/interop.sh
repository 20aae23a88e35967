#!/bin/sh
# Exchanges at five real identity providers, Keycloak among them, held to
# docs/providers.md. It takes six minutes, most of which is waiting for a subject
# token to end. Keycloak needs Java 17, Maven and unzip.
set -eu
cd "$(dirname "$0")/../.."
: "${GO:=go}"

for script in zitadel/build.sh dex/build.sh oidcprovider/install.sh keycloak/install.sh; do
    sh "test/$script"
done
log=$(mktemp)
trap 'rm -f "$log"' EXIT
$GO test -race -count=1 -timeout 15m -tags interop -v ./test/providers >"$log" 2>&1 || { grep -aE '^ *(---|[a-z_]+\.go)|^interop:' "$log" >&2; exit 1; }
grep -a '^interop:' "$log"
