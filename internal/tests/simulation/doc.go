// Package simulation holds the project's deterministic simulation, which is all
// tests: a fleet of clients of the three public packages on one embedded server,
// inside a testing/synctest bubble, ten minutes of it in about a second.
//
// A run is a schedule: a list of steps, made from a seed before the run starts, that says when which client
// does what and what its network does meanwhile. What the network does to a message is a function of the
// schedule and the time, so that a schedule means the same without some of its steps. That is what lets a
// schedule that breaks a promise be shrunk to the few steps that do.
//
// Four of five seeds make a run of single leases, loads and settings. The others make a shorter
// one of slots of DoOnce, of several things at once, or of leases that are kept.
//
//	LEASEHOLD_SEEDS=500 go test -timeout 20m ./internal/tests/simulation        # the seeds 1 to 500
//	LEASEHOLD_SEED=fresh go test -v ./internal/tests/simulation                 # four fresh ones
//	LEASEHOLD_SEED=<seed> go test -v ./internal/tests/simulation                # one again
//	LEASEHOLD_SEEDS=500 go test -run TestSimulationOf ./internal/tests/simulation # of the shorter ones alone
//	LEASEHOLD_SCHEDULE=<file> go test -v ./internal/tests/simulation            # a schedule, as a failure prints it
//
// TestQuorumSimulation does the same with locks that several servers decide, of which a minority is in
// trouble at any time.
package simulation
