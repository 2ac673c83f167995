// Package histories records what many processes do with every primitive while faults strike, and checks it:
// with a porcupine model for each key, and with sweeps. It is a test, run from the module's folder:
//
//	go test ./histories                                    # ten runs, each of another fault
//	LEASEHOLD_RUNS=200 go test -v -timeout 2h ./histories   # 200 runs, the faults in turn
//
// TestQuorumHistories does the same with locks that several servers decide:
//
//	LEASEHOLD_QUORUM_FOR=30m go test -v -timeout 1h -run TestQuorumHistories/5 ./histories
//
// Environment variables, beside those of redistest:
//
//	LEASEHOLD_RUNS     how many runs, of some ten histories each
//	LEASEHOLD_FAULTS   all, or names with commas between (see package fleet)
//	LEASEHOLD_SEED     of the first run, or "fresh"; each further one has the next number
//	LEASEHOLD_SERVER   how the server's name begins: "redis-8.0"; "any": in turn
//	LEASEHOLD_OUT      folder for the histories of failed runs, with drawings; none
//	                   is a new one, where it is needed
//
// A failed run tells its seed and its fault. The same seed gives the same faults and choices, but not the
// same timing: to see a rare failure again may take some runs. With -v each run says what it came to.
// -parallel says how many runs go on at a time.
package histories
