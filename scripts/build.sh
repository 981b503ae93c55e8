#!/usr/bin/env bash
# Builds the static binary: build.sh OUTPUT; GOOS and GOARCH say for what. The
# same sources under the same name give the same bytes, in whatever folder and
# whenever they are built. VERSION, COMMIT and DATE replace what git says.
set -euo pipefail
output=$(realpath -m "$1")
cd "$(dirname "$0")/.."
names=$(scripts/version.sh)
eval "$names"

cli=github.com/weirlimit/weir/server/internal/cli
# What the go command would record depends on whether there is a checkout.
CGO_ENABLED=0 GOWORK="$PWD/go.work" "${GO:-go}" build -buildvcs=false -trimpath \
  -ldflags "-s -w -buildid= -X $cli.version=$VERSION -X $cli.commit=$COMMIT -X $cli.date=$DATE" \
  -o "$output" ./server/cmd/weir
