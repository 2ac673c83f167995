package main

import (
	"fmt"
	"time"
)

// patience is how much later than at the lease's end the next process may have
// the lock: the margin of the holder's belief, and a machine that is busy.
const patience = 1500 * time.Millisecond

func verdict(runs []*record) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, r := range runs {
		switch {
		case len(r.samples) < 20:
			bad("%s reported only %d times what is left of its lease", r.name, len(r.samples))
		case r.killed:
			// When the worker died, its lease was to last so much longer.
			left, _ := r.left(r.killAt)
			waited := r.heirAt - r.killAt
			if waited < left {
				bad("%s's lease had %v left when it was killed, and another process had the lock after %v", r.name, left, waited)
			}
			if waited > left+patience {
				bad("%s's lease had %v left when it was killed, and nobody had the lock for %v", r.name, left, waited)
			}
			if long := left > leaseTTL; long != (r.mode == modeExtend) {
				bad("%s's lease had %v left when it was killed, with a TTL of %v", r.name, left, leaseTTL)
			}
		case r.mode == modeRenew && (r.done || r.lostAt == 0):
			bad("%s was not told that its lease was lost, though Redis was away for %v", r.name, awayFor)
		case r.mode == modeExtend && (!r.done || r.lostAt > 0):
			bad("%s lost its lease, though it was extended beyond the time that Redis was away", r.name)
		}
	}
	return problems
}
