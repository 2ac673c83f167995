// Package soak lets worker processes use every primitive for a long time while faults strike, and looks for
// what adds up: goroutines, memory, connections, keys. It is a test, run from the module's folder:
//
//	go test ./soak                                             # six seconds, which judge the end only
//	LEASEHOLD_SOAK=20m go test -v -count=1 -timeout 40m ./soak  # and the figures
//
// Half of the workers live as long as the test, the others are killed and replaced at times; all suffer every
// other fault after which the limits hold. In the end the workers close what they have, and nothing may be
// left of it but what is documented to last.
//
// A run of a minute or more also judges what was counted: its median in the last quarter of the run may lie
// no more than a fixed allowance above that in the second quarter, and the run has to be long enough for a
// leak at each hundredth operation to exceed that. What a leak adds to memory depends on what leaks: there
// the allowance and the number of operations, which -v shows, say what would be seen.
//
// The test's own process keeps every event, for the sweeps: some 1.5 GiB in 20
// minutes. Only the workers are judged.
package soak
