#!/usr/bin/env bash
# test-line.sh BINARY ARGUMENTS...
#
# Runs the tests of one package for `go test -exec`, when its turn has come. There are two
# lines, and one package of each runs at a time. Many tests say how soon something happens,
# with servers and children of their own beside, so that more at a time would disturb each
# other. The tests of faults and outages mostly wait, and have a line of their own.
set -euo pipefail
case $PWD in
*/internal/tests/faults/* | */internal/tests/outages | */internal/tests/replicas) line=waiting ;;
*) line=working ;;
esac
exec flock -o "$(cd -- "${BASH_SOURCE[0]%/*}/.." && pwd)/.servers/testing-$line" "$@"
