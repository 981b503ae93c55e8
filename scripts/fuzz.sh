#!/usr/bin/env bash
# Runs every fuzz target for a while: fuzz.sh [10s].
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
time=${1:-10s}

for dir in $("$GO" list -f '{{.Dir}}' ./...); do
  targets=$(cd "$dir" && grep -ohE '^func Fuzz[A-Za-z0-9_]*' ./*_test.go 2>/dev/null | sed 's/^func //' || true)
  for target in $targets; do
    echo "fuzz: $target in ${dir#"$PWD"/}"
    "$GO" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir"
  done
done
