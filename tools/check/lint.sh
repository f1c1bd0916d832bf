#!/bin/sh
# lint.sh BUILD - runs the linters that are installed over our sources; exits 1 when one of them complains.
set -u
build=$1
status=0
cd "$(dirname "$0")/../.." || exit 1

have() {
	command -v "$1" >/dev/null || { printf 'lint: %s is not installed, skipped\n' "$1"; false; }
}

if have clang-format; then
	find include src programs tests fuzz bench examples -name '*.[ch]' -print0 2>/dev/null | xargs -0 clang-format --dry-run --Werror || status=1
fi
if have clang-tidy; then
	find src programs -name '*.c' -print0 | xargs -0 clang-tidy --quiet -p "$build" || status=1
fi
if have cppcheck; then
	cppcheck -q --std=c11 --enable=warning,performance,portability --inline-suppr \
		--suppress=unknownEvaluationOrder --suppress=selfAssignment --error-exitcode=1 -I include -I src src programs || status=1
fi
if have shellcheck; then
	find tools tests .ci '(' -name '*.sh' -o -path .ci/run ')' -print0 | xargs -0 shellcheck -x || status=1
fi
exit $status
