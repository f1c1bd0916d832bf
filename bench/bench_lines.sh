#!/bin/sh
# bench_lines.sh - every line of run.py, figures kept as JSON lines and CSV in WEIR_BUILD_DIR/bench.  Takes an hour or more.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${WEIR_BUILD_DIR:-build}/bench
mkdir -p "$out"
exec python3 "$here/run.py" "${WEIR_BENCH_LINE:-all}" --json "$out/figures.jsonl" --csv "$out/figures.csv"
