#!/usr/bin/env bash
# Measures the CPU time that a gRPC call costs weir serve: four rounds of h2load with one hot
# key on the store in memory. On a busy machine, compare two versions in turn.
# Usage: guard.sh [program]   (default: builds this checkout)
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
server=''
trap 'if [ -n "$server" ]; then kill "$server"; wait "$server" || true; fi 2>/dev/null; rm -rf "$folder"' EXIT
weir=${1:-$folder/weir}
[ $# -gt 0 ] || "${GO:-go}" build -o "$weir" ./server/cmd/weir

cat >"$folder/rules.yaml" <<'EOF'
domain: demo
descriptors:
  - key: user
    rate_limit: {algorithm: gcra, requests_per_unit: 1000000000, unit: hour}
EOF
# The domain demo and one descriptor, user=u1, behind gRPC's five bytes.
printf '\0\0\0\0\24\n\4demo\22\14\n\n\n\4user\22\2u1' >"$folder/body.bin"

"$weir" serve --config "$folder/rules.yaml" --http 127.0.0.1:0 --grpc 127.0.0.1:0 --admin off --log-level warn >"$folder/out" &
server=$!
until grep -q '^grpc ' "$folder/out"; do
  kill -0 "$server"
  sleep 0.05
done
address=$(sed -n 's/^grpc //p' "$folder/out")

ticks() { awk '{ print $14 + $15 }' "/proc/$server/stat"; }
calls=${CALLS:-400000}
load() {
  h2load -n "$1" -c 2 -m 128 -d "$folder/body.bin" -H 'content-type: application/grpc' -H 'te: trailers' \
    "http://$address/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
}
load $((calls / 10)) >/dev/null
for _ in 1 2 3 4; do
  before=$(ticks)
  load "$calls" >"$folder/load"
  grep -q " $calls succeeded, 0 failed" "$folder/load"
  echo $((($(ticks) - before) * 10000)) "$calls" | awk '{ printf "%.2f\n", $1 / $2 }'
done | sort -n | tee "$folder/rounds" | awk '{ print $1, "µs of the server" }'
awk '{ v[NR] = $1 } END { printf "median %.2f µs a call\n", (v[2] + v[3]) / 2 }' "$folder/rounds"
