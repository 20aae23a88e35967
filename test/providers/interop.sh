#!/bin/sh
# Exchanges at five real identity providers, Keycloak among them, held to
# docs/providers.md, and people who sign in there for MCP clients. It takes seven
# minutes, most of which is waiting for a subject token to end. Keycloak needs
# Java 17, Maven and unzip.
set -eu
cd "$(dirname "$0")/../.."
: "${GO:=go}"

for script in zitadel/build.sh dex/build.sh oidcprovider/install.sh keycloak/install.sh python/install.sh mcpclients/install.sh; do
    sh "test/$script"
done
log=$(mktemp)
trap 'rm -f "$log"' EXIT
interop() {
    $GO test -race -count=1 -timeout 15m -tags interop -v "$@" >>"$log" 2>&1 || { grep -aE '^ *(---|[a-z_]+\.go)|^interop:' "$log" >&2; exit 1; }
}
interop ./test/providers
interop -run TestKeycloakSignIn ./test/mcpclients
grep -a '^interop:' "$log"
