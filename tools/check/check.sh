#!/bin/sh
# check.sh BUILD [long] - builds everything and runs all tests; its last line is `N passed, N failed` over every test case.
#
#   BUILD        optimised, with the engine: unit, engine and whole-program tests, rules about the sources, installation
#   BUILD/asan   AddressSanitizer and UndefinedBehaviorSanitizer, with assertions: the tests in C
#   BUILD/tsan   ThreadSanitizer: the tests of what runs in several threads
# long adds: whole-program tests under ASan, the tests that take long, ThreadSanitizer over all tests in C, and clang.
#
# A configuration that does not build is a failure, and the others still run.  Logs and results are in BUILD/results.
set -u
build=$1
mode=${2:-short}
root=$(cd "$(dirname "$0")/../.." && pwd)
jobs=${JOBS:-$(nproc)}
results=$build/results
failures=0
cd "$root" || exit 1

WEIR_SMOLLM2=$(sh tools/setup/model.sh) || WEIR_SMOLLM2=
export WEIR_SMOLLM2
[ "$mode" != long ] || export WEIR_TEST_FULL=1

# prepare FOLDER FLAGS...: configures and builds.
prepare() {
	folder=$1
	shift
	printf '== %s\n' "$folder"
	log=$results/$(basename "$folder").log
	if cmake -S . -B "$folder" -DWEIR_TESTS=ON -DWEIR_WERROR=ON "$@" >"$log" 2>&1 &&
		cmake --build "$folder" -j "$jobs" >>"$log" 2>&1; then
		return 0
	fi
	grep -E -B 4 -A 6 'error:|CMake Error|undefined reference|multiple definition|warnings generated' "$log" | head -n 80
	printf '%s: not built, the log is %s\n' "$folder" "$log"
	failures=$((failures + 1))
	return 1
}

# run FOLDER CTEST-FLAGS...: runs the tests of one build folder.
run() {
	folder=$1
	shift
	ctest --test-dir "$folder" -j "$jobs" --no-tests=ignore --output-junit "$results/$(basename "$folder").xml" \
		--test-output-size-passed 16777216 --test-output-size-failed 16777216 "$@" </dev/null
	return 0
}

rm -rf "$results"
mkdir -p "$results"
results=$(cd "$results" && pwd)

engine=ON
sh tools/setup/engine.sh --where >/dev/null || engine=AUTO
prepare "$build" -DWEIR_WITH_ENGINE=$engine && run "$build"
if [ "$mode" = long ]; then
	prepare "$build/asan" -DCMAKE_BUILD_TYPE=Debug -DWEIR_SANITIZE=address && run "$build/asan"
	prepare "$build/tsan" -DCMAKE_BUILD_TYPE=Debug -DWEIR_SANITIZE=thread -DWEIR_WITH_ENGINE=OFF && run "$build/tsan"
	if command -v clang >/dev/null; then
		prepare "$build/clang" -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ && run "$build/clang" -LE sources
	fi
else
	prepare "$build/asan" -DCMAKE_BUILD_TYPE=Debug -DWEIR_SANITIZE=address && run "$build/asan" -LE program
	prepare "$build/tsan" -DCMAKE_BUILD_TYPE=Debug -DWEIR_SANITIZE=thread -DWEIR_WITH_ENGINE=OFF && run "$build/tsan" -L threads
fi
python3 tools/check/count.py --unbuilt "$failures" "$results"/*.xml >"$results/summary"
status=$?
cat "$results/summary"
exit $status
