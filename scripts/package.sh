#!/usr/bin/env bash
# Makes a Debian package of a Linux binary: package.sh BINARY ARCHITECTURE OUTPUT.
set -euo pipefail
BINARY=$(realpath "$1") ARCH=$2 output=$(realpath -m "$3")
cd "$(dirname "$0")/.."
names=$(scripts/version.sh)
eval "$names"
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
scripts/licenses.sh "$BINARY" >"$WORK/licenses"
# BINARY may be for another machine than this one.
for shell in bash zsh fish; do
  GOWORK="$PWD/go.work" "${GO:-go}" run ./server/cmd/weir completion "$shell" >"$WORK/completion.$shell"
done
export BINARY ARCH VERSION WORK SOURCE_DATE_EPOCH
GOWORK=off "${GO:-go}" tool -modfile=tools/release/go.mod nfpm package --packager deb \
  --config deploy/package/nfpm.yaml --target "$output"
