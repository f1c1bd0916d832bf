#!/bin/sh
# demo.sh BUILD - runs the small model within less memory than it is large, and shows the text and what it cost.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
model=$(sh "$here/model.sh")
set -- "$1/weir" run "$model" -M "${MEMORY:-120M}" -p "${PROMPT:-Why do rivers meander?}" -n 64
printf '%s' '$' >&2
printf ' %s' "$@" >&2
printf '\n' >&2
exec "$@"
