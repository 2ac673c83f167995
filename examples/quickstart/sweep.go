package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// span is a job: from its started, stamped after Acquire had returned, to its
// ended, stamped before Release was called. So it lies within the time for which
// the permit was held, and spans that overlap are jobs that really ran at once.
type span struct {
	tenant   string
	child    int
	from, to stamp
	killed   stamp // when its worker was killed in the middle of it; else 0
}

// spansOf pairs what was started with what ended it. A job that its worker did
// not live to end may have run until the process was gone, and not longer.
func spansOf(history []event) ([]span, error) {
	type id struct{ child, job int }
	open := map[id]event{}
	killedAt := map[int]stamp{}
	var all []span
	for _, e := range history {
		job := id{e.Child, e.Job}
		switch e.Kind {
		case started:
			if _, twice := open[job]; twice {
				return nil, fmt.Errorf("worker %d reported job %d twice", e.Child, e.Job)
			}
			open[job] = e
		case ended:
			s, ok := open[job]
			if !ok || e.At < s.At {
				return nil, fmt.Errorf("worker %d reported the end of job %d before its start", e.Child, e.Job)
			}
			delete(open, job)
			all = append(all, span{tenant: s.Tenant, child: e.Child, from: s.At, to: e.At})
		case killed:
			killedAt[e.Child] = e.At
		case gone:
			for i, s := range open {
				if i.child == e.Child {
					delete(open, i)
					all = append(all, span{s.Tenant, e.Child, s.At, e.At, killedAt[e.Child]})
				}
			}
		}
	}
	if len(open) > 0 {
		return nil, fmt.Errorf("%d jobs have no end", len(open))
	}
	return all, nil
}

// edge is where a span begins (+1) or ends (-1).
type edge struct {
	at stamp
	by int
}

// edges are in the order of time; where stamps are equal, beginnings first. A
// hand-over takes a round trip between its two stamps, so a tie can only be an
// overlap, and ends first would hide it.
func edges(spans []span) []edge {
	var all []edge
	for _, s := range spans {
		all = append(all, edge{s.from, +1}, edge{s.to, -1})
	}
	slices.SortFunc(all, func(a, b edge) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.by, a.by))
	})
	return all
}

func mostAtOnce(spans []span) (most int) {
	running := 0
	for _, e := range edges(spans) {
		running += e.by
		most = max(most, running)
	}
	return most
}

// takeover is how long after the kill of its worker the permit of the span dead
// was in use again: until as many others ran at once as the cap allows, which is
// more than was possible without it. False: never.
func takeover(spans []span, dead span, limit int) (time.Duration, bool) {
	var others []span
	for _, s := range spans {
		if s.child != dead.child {
			others = append(others, s)
		}
	}
	running := 0
	for _, e := range edges(others) {
		running += e.by
		if e.at > dead.killed && e.by > 0 && running >= limit {
			return e.at.sub(dead.killed), true
		}
	}
	return 0, false
}
