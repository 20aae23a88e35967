#!/bin/sh
# Builds kubeconform for the check of the chart, once, into the cache.
set -eu
cd "$(dirname "$0")"

. ../cache.sh
into bin/kubeconform-0.8.0
CGO_ENABLED=0 ${GO:-go} build -ldflags="-s -w" -o "$new/kubeconform" github.com/yannh/kubeconform/cmd/kubeconform
keep "$new/kubeconform"
