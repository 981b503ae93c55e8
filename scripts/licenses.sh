#!/usr/bin/env bash
# Prints the licences of Go and of all modules linked into a binary:
# licenses.sh BINARY.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
export GOWORK=$PWD/go.work

show() {
  local name=$1 folder=$2 file found=
  for file in "$folder"/LICENSE* "$folder"/LICENCE* "$folder"/COPYING* "$folder"/NOTICE*; do
    [ -f "$file" ] || continue
    found=yes
    printf '==== %s: %s\n\n' "$name" "$(basename "$file")"
    cat "$file"
    echo
  done
  [ -n "$found" ] || { echo "licenses: $name has none" >&2; exit 1; }
}

show "Go" "$("$GO" env GOROOT)"
"$GO" version -m "$1" | awk '$1 == "dep" && $2 !~ /^github.com\/weirlimit\/weir/ { print $2, $3 }' | while read -r module version; do
  show "$module $version" "$("$GO" list -m -f '{{.Dir}}' "$module")"
done
