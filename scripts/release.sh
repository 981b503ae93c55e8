#!/usr/bin/env bash
# Writes the files of a release to dist/: for each platform an archive with the static
# binary and a bill of materials (CycloneDX), for Linux a Debian package, the Go modules
# as a module proxy serves them, the provenance of these files (SLSA, see
# scripts/provenance.sh), and checksums. Two runs give the same bytes.
# PLATFORMS="linux/amd64" builds fewer, DIST names another folder. SIGNING_KEY is an
# OpenSSH private key, or a public key whose private half is in an agent or a token; it
# signs the checksums. Needs GNU tar and git.
set -euo pipefail
[ -z "${SIGNING_KEY:-}" ] || SIGNING_KEY=$(realpath -e "$SIGNING_KEY")
cd "$(dirname "$0")/.."
top=$PWD
GO=${GO:-go}
export GOWORK=$top/go.work
PLATFORMS=${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}
DIST=$(realpath -m "${DIST:-dist}")
names=$(scripts/version.sh)
eval "$names"
# One version for all files, even if a step changes the checkout.
export VERSION COMMIT DATE SOURCE_DATE_EPOCH
number=${VERSION#v}

rm -rf "$DIST"
mkdir -p "$DIST"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

archive() {
  local name=$1
  (cd "$work" && tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' -cf - "$name") |
    gzip -9n >"$DIST/$name.tar.gz"
}

for platform in $PLATFORMS; do
  os=${platform%/*} arch=${platform#*/}
  name=weir_${number}_${os}_$arch
  echo "release: $name"
  mkdir "$work/$name"
  GOOS=$os GOARCH=$arch scripts/build.sh "$work/$name/weir"
  scripts/licenses.sh "$work/$name/weir" >"$work/$name/THIRD_PARTY_LICENSES"
  cp LICENSE README.md CHANGELOG.md SECURITY.md "$work/$name/"
  archive "$name"
  GOWORK=off "$GO" tool -modfile=tools/release/go.mod cyclonedx-gomod bin -json -noserial -notimestamp \
    -version "$VERSION" -output "$DIST/$name.cdx.json" "$work/$name/weir" 2>/dev/null
  # The workspace's own modules have the version of the release.
  sed -i "s/(devel)/$VERSION/g" "$DIST/$name.cdx.json"
  [ "$os" != linux ] || scripts/package.sh "$work/$name/weir" "$arch" "$DIST/$name.deb"
done

name=weir_${number}_modules
echo "release: $name"
mkdir "$work/$name"
# Build metadata such as +dirty has no place in a module's version.
(cd tools/release && GOWORK=off "$GO" run ./modules -root "$top" -version "${VERSION%%+*}" -proxy "$work/$name")
archive "$name"

cd "$DIST"
# shellcheck disable=SC2035 # no name starts with a dash
PLATFORMS=$PLATFORMS "$top/scripts/provenance.sh" * >"$work/provenance" && mv "$work/provenance" provenance.intoto.json
chmod 644 provenance.intoto.json
sha256sum -- * >"$work/checksums" && mv "$work/checksums" checksums.txt
chmod 644 checksums.txt
# Every host that makes or installs releases has ssh-keygen, and it can sign with
# hardware keys.
if [ -n "${SIGNING_KEY:-}" ]; then
  ssh-keygen -q -Y sign -n weir-release -f "$SIGNING_KEY" checksums.txt
  chmod 644 checksums.txt.sig
else
  echo 'release: checksums.txt is not signed: SIGNING_KEY is not set' >&2
fi
echo "release: in $DIST"
