#!/usr/bin/env bash
# Makes a Debian package of a Linux binary: package.sh BINARY ARCHITECTURE OUTPUT.
set -euo pipefail
BINARY=$(realpath "$1") ARCH=$2 output=$(realpath -m "$3")
cd "$(dirname "$0")/.."
names=$(scripts/version.sh)
eval "$names"
LICENSES=$(mktemp)
trap 'rm -f "$LICENSES"' EXIT
scripts/licenses.sh "$BINARY" >"$LICENSES"
export BINARY ARCH VERSION LICENSES SOURCE_DATE_EPOCH
GOWORK=off "${GO:-go}" tool -modfile=tools/release/go.mod nfpm package --packager deb \
  --config deploy/package/nfpm.yaml --target "$output"
