#!/bin/sh
# mlx.sh [--where] - installs MLX and mlx_lm, which the tests of weir.mlx run with, into an environment of their own; prints its
# interpreter.  --where: prints it if it is there, and installs nothing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tools/setup/common.sh
. "$here/common.sh"

environment=$weir_home/mlx
stamp=$environment/mlx.stamp
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$(sha256_of "$here/mlx.txt")" ]; then
	[ "${1:-}" != --where ] || exit 1
	say "installing MLX for the tests into $environment: about 130 MB to fetch"
	rm -rf "$environment"
	mkdir -p "$weir_home"
	python3 -m venv "$environment" || die "python3 makes no environment at $environment"
	"$environment/bin/python3" -m pip install -q --no-deps --require-hashes --only-binary :all: --no-cache-dir \
		-r "$here/mlx.txt" >&2 </dev/null || die "MLX could not be installed"
	sha256_of "$here/mlx.txt" >"$stamp"
fi
printf '%s\n' "$environment/bin/python3"
