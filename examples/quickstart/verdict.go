package main

import "fmt"

// verdict lists what went against the promises, and what kept them from being
// tried: a run that saw no contention, no takeover or no refusal has shown
// nothing.
func verdict(results []result, stale staleOutcome) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	dead := 0
	for _, r := range results {
		dead += r.dead
		switch {
		case r.most > r.cap:
			bad("%s: the cap of %d was exceeded: %d jobs ran at once (%d leases were lost by workers that stalled)",
				r.name, r.cap, r.most, r.lost)
		case r.most < r.cap:
			bad("%s: never more than %d jobs at once, so its cap of %d was not tried", r.name, r.most, r.cap)
		}
		if r.taken < r.dead {
			bad("%s: what the killed worker held was never taken over", r.name)
		}
	}
	if dead == 0 {
		bad("no worker was killed while it held a permit, so there was nothing to take over")
	}
	if !stale.tried {
		return problems
	}
	switch {
	case stale.result == accepted:
		bad("the stale write, with token %d after %d, was accepted", stale.old, stale.new)
	case stale.result != refused:
		bad("the stale write was neither accepted nor refused: %s", stale.result)
	}
	if stale.new <= stale.old {
		bad("the second holder's token %d is not above the first one's %d", stale.new, stale.old)
	}
	if want := writtenBy(2); stale.value != want {
		bad("the guarded value is %q; want %q", stale.value, want)
	}
	return problems
}
