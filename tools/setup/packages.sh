#!/bin/sh
# packages.sh [run|check] - makes sure that the Debian packages needed to build (run) or to test (check) are installed.
#
# As root it installs what is missing.  For anyone else it prints the one line that does, and stops with status 1.
# On a system without dpkg it says what is needed and goes on.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tools/setup/common.sh
. "$here/common.sh"

build="gcc g++ libc6-dev make cmake pkg-config python3 python3-venv liburing-dev libjansson-dev libxxhash-dev ca-certificates"
tests="libcmocka-dev"

case ${1:-run} in
run) wanted=$build ;;
check) wanted="$build $tests" ;;
*) die "usage: packages.sh [run|check]" ;;
esac

if ! command -v dpkg-query >/dev/null 2>&1; then
	say "not a Debian system: the build needs what Debian calls $wanted"
	exit 0
fi

missing=
for package in $wanted; do
	state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
	[ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
	say "these packages are missing; install them and start again:"
	printf 'sudo apt-get update && sudo apt-get install -y --no-install-recommends%s\n' "$missing"
	exit 1
fi
say "installing$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q </dev/null >&2
# shellcheck disable=SC2086 # a list of words
apt-get install -q -y --no-install-recommends $missing </dev/null >&2
