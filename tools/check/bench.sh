#!/bin/sh
# bench.sh BUILD - measures what bench/run.py measures, or the one line of it that WEIR_BENCH_LINE names.  Takes an hour or more.
#
# Figures are kept in BUILD/bench: as JSON lines, as CSV, and as they are printed.
set -u
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.." || exit 1
WEIR_ENGINE_DIR=$(sh tools/setup/engine.sh --where) || exit 1
WEIR_SMOLLM2=$(sh tools/setup/model.sh) || WEIR_SMOLLM2=
WEIR_BUILD_DIR=$build WEIR_PROGRAM=$build/weir
export WEIR_SMOLLM2 WEIR_BUILD_DIR WEIR_PROGRAM WEIR_ENGINE_DIR
out=$build/bench
mkdir -p "$out"
python3 bench/run.py "${WEIR_BENCH_LINE:-all}" --json "$out/figures.jsonl" --csv "$out/figures.csv" >"$out/figures.out"
status=$?
cat "$out/figures.out"
exit $status
