#!/bin/sh
# Builds cyclonedx-gomod for the list of what a release is made of, once, into
# the cache. The list holds its hash, so it is the same everywhere too.
set -eu
cd "$(dirname "$0")"

. ../../test/cache.sh
into bin/cyclonedx-gomod-1.10.0
GOTOOLCHAIN=go1.27.3 GOFLAGS= GOAMD64=v1 CGO_ENABLED=0 ${GO:-go} build -trimpath -buildvcs=false -ldflags="-s -w -buildid=" \
    -o "$new/cyclonedx-gomod" github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
keep "$new/cyclonedx-gomod"
