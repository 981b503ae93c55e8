#!/usr/bin/env bash
# Checks the dashboard with axe-core, which it fetches from npm's registry.
set -euo pipefail
cd "$(dirname "$0")/.."
version=4.10.3
sum=5e6edba515e70d25f6604d9815f064d859c5d1ea7ab661bbc4f87c88779ef0c21cae0abbeb636471ef39e9d62d2582e4b88a1866f19f4ecfcf6d986275e4dc12
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm pack --silent --pack-destination "$folder" "axe-core@$version" >/dev/null
echo "$sum  $folder/axe-core-$version.tgz" | sha512sum --check --quiet
tar -xzf "$folder/axe-core-$version.tgz" -C "$folder" package/axe.min.js
"${GO:-go}" test -count=1 -run '^Test(Accessible|Login)$' ./server/internal/dashboard -args -axe "$folder/package/axe.min.js"
