#!/bin/sh
# Counts the statements of the project that a lease's usual course runs, by coverage.
#   scripts/path.sh [Lone|Contended]   per file, the most first; both without an argument
set -eu
cd "$(dirname "$0")/.."
packages=$(go list ./... | grep -vE '/internal/(tests|redistest|embedded)|/examples|/bench|/integrations|/leaseholdtest|/print$|/scripts' | paste -sd, -)
out=$(mktemp)
trap 'rm -f "$out"' EXIT
for test in ${1:-Lone Contended}; do
	go test -count=1 -run "^Test$test\$" -covermode=set -coverpkg="$packages" -coverprofile="$out" ./internal/tests/path >&2
	echo "$test:"
	awk -F'[: ]' '$NF == 1 && !seen[$1 $2]++ { sub(/.*leasehold-go\/leasehold\//, "", $1); n[$1] += $(NF-1); all += $(NF-1) }
		END { for (f in n) { printf "%5d %s\n", n[f], f; files++ }; printf "%5d statements in %d files\n", all, files }' "$out" | sort -rn
done
