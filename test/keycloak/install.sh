#!/bin/sh
# Installs Keycloak for the tests, once, into the cache: some 180 MB. It needs
# Java 17 or newer, Maven and unzip.
#
#   BROKER_CACHE   the cache's folder (default: ~/.cache/onbehalf-broker)
#
# What can be decided beforehand is decided here ("build"), so that a start
# takes a third of the time. Nothing is written below the cache after that.
set -eu
cd "$(dirname "$0")"

version=26.7.3
sha256=27a6535553c3cdcd083872ba40629efafb3475e3b758e0c6f691395561dd0f1f
. ../cache.sh
into keycloak-$version
mvn -q -B -Dstyle.color=never org.apache.maven.plugins:maven-dependency-plugin:2.8:get -Dtransitive=false \
    -Dartifact=org.keycloak:keycloak-quarkus-dist:$version:zip -Dmaven.repo.local="$new/maven"
zip=$new/maven/org/keycloak/keycloak-quarkus-dist/$version/keycloak-quarkus-dist-$version.zip
echo "$sha256  $zip" | sha256sum -c --quiet -
unzip -q "$zip" -d "$new"
sh "$new/keycloak-$version/bin/kc.sh" build --db=dev-mem --health-enabled=false --metrics-enabled=false \
    --https-client-auth=request >"$new/build.log" 2>&1 || { cat "$new/build.log" >&2; exit 1; }
keep "$new/keycloak-$version"
