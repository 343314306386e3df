#!/usr/bin/env bash
# fetch-jars.sh [DIR]
#
# Copies the broker's jars into DIR (default: broker-jars-4.4.0 in cargo's target directory) and prints DIR.
# Does nothing when they are there. The folder appears by one rename, so a folder that exists is a whole one.
# KAFKA_VERSION chooses another release.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=${KAFKA_VERSION:-4.4.0}
dir=${1:-${CARGO_TARGET_DIR:-$here/../../target}/broker-jars-$version}

if [ ! -e "$dir" ]; then
  mkdir -p "$(dirname "$dir")"
  staging=$dir.part-$$
  mkdir "$staging"
  trap 'rm -rf "$staging"' EXIT
  # Strict checksums: a jar that differs from the repository's own checksum stops the copy.
  mvn --quiet --batch-mode --strict-checksums --file "$here/pom.xml" -Dkafka.version="$version" \
    dependency:copy-dependencies -DoutputDirectory="$staging" >&2
  mv -T "$staging" "$dir"
fi
echo "$dir"
