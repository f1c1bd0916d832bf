#!/bin/sh
# run.sh BUILD SOURCE - installs the build folder somewhere else and builds a program against what was installed.
#
# Prints TAP.  Each check runs in its own subshell, its output shown when it fails.
# shellcheck disable=SC2317 # the checks are called by name
set -u
build=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/moved
number=0
failed=0

check() {
	number=$((number + 1))
	if (set -e; "$2") >"$work/log" 2>&1; then
		printf 'ok %d - %s\n' "$number" "$1"
	else
		printf 'not ok %d - %s\n' "$number" "$1"
		sed 's/^/# /' "$work/log"
		failed=1
	fi
}

installs() {
	DESTDIR=$work/staged cmake --install "$build" --prefix /usr/local
	mv "$work/staged/usr/local" "$prefix" # a staged tree must work wherever it ends up
	lib=$(dirname "$(find "$prefix" -name libweir.a)")
	ln -s "$lib" "$work/lib"
	test -f "$prefix/include/weir/weir.h"
	test -f "$lib/libweir.so"
}

# Whatever was built for users must also be installed: program, backend, preloaded object.
installs_all() {
	for name in libggml-weir.so libweir-mmap-preload.so; do
		[ ! -e "$build/$name" ] || test -f "$work/lib/$name"
	done
	[ ! -e "$build/weir" ] || "$prefix/bin/weir" --version
}

with_pkg_config() {
	PKG_CONFIG_PATH=$work/lib/pkgconfig
	export PKG_CONFIG_PATH
	pkg-config --exists --print-errors "weir = $("$work/version")"
	# shellcheck disable=SC2046 # flags are words
	cc -std=c11 -Wall -Wextra -Werror "$source/tests/install/consumer.c" -o "$work/shared" $(pkg-config --cflags --libs weir)
	LD_LIBRARY_PATH=$work/lib "$work/shared"
}

with_pkg_config_static() {
	PKG_CONFIG_PATH=$work/lib/pkgconfig
	export PKG_CONFIG_PATH
	mkdir "$work/archive"
	cp "$work/lib/libweir.a" "$work/archive"
	# shellcheck disable=SC2046
	cc -std=c11 "$source/tests/install/consumer.c" -o "$work/static" $(pkg-config --cflags weir) -L"$work/archive" \
		$(pkg-config --static --libs weir)
	"$work/static"
}

with_cmake() {
	cmake -S "$source/tests/install" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix"
	cmake --build "$work/cmake"
	"$work/cmake/consumer"
	"$work/cmake/consumer_static"
}

# In C++ and in C, each public header stands alone.
headers_alone() {
	for header in "$prefix"/include/weir/*.h; do
		printf '#include <weir/%s>\n' "$(basename "$header")" >"$work/alone.c"
		cc -std=c11 -pedantic -Wall -Wextra -Werror -I"$prefix/include" -fsyntax-only "$work/alone.c"
		c++ -std=c++17 -pedantic -Wall -Wextra -Werror -I"$prefix/include" -fsyntax-only -x c++ "$work/alone.c"
	done
}

# The names that the headers declare, by the compiler's own account of them, are the names that libweir.so exports.
exports() {
	printf '#include <weir/weir.h>\n' >"$work/all.c"
	for header in "$prefix"/include/weir/*.h; do
		printf '#include <weir/%s>\n' "$(basename "$header")" >>"$work/all.c"
	done
	gcc -std=c11 -I"$prefix/include" -fsyntax-only -aux-info "$work/declared.txt" "$work/all.c"
	sed -n '/include\/weir\//s/.*[ *]\(weir_[a-z0-9_]*\) (.*/\1/p' "$work/declared.txt" | LC_ALL=C sort -u >"$work/declared"
	nm -D --defined-only "$work/lib/libweir.so" | sed 's/.* //' | LC_ALL=C sort -u >"$work/exported"
	test -s "$work/declared"
	diff "$work/declared" "$work/exported"
}

backend_exports() {
	[ -e "$work/lib/libggml-weir.so" ] || return 0
	nm -D --defined-only "$work/lib/libggml-weir.so" | sed 's/.* //' >"$work/names"
	grep -qx ggml_backend_init "$work/names"
	! grep -vx 'ggml_backend_init\|ggml_backend_score' "$work/names"
}

printf '1..8\n'
check "installs below DESTDIR, and the tree can be moved" installs
printf '#include <stdio.h>\n#include <weir/version.h>\nint main(void) { return puts(WEIR_VERSION) < 0; }\n' >"$work/version.c"
cc -I"$prefix/include" "$work/version.c" -o "$work/version" || failed=1
check "all that was built for users is installed, the program runs" installs_all
check "a program builds with pkg-config and runs" with_pkg_config
check "a program builds with pkg-config against the static library and runs" with_pkg_config_static
check "a program builds with find_package(weir), shared and static, and runs" with_cmake
check "each public header compiles alone, as C and as C++" headers_alone
check "libweir.so exports what the headers declare" exports
check "libggml-weir.so exports the backend's entry alone" backend_exports
exit "$failed"
