#!/bin/sh
# demo.sh BUILD - runs the small model within less memory than it needs, and shows the text and what it cost.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
model=$(sh "$here/model.sh")
prompt=${PROMPT:-Why do rivers meander?}
set -- "$1/weir" run "$model" --memory "${MEMORY:-140M}" --ctx 1024 --temp 0 --tokens 64
printf '$ %s --prompt "%s"\n\n' "$*" "$prompt" >&2
exec "$@" --prompt "$prompt"
