package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// result is what was seen of a phase.
type result struct {
	phase
	began, ended time.Time
	tenants      map[string]*tenant
}

type tenant struct {
	waits   []time.Duration // from the sending to the beginning of the work
	spans   []answer
	refused int // 429
	failed  int
}

func newResult(p phase) *result {
	r := &result{phase: p, began: time.Now(), tenants: map[string]*tenant{}}
	for _, name := range tenants {
		r.tenants[name] = new(tenant)
	}
	return r
}

func (r *result) add(name string, sent time.Time, a answer, status int) {
	t := r.tenants[name]
	switch status {
	case http.StatusOK:
		t.waits = append(t.waits, a.From.Sub(sent))
		t.spans = append(t.spans, a)
	case http.StatusTooManyRequests:
		t.refused++
	default:
		t.failed++
	}
}

// percentile of waits; 0 where there are none.
func percentile(waits []time.Duration, p int) time.Duration {
	if len(waits) == 0 {
		return 0
	}
	all := slices.Clone(waits)
	slices.Sort(all)
	return all[min(len(all)-1, len(all)*p/100)].Round(time.Millisecond)
}

// modest is the waits of all modest tenants, and how many of their requests were refused.
func (r *result) modest() (waits []time.Duration, refused int) {
	for name, t := range r.tenants {
		if isModest(name) {
			waits, refused = append(waits, t.waits...), refused+t.refused
		}
	}
	return waits, refused
}

// passedBy is, for each request of a modest tenant, how many requests were let in
// between its arrival at the service and its own turn. Unlike the wait it does not depend on how busy
// the machine is.
func (r *result) passedBy() (all []int) {
	var began []time.Time
	for _, t := range r.tenants {
		for _, a := range t.spans {
			began = append(began, a.From)
		}
	}
	slices.SortFunc(began, time.Time.Compare)
	place := func(at time.Time) int {
		i, _ := slices.BinarySearchFunc(began, at, time.Time.Compare)
		return i
	}
	for name, t := range r.tenants {
		for _, a := range t.spans {
			if isModest(name) {
				all = append(all, place(a.From)-place(a.Came))
			}
		}
	}
	slices.Sort(all)
	return all
}

// most is the most requests of these tenants at one moment, of those that were let in
// before the phase ended.
func (r *result) most(names ...string) int {
	type edge struct {
		at    time.Time
		delta int
	}
	var edges []edge
	for _, name := range names {
		for _, a := range r.tenants[name].spans {
			if r.ended.IsZero() || a.From.Before(r.ended) {
				edges = append(edges, edge{a.From, 1}, edge{a.To, -1})
			}
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.delta - b.delta
	})
	now, most := 0, 0
	for _, e := range edges {
		now += e.delta
		most = max(most, now)
	}
	return most
}

const bar = 24 // characters

// row is a tenant's share of what was let in, its waits and refusals.
func (r *result) row(name string, sum int) string {
	t := r.tenants[name]
	share := float64(len(t.spans)) / float64(max(1, sum))
	full := int(share*bar + 0.5)
	return fmt.Sprintf("%-9s %s%s %5.1f %% %7v %7v %5d", name, strings.Repeat("█", full), strings.Repeat("·", bar-full),
		100*share, percentile(t.waits, 50), percentile(t.waits, 100), t.refused)
}

func (r *result) sum() (n int) {
	for _, t := range r.tenants {
		n += len(t.spans)
	}
	return n
}

// table is the phase as a whole.
func (r *result) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n%-9s %-*s %7s %7s %7s %5s\n", r.name, "tenant", bar, "share of what was let in", "", "median", "worst", "429s")
	for _, name := range tenants {
		fmt.Fprintln(&b, r.row(name, r.sum()))
	}
	fmt.Fprintf(&b, "%d requests, at most %d at once.", r.sum(), r.most(tenants...))
	if passed := r.passedBy(); len(passed) > 0 {
		fmt.Fprintf(&b, " Before a modest one %d came in, at most %d.", passed[len(passed)/2], passed[len(passed)-1])
	}
	return b.String()
}

// view is the phase so far, with what is under way.
func (r *result) view(now map[string]counts) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, since %v\n%-9s %-*s %7s %7s %7s %5s %4s %5s\n", r.name, time.Since(r.began).Round(time.Second),
		"tenant", bar, "share of what was let in", "", "median", "worst", "429s", "busy", "queue")
	for _, name := range tenants {
		fmt.Fprintf(&b, "%s %4d %5d\n", r.row(name, r.sum()), now[name].Working, now[name].Waiting)
	}
	return b.String()
}
