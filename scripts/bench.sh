#!/usr/bin/env bash
# bench.sh [network] [flags for go test]
#
# Runs the benchmarks of bench and bench/peers, keeps what they print in
# bench/out, and makes docs/benchmarks.md of it, with its pictures. It takes
# half an hour and wants a machine that does nothing else.
#
# With "network" it measures the page's first section alone, in less than ten minutes, and
# leaves the rest of the page as it is.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

go=${GO:-go}
out=$PWD/bench/out
unset REDIS_URL # all on one kind of server, which the page names
mkdir -p -- "$out"

# oldest names the server that benchmarks start, as internal/redistest chooses it:
# "redis-7.0.15".
oldest() {
	local servers=("${LEASEHOLD_SERVERS:-.servers}"/*/run/*-server) server
	[ -x "${servers[0]}" ] || servers=($(command -v redis-server valkey-server || :))
	for server in "${servers[@]}"; do
		"$server" --version
	done | tr '[:upper:]' '[:lower:]' | sed -nE 's/^(redis|valkey) server v=([0-9.]+) .*/\2 \1/p' | sort -V | sed -nE '1s/(.*) (.*)/\2-\1/p'
}

# The format of benchmarks has lines of this kind for what they ran on.
header() {
	printf 'go: %s\nserver: %s\n' "$("$go" env GOVERSION)" "$(oldest)"
}

run() { # MODULE OUTPUT [flags]
	local module=$1 to=$out/$2
	shift 2
	header >"$to"
	part -bench "$crowds" -benchtime 30x "$@"
	part -bench "$slow" -benchtime 3x "$@"
	part -bench . -skip "$crowds|$slow" "$@"
}

# part runs some of a module's benchmarks. What comes last among the flags counts.
part() {
	LEASEHOLD_REQUIRE_SERVERS=1 "$go" -C "$module" test -run '^$' -timeout 3h "$@" . | tee -a "$to"
}

# An op of these is a span of each competitor: few of them, as a second has room
# for, would mostly show how a span begins and ends.
crowds='Contended|ManyKeys|Stampede|NetworkHandover|LocalTurns|LocalPermits'
# And of these an op takes seconds.
slow='IdleWaiters|HeldLeases|LongLoad'

# network measures the page's first section.
network() { # [flags]
	to=$out/network.txt
	header >"$to"
	module=bench/peers
	part -bench 'NetworkLonePair' -benchtime 100x "$@"
	part -bench 'NetworkContended' -benchtime 60x "$@"
	part -bench 'NetworkHandover' -benchtime 30x "$@"
	part -bench 'NetworkStampede' -benchtime 10x "$@"
	module=bench
	part -bench 'ServerTime' -benchtime 200x "$@"
	part -bench 'ManyKeys/goroutines=128' -benchtime 30x "$@"
}

if [ "${1:-}" = network ]; then
	shift
	network -count=5 "$@"
	"$go" -C bench/report run . -rows '/(network|calls)/' -lead ../../docs "$out/network.txt"
	exit
fi
run bench bench.txt "$@"
run bench/peers peers.txt "$@"
"$go" -C bench/report run . -write ../../docs "$out/bench.txt" "$out/peers.txt"
