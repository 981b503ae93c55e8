#!/usr/bin/env bash
# Runs every fuzz target, for a number of executions or a while, and prints a
# table of what came of it: fuzz.sh [1000000x|10s] [PATTERN]. The pattern is for
# "folder target", as in the table.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
time=${1:-1000000x}
pattern=${2:-.}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# field prints the last number that stands after a word in the log.
field() { grep -oE "$1: [0-9a-z.]+" "$log" | tail -n 1 | cut -d ' ' -f 2 || true; }

# timed_out tells the end of a while from a finding: before Go 1.27 a worker that is
# still at it then may fail the run (go.dev/issue/75804).
timed_out() { grep -q '^ *context deadline exceeded$' "$log" && ! grep -q 'Failing input' "$log"; }

failed=0
printf '%-22s %-24s %12s %8s %9s\n' folder target executions seconds findings
for dir in $("$GO" list -f '{{.Dir}}' ./... ./server/... ./trace/... ./weirgrpc/... ./weirprom/...); do
  folder=${dir#"$PWD"}
  folder=${folder#/}
  folder=${folder:-.}
  targets=$(grep -ohE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go 2>/dev/null | sed 's/^func //' | sort || true)
  for target in $targets; do
    if ! grep -qE "$pattern" <<<"$folder $target"; then
      continue
    fi
    began=$SECONDS findings=0
    # Inputs that reach something new are kept small for a moment, not a minute.
    if ! "$GO" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1000x "$dir" >"$log" 2>&1 && ! timed_out; then
      findings=1 failed=1
    fi
    printf '%-22s %-24s %12s %8s %9s\n' "$folder" "$target" "$(field execs)" "$((SECONDS - began))" "$findings"
    if [ "$findings" = 1 ]; then
      cat "$log"
    fi
  done
done
exit "$failed"
