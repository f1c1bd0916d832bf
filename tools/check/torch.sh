#!/bin/sh
# torch.sh BUILD - runs the tests of the Python package with PyTorch; its last line is `N passed, N failed`.
set -eu
build=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
python=$(sh "$root/tools/setup/torch.sh")
results=$build/torch.xml

cmake -S "$root" -B "$build" -DWEIR_TESTS=ON -DWEIR_TORCH_PYTHON="$python" >/dev/null
ctest --test-dir "$build" -L torch --no-tests=error --output-junit "$results" --test-output-size-passed 16777216 \
	--test-output-size-failed 16777216 </dev/null || true
cmake -S "$root" -B "$build" -DWEIR_TORCH_PYTHON= >/dev/null # make check wants none
python3 "$root/tools/check/count.py" "$results"
