#!/usr/bin/env bash
# soak.sh [MINUTES]
#
# Runs the randomised tests with fresh seeds for an hour, or for so many minutes: the
# simulation, the models of the scripts, the histories, the soak test, and samples of the
# mutations. What it finds is news about the code as it is, and no verdict on the last change.
# Each find names its seed; LEASEHOLD_SEED=<seed> runs it again. It exits with 1 if there was any.
set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

go=${GO:-go}
minutes=${1:-60}
[[ $minutes =~ ^[0-9]+$ ]] || { echo "usage: soak.sh [MINUTES]" >&2 && exit 2; }
trap 'exit 130' INT # go test answers a Ctrl-C like a find
finds=0
export LEASEHOLD_SEED=fresh LEASEHOLD_REQUIRE_SERVERS=1

part() { # NAME command…
	local name=$1
	shift
	[ "$SECONDS" -lt $((minutes * 60)) ] || return
	printf '\n== %s (%ds)\n' "$name" "$SECONDS"
	"$@" || { finds=$((finds + 1)) && printf '== %s: a find\n' "$name"; }
}

while [ "$SECONDS" -lt $((minutes * 60)) ]; do
	part "simulation" env LEASEHOLD_SEEDS=300 "$go" test -count=1 -timeout 40m -run '^Test(Quorum)?Simulation$' ./internal/tests/simulation
	part "models" env LEASEHOLD_ROUNDS=5 "$go" test -count=1 -timeout 40m -run Model ./internal/tests/scripts
	part "histories" env LEASEHOLD_SEEDS=30 "$go" -C robustness test -count=1 -timeout 40m ./histories
	part "quorum" env LEASEHOLD_QUORUM_FOR=3m "$go" -C robustness test -count=1 -timeout 20m -run '^TestQuorumHistories$' ./histories
	part "soak" env LEASEHOLD_SOAK=3m "$go" -C robustness test -count=1 -timeout 20m ./soak
	part "mutations" "$go" -C robustness run ./mutations -sample 5
done
printf '\n%d finds in %ds\n' "$finds" "$SECONDS"
[ "$finds" = 0 ]
