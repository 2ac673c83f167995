package main

import (
	"fmt"
	"time"
)

// tolerance is how much earlier than its TTL a value may count as expired. A
// process knows the server's clock only up to a round trip, which on a busy
// machine takes its time. It hides no second load: that begins when the first
// one has just ended, if not before, and so nearly a whole TTL too early.
func tolerance(ttl time.Duration) time.Duration { return ttl / 4 }

// tally counts loads at the origin and tells expiries apart.
//
// An expiry is a load that is due: one that begins while no other load runs and
// no value that was loaded before can still be fresh. A value is fresh for the
// TTL from its publication; that is known to be after its load has ended at the
// origin, so that until the end plus TTL (less the tolerance) no other load is
// due. The first load of all, into a cold cache, is one that is due.
//
// Every other load is one too many: it began while another ran, or while there
// was a fresh value. A caller that is woken late by the end of a load, or reads the
// cache just before the value is there and begins afterwards, is caught by that too,
// although its load overlaps with none. So loads == expiries says: exactly one
// load in each expiry.
//
// All of it is seen by the origin, in one process with one clock, and nothing of
// what the cache says of itself goes in.
type tally struct {
	ttl      time.Duration
	expiries int
	loads    int
	most     int // that ran at once
	surplus  []string

	running    int           // all that run
	current    int           // of these, those that no invalidation has overtaken
	generation int           // of invalidations
	freshTill  time.Duration // a value is fresh until then at least
}

// run is a load that has begun.
type run struct {
	number     int64
	generation int
	at         time.Duration
}

// begin counts a load that begins, and says whether it was due.
func (t *tally) begin(number int64, at time.Duration) (r run, due bool) {
	switch {
	case t.current > 0:
		t.tooMany("load %d began while another ran", number)
	case at < t.freshTill-tolerance(t.ttl):
		t.tooMany("load %d began while a value was fresh, for %v more", number, (t.freshTill - at).Round(time.Millisecond))
	default:
		due = true
		t.expiries++
	}
	t.loads++
	t.running++
	t.current++
	t.most = max(t.most, t.running)
	return run{number, t.generation, at}, due
}

// end counts a load's end. One that came to nothing leaves nothing fresh.
func (t *tally) end(r run, at time.Duration, done bool) {
	t.running--
	if r.generation != t.generation {
		return // its value is handed to those who waited, at most
	}
	t.current--
	if done {
		t.freshTill = at + t.ttl
	}
}

// invalidate is called before and after an invalidation: what had been loaded
// before, or was being loaded, leaves the next load due. Of what runs in
// between, nobody can say on which side it was; both are given the benefit.
func (t *tally) invalidate() {
	t.generation++
	t.current = 0
	t.freshTill = 0
}

// perExpiry is how many loads there were in an expiry.
func (t *tally) perExpiry() float64 { return perExpiry(t.loads, t.expiries) }

func perExpiry(loads, expiries int) float64 {
	return float64(loads) / float64(max(1, expiries))
}

// tooMany notes the first few loads that were not due.
func (t *tally) tooMany(format string, args ...any) {
	if len(t.surplus) < 3 {
		t.surplus = append(t.surplus, fmt.Sprintf(format, args...))
	}
}
