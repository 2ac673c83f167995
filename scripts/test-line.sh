#!/usr/bin/env bash
# test-line.sh BINARY ARGUMENTS...
#
# Runs the tests of one package for `go test -exec`, when its turn has come. Many tests say
# how soon something happens, with servers and children of their own beside, so they stand in
# lines, in which one package runs at a time. Packages whose servers fail, or are far away,
# mostly wait, and have one line; all others have another. Some packages mostly compute, and
# their tests depend little on how long that takes: they have a line of their own, and the
# processor time that the others leave, before lint and the simulation of .ci/run.
set -euo pipefail
servers=$(cd -- "${BASH_SOURCE[0]%/*}/.." && pwd)/.servers
case $PWD in
*/internal/codec | */internal/envelope | */internal/schedule | */internal/tests/scripts | */internal/tests/simulation | */luascripts)
	exec flock -o "$servers/testing-low" nice -n 10 "$@"
	;;
*/internal/tests/contract/*) ;;
*/internal/tests/*)
	exec flock -o "$servers/testing-faults" "$@"
	;;
esac
exec flock -o "$servers/testing" "$@"
