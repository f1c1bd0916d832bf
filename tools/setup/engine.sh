#!/bin/sh
# engine.sh - builds the engine (llama.cpp, as the PyPI package llama-cpp-python carries it) once for this machine.
#
#   engine.sh           builds it unless it is there already; takes minutes
#   engine.sh --where   prints the folder that holds its include/, lib/ and bin/; status 1 when it is not there
#   engine.sh --recipe  prints the hash of the recipe, which the stamp file of a finished build holds
#
# It lives in WEIR_ENGINE_HOME (by default the user's cache folder), outside any build folder, so that a clean build does not
# build it again.  The stamp is written last: an environment without one was interrupted and is made anew.  It is
# compiled for the processor that it is built on, so the stamp also names that processor's abilities.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tools/setup/common.sh
. "$here/common.sh"

version=0.3.36
environment=$weir_home/engine-$version
stamp=$environment/weir.stamp
hook=$here/../../cmake/engine_headers.cmake
options="-DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_SERVER=ON -DLLAMA_TOOLS_INSTALL=ON -DLLAMA_OPENSSL=OFF -DGGML_RPC=ON"

recipe() {
	{
		printf '%s\n%s\n' "$version" "$options"
		cat "$here/engine-tools.txt" "$here/engine.txt"
		grep -v '^#' "$hook"
	} | sha256sum | cut -d ' ' -f 1
}

# The processor's vector abilities, one a line, sorted: what -march=native may have used.
abilities() {
	sed -n 's/^\(flags\|Features\)[[:space:]]*: //p' /proc/cpuinfo 2>/dev/null | sed 1q | tr ' ' '\n' |
		grep -E '^(sse|ssse|avx|fma|f16c|bmi|amx|asimd|sve|i8mm|bf16)' | LC_ALL=C sort -u
}

site() {
	for folder in "$environment"/lib/python3*/site-packages; do
		[ -d "$folder" ] && printf '%s\n' "$folder" && return
	done
	return 1
}

has_files() {
	for file in include/llama.h include/ggml-internal/ggml-backend-impl.h include/ggml-internal/ggml-impl.h \
		lib/libllama.so lib/libggml-base.so lib/libggml-cpu.so bin/llama-server bin/llama-cli; do
		[ -e "$1/$file" ] || return 1
	done
}

# True when the processor has every ability that the stamp names.
runs_here() {
	abilities >"$work/now"
	sed 1d "$stamp" | LC_ALL=C comm -23 - "$work/now" >"$work/lacking"
	[ ! -s "$work/lacking" ]
}

is_ready() {
	[ -f "$stamp" ] && [ "$(sed 1q "$stamp")" = "$(recipe)" ] && runs_here && has_files "$(site)"
}

# Runs a command, its output to the log, in a process group of its own, so that an interruption ends all of it.
run() {
	setsid "$@" >>"$log" 2>&1 </dev/null &
	child=$!
	wait "$child"
}

install_engine() {
	cp "$hook" "$work/hook.cmake" # a path without spaces, whatever ours has
	run "$python" -m pip install --no-cache-dir --no-deps --require-hashes -r "$here/engine-tools.txt" || return 1
	export CMAKE_BUILD_PARALLEL_LEVEL="${JOBS:-$(nproc)}" CMAKE_ARGS="$options -DCMAKE_PROJECT_ggml_INCLUDE=$work/hook.cmake"
	run "$python" -m pip install --no-cache-dir --no-deps --no-build-isolation --require-hashes \
		--no-binary llama-cpp-python -r "$here/engine.txt"
}

build() {
	log=$weir_home/engine-$version.log
	say "building the engine, once; this takes several minutes, and $log grows meanwhile"
	rm -rf "$environment"
	mkdir -p "$weir_home"
	python3 -m venv "$environment"
	python=$environment/bin/python3
	: >"$log"
	if ! install_engine; then
		tail -n 40 "$log" >&2
		die "the engine could not be built; the whole log is $log"
	fi
	has_files "$(site)" || die "the engine's installation lacks files; the log is $log"
	{
		recipe
		abilities
	} >"$stamp.new"
	mv "$stamp.new" "$stamp"
}

clean_up() {
	[ -z "${child:-}" ] || kill -- "-$child" 2>/dev/null || true
	rm -rf "$work"
	[ -z "${building:-}" ] || [ -f "$stamp" ] || rm -rf "$environment"
}

case ${1:-} in
--recipe)
	recipe
	exit 0
	;;
--where)
	folder=$(site) && has_files "$folder" && printf '%s\n' "$folder"
	exit
	;;
"") ;;
*) die "usage: engine.sh [--where | --recipe]" ;;
esac

work=$(mktemp -d)
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
is_ready && exit 0
mkdir -p "$weir_home"
exec 9>"$weir_home/engine.lock"
flock 9 # another build of it may be going on: wait, then look again
is_ready && exit 0
building=yes
build
