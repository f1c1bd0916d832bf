#!/bin/sh
# peers.sh FOLDER - installs into a Python environment at FOLDER the programs that measurements compare weir with; prints its
# interpreter.  They want several gigabytes (PyTorch with its CUDA libraries, used or not), so nothing but `make bench-peers` asks
# for them.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tools/setup/common.sh
. "$here/common.sh"

environment=${1:?which folder?}
stamp=$environment/peers.stamp
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$(sha256_of "$here/peers.txt")" ]; then
	printf 'installing into %s: about 3 GB to fetch, 6 GB on the drive\n' "$environment" >&2
	python3 -m venv "$environment" || die "python3 makes no environment at $environment"
	"$environment/bin/python3" -m pip install -q --no-deps --require-hashes --only-binary :all: --no-cache-dir \
		-r "$here/peers.txt" >&2 </dev/null || die "the programs to compare with could not be installed"
	sha256_of "$here/peers.txt" >"$stamp"
fi
printf '%s\n' "$environment/bin/python3"
