#!/bin/sh
# python.sh - installs into the engine's environment what its Python package and the tests in Python import.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tools/setup/common.sh
. "$here/common.sh"

site=$(sh "$here/engine.sh" --where) || die "no engine yet: run tools/setup/engine.sh first"
environment=$(cd "$site/../../.." && pwd)
stamp=$environment/python.stamp
[ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$(sha256_of "$here/python.txt")" ] || exit 0
"$environment/bin/python3" -m pip install -q --no-deps --require-hashes --only-binary :all: -r "$here/python.txt" >&2 </dev/null ||
	die "the Python packages of the tests could not be installed"
sha256_of "$here/python.txt" >"$stamp"
