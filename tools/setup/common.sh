# common.sh - what the setup scripts share.  Sourced, with $here set to the folder of the setup scripts.
# shellcheck shell=sh disable=SC2034

weir_home=${WEIR_ENGINE_HOME:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/weir}

say() {
	printf 'weir: %s\n' "$*" >&2
}

die() {
	printf 'weir: %s\n' "$*" >&2
	exit 1
}

sha256_of() {
	sha256sum "$1" | cut -d ' ' -f 1
}
