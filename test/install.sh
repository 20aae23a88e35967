#!/bin/sh
# Builds or installs, once, everything that tests over real counterparts need,
# into the cache folder ${BROKER_CACHE:-~/.cache/onbehalf-broker}. What is there
# already costs nothing. Vault comes last: it takes the longest.
set -eu
cd "$(dirname "$0")"

for script in kubeconform/build.sh helm/build.sh zitadel/build.sh gosdk/build.sh openbao/install.sh npm/install.sh browser/install.sh conformance/install.sh mcpclients/install.sh oidcprovider/install.sh python/install.sh dex/build.sh vault/build.sh; do
    begun=$(date +%s)
    sh "$script"
    echo "$script: $(($(date +%s) - begun)) s"
done
