#!/usr/bin/env bash
# Writes the digests of base images behind their tags, as name:tag@sha256:…, in the
# Dockerfile and the compose file: a tag can come to mean another image, a digest
# cannot. Needs a registry that can be reached and docker with buildx. With --check it
# changes nothing, names images without a digest and fails if there are any.
set -euo pipefail
cd "$(dirname "$0")/.."
FILES=${FILES:-deploy/docker/Dockerfile deploy/compose/compose.yaml}

# The images are the defaults of …_IMAGE arguments, and those of services that are not
# built here.
images() {
  # shellcheck disable=SC2086
  sed -nE 's/^ARG [A-Z]+_IMAGE=([^ ]+)$/\1/p; s/^ +image: ([^ ]+:[^ ]+)$/\1/p' $FILES | sort -u
}

open=0
for image in $(images); do
  tagged=${image%@*}
  if [ "${1:-}" = --check ]; then
    [ "$image" != "$tagged" ] || { echo "pin: $image has no digest" >&2; open=1; }
    continue
  fi
  digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$tagged")
  [[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "pin: $tagged has the digest \"$digest\"" >&2; exit 1; }
  for file in $FILES; do
    sed -i -E "s|(=\|image: )${image//./\\.}\$|\1$tagged@$digest|" "$file"
  done
  echo "pin: $tagged@$digest"
done
exit $open
