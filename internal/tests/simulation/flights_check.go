package simulation

import (
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/singleflight"
)

// read checks a value that a caller got: S5.
func (w *world) read(a *asking, key, value string, from singleflight.Source) {
	n, err := strconv.Atoi(strings.TrimRight(value, "."))
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || n >= len(w.flights.loads) {
		w.fail("S4", "%s got %q", a.st, value[:min(len(value), 20)])
		return
	}
	if w.flights.loads[n].key != key {
		w.fail("S4", "%s got a value of %s for %s", a.st, w.flights.loads[n].key, key)
		return
	}
	w.seen(a, key, n, from.String())
}

// seen checks that a caller came before whatever invalidated what it saw. Called with the lock.
func (w *world) seen(a *asking, key string, n int, how string) {
	l := w.flights.loads[n]
	if l.revoked != nil && !l.many && (a.client != l.client || a.from.After(l.to)) {
		w.fail("S5", "%s at %v by client %d saw load %d of %s (%s), whose ctx had ended at %v: %s",
			a.st.verb, w.since(a.from), a.client.number, n, key, how, w.since(l.to), l.revoked)
	}
	for _, d := range w.flights.drops {
		if d.key == "" && l.began.Before(d.done) && a.from.Before(d.done.Add(a.client.near)) {
			return // a FLUSHALL takes the registrations of readers
		}
	}
	for _, d := range w.flights.drops {
		if (d.key == key || d.key == "") && !d.done.IsZero() && a.from.After(d.done) && l.began.Before(d.called) {
			w.fail("S5", "%s at %v saw load %d of %s (%s), begun by client %d at %v, invalidated from %v to %v",
				a.st.verb, w.since(a.from), n, key, how, l.client.number, w.since(l.began), w.since(d.called), w.since(d.done))
		}
	}
}

// failedBy checks a failure that a caller was told of: it is shared with those
// who waited, and remembered for a moment.
func (w *world) failedBy(a *asking, err error, good bool) {
	for _, part := range strings.Split(err.Error(), "(load ")[1:] {
		number, _, _ := strings.Cut(part, ")")
		n, bad := strconv.Atoi(number)
		w.mu.Lock()
		if bad != nil || n >= len(w.flights.loads) {
			w.fail("S4", "%s: %v", a.st, err)
			w.mu.Unlock()
			return
		}
		l := w.flights.loads[n]
		w.seen(a, l.key, n, "failed")
		w.failIf(good && a.from.Sub(l.to) > errorTTL+1500*time.Millisecond,
			"shared failure", "%s came %v after the load had ended whose failure it was told: %v", a.st, a.from.Sub(l.to), err)
		w.mu.Unlock()
	}
}

// checkLoads checks that no load began while another one of its key ran on, unless something was dropped in between,
// or everybody had left the older: then its lease is free before it is told so. Called with the lock.
func (w *world) checkLoads() {
	if w.over() {
		return
	}
	f := &w.flights
	for i, a := range f.loads {
		if a.many {
			continue
		}
		for j, b := range f.loads[i+1:] {
			if b.began.Sub(a.began) > time.Minute {
				break
			}
			if a.key != b.key || !b.began.Before(a.to) || f.droppedBetween(a, b) || !f.waitedFor(a, b.began) || w.revokedBetween(a, b) {
				continue
			}
			w.fail("S5", "load %d of %s began by client %d at %v while load %d ran, by client %d, from %v to %v",
				i+1+j, a.key, b.client.number, w.since(b.began), i, a.client.number, w.since(a.began), w.since(a.to))
			w.violation.at = w.since(b.began)
			return
		}
	}
}

// waitedFor reports whether some call of its client was there from before the load until then. A caller that
// comes after the others left starts a flight of its own.
func (f *cache) waitedFor(a *loading, then time.Time) bool {
	for _, c := range f.calls {
		until := c.to
		if end := c.from.Add(c.st.wait); c.st.wait > 0 && end.Before(until) {
			until = end // still in its GET, which nothing interrupts, it waits for no load
		}
		if c.client == a.client && (c.key == a.key || c.st.verb == many) && c.from.Before(a.began) && !until.Before(then) {
			return true
		}
	}
	return false
}

// revokedBetween reports whether the lease of one of two loads of a key was revoked before
// the second, b, began. A process is told of a revocation a moment later. Until then a goes
// on; and b begins if its lease was revoked while the grant was on its way.
func (w *world) revokedBetween(a, b *loading) bool {
	for _, rec := range w.leases.revoked {
		ofOne := func(l *loading) bool { return rec.client == l.client && rec.at.After(l.began.Add(-flightTTL)) }
		if rec.key == b.key && !rec.at.After(b.began) && (ofOne(a) || ofOne(b)) {
			return true
		}
	}
	return false
}

// revokedLoads is how many loads were revoked since a time. Called with the lock.
func (w *world) revokedLoads(since time.Time) int {
	n := 0
	for _, rec := range w.leases.revoked {
		if rec.kind == "flt" && rec.at.After(since) {
			n++
		}
	}
	return n
}

func (f *cache) droppedBetween(a, b *loading) bool {
	for _, d := range f.drops {
		// A drop whose reply was lost may still have come much later, also where another copy was answered;
		// and a lease is granted up to its length before its load begins.
		late := d.done
		if late.Sub(d.called) > 100*time.Millisecond || late.IsZero() {
			late = d.called.Add(15 * time.Second)
		}
		if (d.key == "" || d.key == a.key) && !d.called.After(b.began) && late.After(a.began.Add(-flightTTL)) {
			return true
		}
	}
	return false
}
