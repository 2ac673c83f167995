package main

import (
	"fmt"
	"time"
)

// result is what one mode came to.
type result struct {
	mode     mode
	all      counts
	expiries int
	loads    int
	most     int // at once
	p99      time.Duration

	surplus []string // what is wrong with the first of the loads that were not due
	seen    int      // loads whose value a client got
	overdue int      // answers with a value as fresh that was not any more
	failed  string   // what a failed request said
}

func (r *record) result(m mode) result {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.latest[m]
	if e == nil {
		return result{mode: m}
	}
	return result{
		mode: m, all: e.total(), expiries: e.expiries, loads: e.loads, most: e.most,
		p99:     e.latency.quantile(0.99),
		surplus: e.surplus, seen: e.seen, overdue: e.overdue, failed: r.failed,
	}
}

// verdict lists what went against the promises, and what kept them from being
// tried: a run without expiries, or without a crowd that would have stampeded,
// has shown nothing.
func verdict(results []result) (problems []string) {
	for _, r := range results {
		bad := func(format string, args ...any) {
			problems = append(problems, r.mode.name()+": "+fmt.Sprintf(format, args...))
		}
		if r.all.Errors > 0 {
			bad("%d requests failed, such as: %s", r.all.Errors, r.failed)
		}
		switch {
		case r.all.answers() == 0:
			bad("no request was answered")
		case r.loads == 0:
			bad("the origin was never asked")
		case !r.mode.protected():
			if r.loads < 2*r.expiries {
				bad("%d loads in %d expiries is no stampede, so there was nothing to be prevented", r.loads, r.expiries)
			}
		default:
			r.judge(bad)
		}
	}
	return problems
}

// judge is the verdict on a phase with protection. That loads and expiries are
// as many is what the origin saw. The clients saw the same if they were given the
// value of each load, and none for longer than it was fresh: a load whose value
// nobody gets is one too many, and a cache that never expires would pass without
// the second.
func (r result) judge(bad func(string, ...any)) {
	if r.loads != r.expiries {
		bad("%d loads in %d expiries", r.loads, r.expiries)
	}
	for _, what := range r.surplus {
		bad("%s", what)
	}
	if r.most > 1 {
		bad("%d loads ran at once", r.most)
	}
	unseen := r.loads - r.seen
	if r.mode == onStale && unseen == 1 {
		unseen = 0 // the last rebuild may end when all requests have been answered
	}
	if unseen != 0 {
		bad("the clients got the values of %d loads, of %d that there were", r.seen, r.loads)
	}
	if r.overdue > 0 {
		bad("%d answers had a value as fresh whose TTL was over", r.overdue)
	}
	switch {
	case r.expiries < 2:
		bad("nothing expired, so nothing was tried")
	case r.all.Hits == 0:
		bad("nothing was served from the cache, so nothing was tried")
	case r.mode == on && r.all.Waits == 0:
		bad("nobody waited for another's load, so nothing was tried")
	case r.mode == onStale && r.all.Stale == 0:
		bad("nothing was served stale, so nothing was tried")
	}
}
