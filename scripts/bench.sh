#!/usr/bin/env bash
# Measures Weir side by side with other limiters, in ROUNDS rounds, and prints what benchstat reads.
# Rounds are whole: what a busy machine does to one limiter, it does to its neighbours too.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go} ROUNDS=${ROUNDS:-5} BENCHTIME=${BENCHTIME:-1s}
scripts/promises.sh -install throttlecrab >&2
scripts/promises.sh -install ratelimit >&2
scripts/promises.sh -install redis-cell >&2

peers=
while read -r module version _; do
  case $module in */weir | */perf | require | ')') continue ;; esac
  grep -qs "\"$module" server/bench/*_test.go && peers="$peers, $module $version"
done < <(sed -n '/^require/,/^)/p' server/bench/go.mod)
echo "date: $(date -u +%Y-%m-%d)"
echo "go: $("$GO" env GOVERSION)"
echo "redis: $(redis-server --version | sed 's/.* v=\([^ ]*\).*/\1/')"
echo "peers: ${peers#, }"

measure() { # the time of a benchmark, which ones, a package
  "$GO" test -run '^$' -bench "$2" -benchtime "$1" -timeout 60m "$3"
}
for _ in $(seq "$ROUNDS"); do
  (cd server/bench && export GOWORK=off && measure "$BENCHTIME" 'Redis|Memory' . && measure 100000x 'Listeners|RateLimit' .)
  measure 400x '^BenchmarkScript$' ./internal/engine/redisengine
done
(cd server/bench && export GOWORK=off && measure "$BENCHTIME" Growth . && measure 100000x 'Bytes|State' .)
