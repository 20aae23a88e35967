#!/bin/sh
# Known vulnerabilities that the product can reach, against the list of those
# we live with: test/vuln-allowed.txt.
set -eu
cd "$(dirname "$0")/.."
: "${GO:=go}"

# The database is a module too: pinned here, raised like any dependency.
database=golang.org/x/vulndb@v0.0.0-20261105234957-e22db6528018
$GO mod download "$database"
where=$($GO env GOMODCACHE)/$database/data/osv

found=$(mktemp)
trap 'rm -f "$found"' EXIT
$GO tool -modfile=tools/go.mod govulncheck -db "file://$where" -format openvex ./cmd/broker >"$found"
$GO run -C tools ./vuln ../test/vuln-allowed.txt <"$found"
