// Package histories records what many processes do with every primitive while faults strike, and checks it:
// with a porcupine model for each key, and with sweeps. It is a test, run from the module's folder:
//
//	go test ./histories                                     # ten runs, of some ten histories each
//	LEASEHOLD_SEEDS=200 go test -v -timeout 2h ./histories   # 200 runs
//
// The seed of a run also says which fault it has and which of the installed servers, each in turn.
//
// TestQuorumHistories does the same with locks that several servers decide:
//
//	LEASEHOLD_QUORUM_FOR=30m go test -v -timeout 1h -run TestQuorumHistories/5 ./histories
//
// A failed run tells its seed and its fault, and keeps its histories, with drawings. The same seed gives the same
// faults and choices, but not the same timing: to see a rare failure again may take some runs. With -v each run
// says what it came to. -parallel says how many runs go on at a time.
package histories
