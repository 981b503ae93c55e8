#!/usr/bin/env bash
# Counts how large Weir is, and fails where a number is above its bound below. Lower a bound
# with each step that makes room; raise one only in a commit that says why. TestAPIStaysSmall
# does the same for what the public packages export.
# Usage: measure.sh
set -euo pipefail
cd "$(dirname "$0")/.."
export GOWORK=$PWD/go.work
GO=${GO:-go}
status=0

# within NAME NUMBER BOUND prints a measure.
within() {
  local note=''
  if [ "$2" -gt "$3" ]; then
    note='  TOO MANY' status=1
  fi
  printf '%-58s %7d of %7d%s\n' "$1" "$2" "$3" "$note"
}

# files lists the Go files, without those of model tokens, which have no bound yet.
files() {
  local file
  git ls-files --cached --others --exclude-standard -- '*.go' | grep -v '^server/internal/meter/' |
    while IFS= read -r file; do [ ! -f "$file" ] || echo "$file"; done
}
outside() { files | grep -v '_test\.go$'; }
lines() { xargs cat | wc -l; }
uses() { outside | xargs cat | grep -c "$1" || true; }

within 'lines of Go outside tests' "$(outside | lines)" 63896
within 'lines of Go in all, and of the cases that are text' "$( (files; ls internal/storetest/cases/*) | lines)" 128407
within 'packages' "$("$GO" list ./... ./server/... ./trace/... ./weirgrpc/... | grep -vc '/internal/meter$')" 64
within 'uses of weir.As outside tests' "$(uses 'weir\.As\[')" 0
within 'copies of a sleep that a context ends' "$(uses '^func sleep(ctx context.Context')" 1
within 'copies of a line a second in the log' "$(uses 'CompareAndSwap(last, now)')" 2
exit $status
