#!/usr/bin/env bash
# Looks for known vulnerabilities in the code that the program calls, with govulncheck.
# If its database (https://vuln.go.dev, or GOVULNDB) is unreachable, the script prints
# one line and succeeds, so that a machine without network can run the linters; with
# --required, as for a release, it fails. GOVULNCHECK names a program to run instead.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
GO=${GO:-go}
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT

GOVULNCHECK=${GOVULNCHECK:-$tools/govulncheck}
# A tool of another module does not run inside the workspace, but its binary does.
[ "$GOVULNCHECK" != "$tools/govulncheck" ] ||
  GOWORK=off "$GO" build -modfile=tools/go.mod -o "$GOVULNCHECK" golang.org/x/vuln/cmd/govulncheck || exit 1
export GOWORK=$PWD/go.work
out=$("$GOVULNCHECK" ./... ./server/... ./trace/... ./weirgrpc/... ./weirprom/... 2>&1)
status=$?
if [ "$status" -ne 0 ] && [ "$status" -ne 3 ] && grep -q 'fetching vulnerabilities' <<<"$out"; then
  unreachable="its database cannot be reached (${GOVULNDB:-https://vuln.go.dev})"
  if [ "${1:-}" = --required ]; then
    echo "vulnerabilities: nothing was checked, and a release needs it: $unreachable" >&2
    exit 1
  fi
  echo "lint: govulncheck SKIPPED, NOTHING WAS CHECKED: $unreachable" >&2
  exit 0
fi
[ "$status" -eq 0 ] || printf '%s\n' "$out" >&2
exit "$status"
