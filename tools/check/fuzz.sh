#!/bin/sh
# fuzz.sh BUILD - builds the fuzzers with clang and runs each for FUZZ_SECONDS seconds (60) from its corpus.
#
# New inputs are kept in BUILD/fuzz/corpus/NAME, what broke in BUILD/fuzz/found.
set -eu
build=$1/fuzz
seconds=${FUZZ_SECONDS:-60}
cd "$(dirname "$0")/../.."
command -v clang >/dev/null || {
	echo "fuzz: clang is needed: apt-get install clang" >&2
	exit 1
}
cmake -S . -B "$build" -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=Debug -DWEIR_FUZZ=ON \
	-DWEIR_TESTS=OFF -DWEIR_WITH_ENGINE=OFF
cmake --build "$build" -j "${JOBS:-$(nproc)}"
mkdir -p "$build/found"
status=0
for source in fuzz/fuzz_*.c; do
	[ -f "$source" ] || continue
	name=$(basename "$source" .c)
	corpus=fuzz/corpus/${name#fuzz_}
	mkdir -p "$build/corpus/$name"
	[ -d "$corpus" ] || corpus=$build/corpus/$name
	"$build/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
		-artifact_prefix="$build/found/$name-" "$build/corpus/$name" "$corpus" || status=1
done
exit $status
