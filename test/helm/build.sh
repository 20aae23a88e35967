#!/bin/sh
# Builds Helm for the check of the chart, once, into the cache: some three minutes.
set -eu
cd "$(dirname "$0")"

. ../cache.sh
into bin/helm-4.3.2
CGO_ENABLED=0 ${GO:-go} build -ldflags="-s -w" -o "$new/helm" helm.sh/helm/v4/cmd/helm
keep "$new/helm"
