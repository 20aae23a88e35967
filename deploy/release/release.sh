#!/bin/sh
# Makes a release in ./dist, or in the folder that is named:
#
#   sh deploy/release/release.sh [-o FOLDER] [ARCH...]      without ARCH: amd64 arm64
#
#   broker-VERSION-linux-ARCH            the program: static, and the same bytes wherever it is built
#   broker-VERSION-linux-ARCH.cdx.json   what it is made of, by CycloneDX, read from the program
#   broker-VERSION-licenses.txt          under which licences that is
#   SHA256SUMS                           of all of them: sha256sum -c SHA256SUMS
#
# The version is broker.Version. What could differ between two machines is set
# here: the Go that builds, and everything of its environment that reaches the bytes.
set -eu
cd "$(dirname "$0")/../.."
top=$PWD

out=dist
while getopts o: option; do
    case $option in
    o) out=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- amd64 arm64

sh deploy/release/build.sh
sbom=${BROKER_CACHE:-$HOME/.cache/onbehalf-broker}/bin/cyclonedx-gomod-1.10.0
version=$(sed -n 's/^const Version = "\(.*\)"$/\1/p' broker.go)
[ -n "$version" ] || { echo "broker.go has no Version" >&2; exit 1; }

export GOTOOLCHAIN=go1.27.3 GOFLAGS= GOEXPERIMENT= GOWORK=off GOOS=linux CGO_ENABLED=0 GOAMD64=v1 GOARM64=v8.0
mkdir -p "$out"
cd "$out"
rm -f broker-* SHA256SUMS
folder=$PWD
for arch; do
    name=broker-$version-linux-$arch
    GOARCH=$arch ${GO:-go} build -C "$top" -trimpath -buildvcs=false -ldflags="-s -w -buildid=" -o "$folder/$name" ./cmd/broker
    # Without a serial number and a time: both would differ each time.
    "$sbom" bin -json -std -licenses -noserial -notimestamp -version "$version" -output "$name.cdx.json" "$name" 2>said ||
        { cat said >&2; exit 1; }
    rm said
done
# GOARCH is not said: both link the same modules.
sh "$top/deploy/release/licenses.sh" ./cmd/broker >"broker-$version-licenses.txt"
sha256sum broker-* >SHA256SUMS
cat SHA256SUMS
