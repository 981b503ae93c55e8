#!/usr/bin/env bash
# Builds Envoy Gateway from the module proxy, about 2100 packages, and runs it with Weir.
set -euo pipefail
cd "$(dirname "$0")/.."
version=v1.9.1
GO=${GO:-go}
folder=${GATEWAY_DIR:-dist/gateway}/$version
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
if [ ! -x "$folder/envoy-gateway" ]; then
  echo "building Envoy Gateway $version: minutes, and 1 GB of modules and packages"
  if ! GOBIN=$folder GOWORK=off CGO_ENABLED=0 "$GO" install "github.com/envoyproxy/gateway/cmd/envoy-gateway@$version"; then
    echo "skipped: Envoy Gateway $version cannot be built here, see above"
    exit 0
  fi
fi
"$GO" test -count=1 -v -run '^TestGatewayProgram$' ./server/internal/testing/e2e -args -gateway "$folder/envoy-gateway"
