#!/usr/bin/env bash
# Builds the binary twice, from copies of the sources in two folders and with
# nothing cached, and demands the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
names=$(scripts/version.sh)
eval "$names"
export VERSION COMMIT DATE SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for copy in one another/of/them; do
  mkdir -p "$work/$copy/src"
  git ls-files -z | xargs -0 cp --parents -t "$work/$copy/src"
  GOCACHE=$work/$copy/cache "$work/$copy/src/scripts/build.sh" "$work/$copy/weir"
done
cmp "$work/one/weir" "$work/another/of/them/weir"
sha256sum <"$work/one/weir"
