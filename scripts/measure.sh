#!/usr/bin/env bash
# Counts how large Weir is: a description, which no check fails for.
# Usage: measure.sh
set -euo pipefail
cd "$(dirname "$0")/.."
export GOWORK=$PWD/go.work
GO=${GO:-go}

show() { printf '%-58s %7d\n' "$1" "$2"; }

files() {
  local file
  git ls-files --cached --others --exclude-standard -- '*.go' |
    while IFS= read -r file; do [ ! -f "$file" ] || echo "$file"; done
}
outside() { files | grep -v -e '_test\.go$' -e 'internal/testing/'; }
lines() { xargs cat | wc -l; }

show 'lines of Go outside tests' "$(outside | lines)"
show 'lines of Go in all, and of the cases that are text' "$( (files; ls internal/testing/storetest/cases/*) | lines)"
show 'packages' "$("$GO" list ./... ./server/... ./trace/... ./weirgrpc/... ./weirprom/... | wc -l)"
