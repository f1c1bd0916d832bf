#!/bin/sh
# bench.sh BUILD - runs every bench/bench_*.py and bench/bench_*.sh; what each prints is shown and kept in BUILD/bench.
set -u
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.." || exit 1
site=$(sh tools/setup/engine.sh --where) || exit 1
WEIR_SMOLLM2=$(sh tools/setup/model.sh) || WEIR_SMOLLM2=
WEIR_BUILD_DIR=$build WEIR_PROGRAM=$build/weir WEIR_ENGINE_DIR=$site
export WEIR_SMOLLM2 WEIR_BUILD_DIR WEIR_PROGRAM WEIR_ENGINE_DIR
mkdir -p "$build/bench"
status=0
for source in bench/bench_*.py bench/bench_*.sh; do
	[ -f "$source" ] || continue
	name=$(basename "$source")
	case $source in
	*.py) runner=$site/../../../bin/python3 ;;
	*) runner="sh" ;;
	esac
	printf '== %s\n' "$name" >&2
	"$runner" "$source" >"$build/bench/${name%.*}.out" || status=1
	cat "$build/bench/${name%.*}.out"
done
exit $status
