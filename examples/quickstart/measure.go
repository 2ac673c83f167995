package main

import (
	"slices"
	"time"
)

// result is what was measured of one tenant.
type result struct {
	tenant
	most        int           // jobs at once, ever
	jobs        int           // done, not counting those cut off
	lost        int           // of leases, by workers that were not killed
	longestWait time.Duration // of those that lived to see its end
	dead        int           // permits held by workers when they were killed
	taken       int           // of these, taken over
	takeover    time.Duration // the longest
}

// measure makes the table out of everything that was reported.
func measure(history []event) ([]result, error) {
	spans, err := spansOf(history)
	if err != nil {
		return nil, err
	}
	var all []result
	for _, t := range tenants {
		r := result{tenant: t, longestWait: longestWait(history, t.name)}
		for _, e := range history {
			if e.Kind == ended && e.Tenant == t.name {
				if !e.Cut {
					r.jobs++
				}
				if e.Lost {
					r.lost++
				}
			}
		}
		own := slices.DeleteFunc(slices.Clone(spans), func(s span) bool { return s.tenant != t.name })
		r.most = mostAtOnce(own)
		for _, s := range own {
			if s.killed == 0 {
				continue
			}
			r.dead++
			if d, ok := takeover(own, s, t.cap); ok {
				r.taken++
				r.takeover = max(r.takeover, d)
			}
		}
		all = append(all, r)
	}
	return all, nil
}

// longestWait counts waits that the end of the show cut off, too: they lasted at
// least so long.
func longestWait(history []event, tenant string) (longest time.Duration) {
	type id struct{ child, job int }
	since := map[id]stamp{}
	for _, e := range history {
		job := id{e.Child, e.Job}
		switch {
		case e.Tenant != tenant:
		case e.Kind == waits:
			since[job] = e.At
		case e.Kind == started, e.Kind == quits:
			longest = max(longest, e.At.sub(since[job]))
		}
	}
	return longest
}
