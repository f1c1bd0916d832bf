#!/bin/sh
# torch.sh - installs PyTorch, which the tests in tests/torch run with, into an environment of its own; prints its interpreter.
#
# What PyPI has for x86-64 brings the libraries of CUDA along and takes 7 GB; that is why only `make check-torch` asks for it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tools/setup/common.sh
. "$here/common.sh"

environment=$weir_home/torch
stamp=$environment/torch.stamp
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$(sha256_of "$here/torch.txt")" ]; then
	say "installing PyTorch for the tests into $environment: 7 GB"
	rm -rf "$environment"
	mkdir -p "$weir_home"
	python3 -m venv "$environment" || die "python3 makes no environment at $environment"
	"$environment/bin/python3" -m pip install -q --no-deps --require-hashes --only-binary :all: --no-cache-dir \
		-r "$here/torch.txt" >&2 </dev/null || die "PyTorch could not be installed"
	sha256_of "$here/torch.txt" >"$stamp"
fi
printf '%s\n' "$environment/bin/python3"
