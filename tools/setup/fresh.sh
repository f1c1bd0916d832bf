#!/bin/sh
# fresh.sh [TARGET...] - for a machine on which not even make is installed: installs what is missing, then `make TARGET` (run).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case " $* " in
*" check"*) sh "$here/packages.sh" check ;;
*) sh "$here/packages.sh" run ;;
esac
cd "$here/../.."
exec make "${@:-run}"
