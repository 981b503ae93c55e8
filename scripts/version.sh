#!/usr/bin/env bash
# Prints what a build is called, as lines for eval: the version, the commit, its
# date, and its time for tools that would take the clock's. Variables that are set
# stay; sources that are no checkout need them. A commit without a tag gets the
# version that the go command would give it without any.
set -euo pipefail
cd "$(dirname "$0")/.."

commit='' epoch='' version='' dirty=''
# Only a checkout of this project, not one that the sources were unpacked into.
if [ -e .git ] && git rev-parse --verify -q HEAD >/dev/null; then
  commit=$(git rev-parse HEAD)
  epoch=$(git log -1 --format=%ct)
  [ -z "$(git status --porcelain)" ] || dirty=+dirty
  version=$(git describe --exact-match --match 'v[0-9]*' 2>/dev/null) ||
    version=v0.0.0-$(TZ=UTC git log -1 --date=format-local:%Y%m%d%H%M%S --format=%cd)-${commit:0:12}
  version+=$dirty
fi

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$epoch}
if [ -n "$SOURCE_DATE_EPOCH" ]; then
  date=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ 2>/dev/null || date -u -r "$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
fi
printf '%s=%q\n' \
  VERSION "${VERSION:-${version:-unknown}}" \
  COMMIT "${COMMIT:-$commit}" \
  DATE "${DATE:-${date:-}}" \
  SOURCE_DATE_EPOCH "${SOURCE_DATE_EPOCH:-0}"
