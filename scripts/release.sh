#!/usr/bin/env bash
# Makes what a release offers in dist/: for each platform an archive with the
# static binary, for Linux a Debian package, for each binary a bill of materials
# (CycloneDX), the provenance of them (SLSA, see scripts/provenance.sh) and the
# checksums of it all. All of it is the same each time.
# PLATFORMS="linux/amd64" makes fewer, DIST is another folder. SIGNING_KEY is a private
# key of OpenSSH, or a public one whose private half an agent or a token holds: it signs
# the checksums. Needs GNU tar.
set -euo pipefail
[ -z "${SIGNING_KEY:-}" ] || SIGNING_KEY=$(realpath -e "$SIGNING_KEY")
cd "$(dirname "$0")/.."
top=$PWD
GO=${GO:-go}
PLATFORMS=${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}
DIST=$(realpath -m "${DIST:-dist}")
names=$(scripts/version.sh)
eval "$names"
# One name for all that is made, also where the making changes the folder.
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
  [ "$os" != linux ] || scripts/package.sh "$work/$name/weir" "$arch" "$DIST/$name.deb"
done
cd "$DIST"
# shellcheck disable=SC2035 # no name begins with a dash
PLATFORMS=$PLATFORMS "$top/scripts/provenance.sh" * >"$work/provenance" && mv "$work/provenance" provenance.intoto.json
chmod 644 provenance.intoto.json
sha256sum -- * >"$work/checksums" && mv "$work/checksums" checksums.txt
chmod 644 checksums.txt
# ssh-keygen is where releases are made and where they are used, signs with keys in
# hardware too, and needs no service.
if [ -n "${SIGNING_KEY:-}" ]; then
  ssh-keygen -q -Y sign -n weir-release -f "$SIGNING_KEY" checksums.txt
  chmod 644 checksums.txt.sig
else
  echo 'release: checksums.txt is not signed: SIGNING_KEY is not set' >&2
fi
echo "release: in $DIST"
