#!/usr/bin/env bash
# Runs every check that needs no test, and names each that fails.
set -u
cd "$(dirname "$0")/.." || exit 1
GO=${GO:-go}
TOOL=${TOOL:-env GOWORK=off $GO tool -modfile=tools/go.mod}
failed=0

check() {
  local name=$1
  shift
  echo "lint: $name"
  "$@" || { echo "lint: $name FAILED" >&2; failed=1; }
}

formatted() {
  local files
  files=$(eval "$TOOL gofumpt -l .") || return 1
  [ -z "$files" ] || { printf 'make format changes:\n%s\n' "$files" >&2; return 1; }
}

# tidy says what "go mod tidy" would change in a module. The modules require one another
# as v0.0.0, which only a workspace or replacements can find.
tidy() {
  local mod dir name work status=0
  local -A folder=()
  while IFS= read -r mod; do
    folder[$(awk '$1 == "module" { print $2 }' "$mod")]=$PWD/$(dirname "$mod")
  done < <(git ls-files --cached --others --exclude-standard -- go.mod '*/go.mod')
  for dir in "${folder[@]}"; do
    work=$(mktemp -d)
    cp "$dir/go.mod" "$work/"
    # The replacements need no sums of our modules, which a release commit has.
    grep -v '^github.com/weirlimit/weir[/ ]' "$dir/go.sum" >"$work/go.sum"
    for name in "${!folder[@]}"; do
      "$GO" mod edit -replace="$name=${folder[$name]}" "$work/go.mod"
    done
    (cd "$dir" && GOWORK=off "$GO" mod tidy -diff -modfile="$work/go.mod") || status=1
    rm -rf "$work"
  done
  return $status
}

inside() { (cd "$1" && shift && "$@"); }

modules='./... ./server/... ./trace/... ./weirgrpc/... ./weirprom/...' # those that go.work joins
alone='examples server/bench deploy/check server/tools/h2spec server/tools/grpcurl server/tools/sigv4 server/tools/sdks tools/release tools/promises'
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT

check 'gofumpt' formatted
check 'build staticcheck' env GOWORK=off "$GO" build -modfile=tools/go.mod -o "$tools/staticcheck" honnef.co/go/tools/cmd/staticcheck
# What the tests have compiled with the race detector need not be compiled without it.
shared=$("$GO" env GOFLAGS)
[ "$("$GO" env CGO_ENABLED)" = 0 ] || shared="$shared -race"
# shellcheck disable=SC2086 # several words
check 'go vet' env GOFLAGS="$shared" "$GO" vet $modules
# shellcheck disable=SC2086
check 'staticcheck' env GOFLAGS="$shared" "$tools/staticcheck" $modules
for module in $alone; do
  check "go vet, $module" inside "$module" env GOWORK=off "$GO" vet ./...
  check "staticcheck, $module" inside "$module" env GOWORK=off "$tools/staticcheck" ./...
done
check 'govulncheck' env GO="$GO" scripts/vulnerabilities.sh
check 'go mod tidy' tidy
# Pinning needs a registry, which is not there everywhere: it is no failure.
scripts/pin.sh --check 2>/dev/null || echo 'lint: images are named by tags: "make pin" writes their digests, where a registry can be reached' >&2
exit $failed
