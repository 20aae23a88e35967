# Sourced by what builds or installs a counterpart of the tests, once, into the
# cache folder ${BROKER_CACHE:-~/.cache/onbehalf-broker}:
#
#   into NAME    $out is NAME in the cache. If it is there, the script ends; else $new
#                is an empty folder that goes with the script.
#   npm_ci DIR   installs into $new what DIR/package-lock.json says: every file is checked
#                against its hash, and no script of a package runs.
#   keep PATH    makes PATH, below $new or $new itself, $out: whole or not at all.
cache=${BROKER_CACHE:-$HOME/.cache/onbehalf-broker}

into() {
    out=$cache/$1
    [ ! -e "$out" ] || exit 0
    mkdir -p "$(dirname "$out")"
    new=$(mktemp -d "$cache/.new.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    trap 'exit 1' HUP INT TERM
    echo "making $out, once" >&2
}

npm_ci() {
    cp "$1/package.json" "$1/package-lock.json" "$new"
    (cd "$new" && npm ci --ignore-scripts --no-audit --no-fund --silent)
}

keep() {
    chmod 755 "$1"
    if [ -f "$1" ]; then
        mv "$1" "$out"
        return
    fi
    # Another run may have been faster; mv would then move the folder into its one.
    python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$1" "$out" 2>/dev/null || [ -d "$out" ]
}
