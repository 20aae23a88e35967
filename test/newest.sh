#!/bin/sh
# The product and what leans most on the standard library, with the newest Go
# that release builds use; go.mod says what the oldest is.
set -eu
cd "$(dirname "$0")/.."
: "${GO:=go}"
export GOTOOLCHAIN=go1.27.3

$GO version
$GO build ./cmd/...
$GO test ./strictjson ./identity ./egress ./mcpclient ./exchange ./httpapi
