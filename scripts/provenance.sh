#!/usr/bin/env bash
# Prints where the files of a release come from, as an in-toto statement with SLSA
# provenance 1.0: their digests, the commit, the version of Go and who built them.
# BUILDER is the URI of who builds: a CI's workflow, say. It holds no clock and no
# path, so the same sources give the same statement. VERSION, COMMIT, PLATFORMS and
# SOURCE_DATE_EPOCH come from scripts/release.sh; files are named from the folder that
# they are in.
set -euo pipefail
GO=${GO:-go}
: "${VERSION:?}" "${COMMIT?}" "${PLATFORMS:?}" "${SOURCE_DATE_EPOCH:?}"
BUILDER=${BUILDER:-https://github.com/weirlimit/weir/blob/main/scripts/release.sh}
repository=https://github.com/weirlimit/weir

# JSON strings of what may hold anything.
quote() {
  local text=$1
  text=${text//\\/\\\\} text=${text//\"/\\\"}
  case $text in *[[:cntrl:]]*) echo "provenance: a control character in $1" >&2; exit 1 ;; esac
  printf '"%s"' "$text"
}

subjects=''
for file in "$@"; do
  digest=$(sha256sum <"$file")
  subjects+=${subjects:+,}$'\n    '"{\"name\": $(quote "$file"), \"digest\": {\"sha256\": \"${digest%% *}\"}}"
done
go=$("$GO" env GOVERSION)

cat <<JSON
{
  "_type": "https://in-toto.io/Statement/v1",
  "subject": [$subjects
  ],
  "predicateType": "https://slsa.dev/provenance/v1",
  "predicate": {
    "buildDefinition": {
      "buildType": "$repository/blob/main/scripts/release.sh",
      "externalParameters": {"version": $(quote "$VERSION"), "platforms": $(quote "$PLATFORMS")},
      "internalParameters": {"go": $(quote "$go"), "SOURCE_DATE_EPOCH": $(quote "$SOURCE_DATE_EPOCH")},
      "resolvedDependencies": [
        {"uri": $(quote "git+$repository@$COMMIT"), "digest": {"gitCommit": $(quote "$COMMIT")}},
        {"uri": $(quote "https://go.dev/dl/#$go"), "name": "go"}
      ]
    },
    "runDetails": {"builder": {"id": $(quote "$BUILDER")}}
  }
}
JSON
