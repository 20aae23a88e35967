#!/bin/sh
# Prints the licences of what the named programs are linked from, with the notices
# that go with them: ours, Go's own, then each module's. Whoever passes a program
# on passes this on with it.
set -eu
cd "$(dirname "$0")/../.."
: "${GO:=go}"

part() { printf '\n==== %s\n\n' "$1" && cat "$2"; }

printf 'What follows is under its own licence. The source of each is at the path and the version that are named.\n'
part "this program" LICENSE
part "the Go standard library" "$($GO env GOROOT)/LICENSE"
$GO list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' "$@" | LC_ALL=C sort -u |
    while read -r path version dir; do
        found=
        for file in "$dir"/LICEN[CS]E* "$dir"/COPYING* "$dir"/COPYRIGHT* "$dir"/NOTICE* "$dir"/PATENTS*; do
            [ -f "$file" ] || continue
            found=yes
            part "$path $version, ${file##*/}" "$file"
        done
        [ -n "$found" ] || { echo "$path $version has no licence" >&2; exit 1; }
    done
