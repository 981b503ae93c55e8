#!/usr/bin/env bash
# Checks what Weir and other limiters promise, and writes the table of docs/comparison.md. It
# installs the others, at fixed versions, into the user's cache folder. A limiter that cannot be
# installed is named in one line, and left out of the table.
# Usage: promises.sh [arguments of the test, such as -only redis_rate, which writes no table]
# or: promises.sh -install throttlecrab, which installs that limiter and checks nothing.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
GO=${GO:-go}
folder=${XDG_CACHE_HOME:-$HOME/.cache}/weir/promises
mkdir -p "$folder/bin" "$folder/node"

wanted=
[ "${1:-}" = -install ] && wanted=$2

# try installs a limiter unless it is there. Its log has the name's first word.
try() {
  local name=$1 there=$2 log=$folder/${1%% *}.log
  shift 2
  [ -z "$wanted" ] || [ "$wanted" = "$name" ] || return 0
  [ -e "$folder/$there" ] || "$@" >"$log" 2>&1 || echo "promises: SKIPPED: $name cannot be installed: see $log" >&2
}

# Go's own modules are not touched, and a newer Go may be fetched for them.
install_go() { (cd / && GOWORK=off GOFLAGS=-mod=mod GOTOOLCHAIN=auto GOBIN="$folder/bin" "$GO" install "$1"); }

# The compiler of protocol buffers, which throttlecrab's build runs, comes with a package of Python.
install_python() {
  python3 -m venv "$folder/python" && "$folder/python/bin/pip" install --quiet --disable-pip-version-check 'limits[redis]==5.8.0' grpcio-tools==1.83.0
}

install_crab() {
  [ -e "$folder/python/bin/python" ] || install_python || return
  printf '#!/bin/sh\nexec "%s/python/bin/python" -m grpc_tools.protoc "$@"\n' "$folder" >"$folder/bin/protoc" && chmod +x "$folder/bin/protoc" &&
    PROTOC=$folder/bin/protoc cargo install --quiet --locked --root "$folder/crab" --version 0.4.40 throttlecrab-server
}

# The module is linked with the compiler's library.
install_cell() {
  RUSTFLAGS="-C link-arg=-Wl,-rpath,$(rustc --print target-libdir)" cargo build --quiet --locked --release --manifest-path tools/promises/testdata/redis-cell/Cargo.toml --target-dir "$folder/cell"
}

# Its library is built with RocksDB, which takes half an hour, and needs libclang and headers that the
# compiler of C has.
install_limitador() {
  "$folder/python/bin/pip" install --quiet --disable-pip-version-check libclang==18.1.1 &&
    LIBCLANG_PATH=$(dirname "$(find "$folder/python" -name 'libclang*.so*' | head -n 1)") BINDGEN_EXTRA_CLANG_ARGS="-I$(gcc -print-file-name=include)" \
    cargo build --quiet --locked --release --manifest-path tools/promises/testdata/limitador/Cargo.toml --target-dir "$folder/limitador"
}

install_bucket4j() {
  local child=tools/promises/testdata/bucket4j
  mvn -q -B -f "$child/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies "-DoutputDirectory=$folder/bucket4j/jars" &&
    javac -d "$folder/bucket4j" -cp "$folder/bucket4j/jars/*" "$child/Child.java"
}

try limits python/bin/python install_python
try rate-limiter-flexible node/node_modules/rate-limiter-flexible \
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder/node" rate-limiter-flexible@11.4.0 ioredis@5.8.2
try ratelimit bin/service_cmd install_go github.com/envoyproxy/ratelimit/src/service_cmd@v1.4.1-0.20260122083618-3fb702589d36
try gubernator bin/gubernator install_go github.com/gubernator-io/gubernator/v2/cmd/gubernator@v2.21.0
try redis-cell cell/release/libredis_cell.so install_cell
try Limitador limitador/release/child install_limitador
try bucket4j bucket4j/Child.class install_bucket4j
try throttlecrab crab/bin/throttlecrab-server install_crab
[ -z "$wanted" ] || exit 0

cd tools/promises && GOWORK=off "$GO" test -count=1 -timeout 60m -run '^TestTable$' -v . -args -peers "$folder" -table ../../docs/comparison.md "$@" | grep -v '^=== '
