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

# What go generate leaves must be what was there before, committed or not.
generated() {
  local before after
  before=$(snapshot) && "$GO" generate ./... && after=$(snapshot) || return 1
  [ "$before" = "$after" ] || { echo 'go generate changes files: commit what it writes' >&2; return 1; }
}

snapshot() {
  git ls-files -z --cached --others --exclude-standard | xargs -0 cksum 2>/dev/null | cksum
}

# Every module by itself: a workspace would hide what one of them lacks.
tidy() {
  local mod status=0
  while IFS= read -r mod; do
    (cd "$(dirname "$mod")" && GOWORK=off "$GO" mod tidy -diff) || status=1
  done < <(git ls-files --cached --others --exclude-standard -- go.mod '*/go.mod')
  return $status
}

# Modules of their own: the examples, as a user's program is, the benchmark, and
# the test of what is shipped.
inside() { (cd "$1" && shift && "$@"); }

check 'gofumpt' formatted
check 'go vet' "$GO" vet ./...
check 'go vet, examples' inside examples "$GO" vet ./...
check 'go vet, bench' inside bench "$GO" vet ./...
check 'go vet, deploy/check' inside deploy/check "$GO" vet ./...
check 'go vet, tools/h2spec' inside tools/h2spec "$GO" vet ./...
check 'staticcheck' eval "$TOOL staticcheck ./..."
check 'staticcheck, examples' inside examples eval "${TOOL/=tools/=../tools} staticcheck ./..."
check 'staticcheck, bench' inside bench eval "${TOOL/=tools/=../tools} staticcheck ./..."
check 'staticcheck, deploy/check' inside deploy/check eval "${TOOL/=tools/=../../tools} staticcheck ./..."
check 'staticcheck, tools/h2spec' inside tools/h2spec eval "${TOOL/=tools/=../../tools} staticcheck ./..."
check 'govulncheck' env TOOL="$TOOL" scripts/vulnerabilities.sh
check 'generated files' generated
check 'go mod tidy' tidy
# Pinning needs a registry, which is not there everywhere: it is no failure.
scripts/pin.sh --check 2>/dev/null || echo 'lint: images are named by tags: "make pin" writes their digests, where a registry can be reached' >&2
exit $failed
