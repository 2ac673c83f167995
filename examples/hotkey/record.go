package main

import (
	"sync"
	"time"
)

// record is everything that is counted: by the origin, of loads, and by the
// clients, of answers. Both are in the parent, on one clock.
type record struct {
	ttl       time.Duration
	processes int
	began     time.Time

	mu      sync.Mutex
	current *epoch
	latest  map[mode]*epoch // the last one of each mode; current is among them
	loads   int64           // the number of the last load
	running int
	failed  string // what the last failed request said
	watch   *watch // for the page; nil without one
}

// epoch is what was counted while one order stood. Requests and loads that began
// under it are counted here, whenever they end.
type epoch struct {
	order
	tally
	by      []counts      // of each process
	latency histogram     // of requests that came when there was a value once
	warm    time.Duration // since when there was
	took    time.Duration // the last load

	// Values that clients were given, by the number of their load, and when the
	// first one got it.
	values  map[int64]time.Duration
	seen    int
	overdue int // answers with a value as fresh that was not any more
}

// counts is one process's requests, by where the answer was from, and loads.
type counts struct {
	Hits   int `json:"hits"`
	Stale  int `json:"stale"`
	Waits  int `json:"waits"`
	Loaded int `json:"loaded"`
	Errors int `json:"errors"`
	Loads  int `json:"loads"` // at the origin
}

func newRecord(ttl time.Duration, processes int) *record {
	return &record{ttl: ttl, processes: processes, began: time.Now(), latest: map[mode]*epoch{}}
}

func (r *record) now() time.Duration { return time.Since(r.began) }

// open begins an epoch.
func (r *record) open(o order) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = &epoch{
		order: o, tally: tally{ttl: r.ttl}, by: make([]counts, r.processes+1),
		values: map[int64]time.Duration{},
	}
	r.latest[o.Mode] = r.current
}

// epoch finds one that still is the last of its mode; else nil.
func (r *record) epoch(num int) *epoch {
	for _, e := range r.latest {
		if e.Epoch == num {
			return e
		}
	}
	return nil
}

// loadBegins counts a load, gives it a number, and returns what is to be called
// at its end.
func (r *record) loadBegins(num, process int) (number int64, end func(done bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.now() // under the lock, so that the order of stamps is that of calls
	r.loads++
	r.running++
	number = r.loads
	e := r.epoch(num)
	if e == nil || process < 1 || process > r.processes {
		return number, func(bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.running--
		}
	}
	e.by[process].Loads++
	load, due := e.begin(number, at)
	r.watch.loadBegins(at, e.Mode, r.running, due)
	return number, func(done bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		at := r.now()
		r.running--
		e.end(load, at, done)
		e.took = at - load.at
	}
}

// loadsNow is how many loads run.
func (r *record) loadsNow() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}

// invalidate tells that the key is about to be, or has been, invalidated.
func (r *record) invalidate() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current.invalidate()
}

// answered counts an answer to a client, which asked at the time sent.
func (r *record) answered(process int, sent time.Duration, a reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.now()
	e := r.epoch(a.Epoch)
	if e == nil {
		return
	}
	if e.seen == 0 {
		e.warm = at
	}
	if sent >= e.warm {
		e.latency.add(at - sent)
	}
	c := &e.by[process]
	switch a.Source {
	case fromCache:
		c.Hits++
	case fromStale:
		c.Stale++
	case fromOther:
		c.Waits++
	case fromLoad:
		c.Loaded++
	}
	e.value(a, sent, at)
	r.watch.answered(process, a.Source, at-sent)
}

// value notes which load's value a client got, from its request at sent. Where
// an earlier answer had it already, it was published before that, so that it can
// be told when it was fresh no more.
func (e *epoch) value(a reply, sent, at time.Duration) {
	first, known := e.values[a.Load]
	switch {
	case !known:
		e.seen++
		e.values[a.Load] = at
	case a.Source == fromCache && sent > first+e.ttl+tolerance(e.ttl):
		e.overdue++
	}
	if len(e.values) > 5000 { // as after a minute without protection
		for load, first := range e.values {
			if first < at-time.Minute-2*e.ttl {
				delete(e.values, load)
			}
		}
	}
}

// refused counts a request that failed.
func (r *record) refused(process int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current.by[process].Errors++
	r.failed = err.Error()
}

// total is the sum of all processes.
func (e *epoch) total() (sum counts) {
	for _, c := range e.by {
		sum.Hits += c.Hits
		sum.Stale += c.Stale
		sum.Waits += c.Waits
		sum.Loaded += c.Loaded
		sum.Errors += c.Errors
		sum.Loads += c.Loads
	}
	return sum
}

// answers is how many requests were answered.
func (c counts) answers() int { return c.Hits + c.Stale + c.Waits + c.Loaded }
