package simulation

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
)

// listed is an attempt to take permits, a lock or the right to load, as it stands on the server.
type listed struct {
	key     string
	label   string
	permits int
	ends    time.Time // of a lease; until when a waiter counts as alive
	ticket  float64   // of a waiter
}

// standing is what stands on the server of a key, by the ID that listings show.
type standing struct {
	held    map[string]listed // unexpired
	waiting map[string]listed
	aside   map[string]listed // invalidated loads
}

// has reports whether an attempt holds or waits.
func (s standing) has(id string) bool {
	_, held := s.held[id]
	_, waits := s.waiting[id]
	_, aside := s.aside[id]
	return held || waits || aside
}

// standing reads a key, or all keys of a family with a total where that is "".
func (w *world) standing(kind, key string) standing {
	now := time.Now()
	s := standing{map[string]listed{}, map[string]listed{}, map[string]listed{}}
	set := func(part string) map[string]float64 { return w.set(redisKey(kind, key, part)) }
	for m, score := range set("holders") {
		if id, a, ok := readAttempt(kind, key, m); ok && score > float64(now.UnixMilli()) {
			a.ends = time.UnixMilli(int64(score))
			if b, more := s.held[id]; more {
				a.permits += b.permits
				a.ends = slices.MinFunc([]time.Time{a.ends, b.ends}, time.Time.Compare)
			}
			s.held[id] = a
		}
	}
	alive := set("alive")
	for m, score := range set("queue") {
		if id, a, ok := readAttempt(kind, key, m); ok {
			a.ends, a.ticket, a.permits = time.UnixMilli(int64(alive[m])), score, permitsOf(m)
			s.waiting[id] = a
		}
	}
	if kind == "flt" {
		for m, score := range set("aside") {
			m, _, _ = strings.Cut(m, " ")
			if id, a, ok := readAttempt(kind, key, m); ok && score > float64(now.UnixMilli()) {
				a.ends = time.UnixMilli(int64(score))
				s.aside[id] = a
			}
		}
	}
	return s
}

// permitsOf reads a member's number of permits.
func permitsOf(member string) int {
	if f := strings.Split(member, "."); len(f) > 2 {
		n, _ := strconv.Atoi(f[2])
		return n
	}
	return 0
}

// used is how many permits are in use.
func (s standing) used() (n int) {
	for _, a := range s.held {
		n += a.permits
	}
	return n
}

// head is the first in the queue that counts as alive; "" = there is none.
func (s standing) head(now time.Time) (first string, a listed) {
	for id, b := range s.waiting {
		if b.ends.After(now) && (first == "" || b.ticket < a.ticket || b.ticket == a.ticket && id < first) {
			first, a = id, b
		}
	}
	return first, a
}

// readAttempt reads a member: its ID in listings, its label, one permit.
func readAttempt(kind, key, member string) (id string, a listed, ok bool) {
	a = listed{key: key, permits: 1}
	if kind == "tot" {
		var own string
		if own, member, ok = strings.Cut(member, ":"); !ok || key != "" && own != key {
			return "", a, false
		}
		a.key = own
	}
	words := strings.SplitN(member, ".", 3)
	if len(words) < 3 || len(words[0]) < 8 {
		return "", a, false
	}
	_, a.label, _ = strings.Cut(words[0], "~")
	return words[0][:8] + "-" + words[1], a, true
}

// kindOf is the kind of a key, whose names differ.
func kindOf(key string) string {
	for kind, keys := range keysOf {
		if slices.Contains(keys, key) {
			return kind
		}
	}
	return "flt"
}

// listing is what an Inspect shows.
type listing struct {
	holders []leasehold.Holder
	waiters []leasehold.Waiter
}

// list calls Inspect.
func (c *client) list(ctx context.Context, key string) (l listing, inUse, waiting int, err error) {
	switch kind := kindOf(key); kind {
	case "sem", "tot":
		s, err := c.permits(kind).Inspect(ctx, key)
		return listing{s.Holders, s.Waiters}, s.InUse, s.Waiting, err
	case "mtx":
		s, err := c.mtx.Inspect(ctx, key)
		if s.Held {
			l.holders, inUse = append(l.holders, *s.Holder), 1
		}
		l.waiters = s.Waiters
		return l, inUse, s.Waiting, err
	}
	s, err := c.group.Inspect(ctx, key)
	if s.Loading {
		inUse = 1
		l.holders = append(l.holders, leasehold.Holder{
			ID: s.LoadID, Permits: 1, Label: s.LoadLabel, ExpiresIn: s.LeaseEndsIn, Since: time.Now().Add(-s.LoadingFor),
		})
	}
	return l, inUse, 0, err
}

// longestLease is the longest that a lease may last without a renewal.
const longestLease = 9*time.Second + 10*time.Millisecond // Extend

// firstTerm is the least that a lease lasts which is handed on to a waiter. A process that
// was cut off meanwhile queues the same waiter anew, in its old place.
const firstTerm = 900 * time.Millisecond // OVERDUE - SILENCE of the scripts

// inspect is an Inspect, and judges what it shows.
func (w *world) inspect(c *client, st step) (l listing, ok bool) {
	ctx, cancel, patient := c.patience(st)
	defer cancel()
	defer patient()
	kind, began := kindOf(st.key), time.Now()
	good := w.good(c, began)
	before := w.standing(kind, st.key)
	believed := w.believed(kind, st.key)
	l, inUse, waiting, err := c.list(ctx, st.key)
	now := time.Now()
	after := w.standing(kind, st.key)
	still := w.believed(kind, st.key)
	if w.over() || c.dead.Load() {
		return l, false
	}
	if err != nil {
		w.operatorError(c, st, "inspect", err, began, good, ctx.Err() != nil)
		return l, false
	}
	w.note("inspected")
	if d := now.Sub(began); d > operateWithin {
		w.fail("ctx", "%s took %v", st, d)
	}
	shown, permits := map[string]bool{}, 0
	for _, h := range l.holders {
		w.failIf(shown[h.ID], "inspect", "%s shows %s twice", st, h.ID)
		shown[h.ID] = true
		permits += h.Permits
		w.failIf(h.ExpiresIn <= 0 || h.ExpiresIn > longestLease,
			"inspect", "%s shows %s, which expires in %v", st, h.ID, h.ExpiresIn)
		_, was := before.held[h.ID]
		_, is := after.held[h.ID]
		// A grant within the call. Since is never earlier than that.
		w.failIf(!was && !is && h.Since.Before(began.Add(-time.Second)),
			"inspect", "%s shows %s, held since %v, which was not held at %v", st, h.ID, w.since(h.Since), w.since(began))
		w.wantAskedFor(st, kind, h.ID, h.Label, h.Permits)
	}
	for _, q := range l.waiters {
		if shown[q.ID] && kind != "flt" {
			// Granted between the reads of the two: it is shown once as each.
			if _, was := before.held[q.ID]; was {
				w.fail("inspect", "%s shows the holder %s as a waiter, too", st, q.ID)
			}
		}
		shown[q.ID] = true
		w.wantAskedFor(st, kind, q.ID, q.Label, q.Permits)
	}
	w.failIf(permits != inUse || kind != "flt" && len(l.waiters) != waiting,
		"inspect", "%s says %d permits and %d waiters, and shows %d and %d", st, inUse, waiting, permits, len(l.waiters))
	if w.flushedAfter(began) {
		return l, true
	}
	for id, b := range believed {
		w.failIf(still[id] == b && !shown[id], "inspect", "%s does not show %s, which is held", st, b)
	}
	for id, a := range before.held {
		if _, is := after.held[id]; is && a.ends.After(now) && !shown[id] {
			w.fail("inspect", "%s does not show %s, which is held until %v", st, id, w.since(a.ends))
		}
	}
	if kind == "flt" || now.Sub(began) >= firstTerm {
		return l, true // a waiter may have been granted, cut off, and queued anew meanwhile
	}
	for id, a := range before.waiting {
		if _, is := after.waiting[id]; is && a.ends.After(now) && !shown[id] {
			w.fail("inspect", "%s does not show %s, which waits", st, id)
		}
	}
	return l, true
}

// operateWithin is the longest that an Inspect or a Revoke may take.
const operateWithin = 10*time.Second + 10*time.Millisecond

// operatorError checks the error of an Inspect or a Revoke: S4.
func (w *world) operatorError(c *client, st step, what string, err error, began time.Time, good, cancelled bool) {
	now := time.Now()
	switch {
	case errors.Is(err, leasehold.ErrClosed) && c.closing.Load(), cancelled && errors.Is(err, context.Canceled):
		w.note(what + ": gave up")
		if late := now.Sub(began) - st.wait; cancelled && late > time.Millisecond && !c.closing.Load() {
			w.fail("ctx", "%s returned %v after its ctx had ended", st, late)
		}
	case errors.Is(err, leasehold.ErrUnavailable):
		w.note(what + ": unavailable")
		w.failIf(good && w.calm(began, now) && !c.closing.Load(), "S4", "%s: %v, on a good network", st, err)
	default:
		w.fail("S4", "%s: %s: %v", st, what, err)
	}
}

// believed are the leases of a key that clients are sure to hold, by ID.
func (w *world) believed(kind, key string) map[string]*belief {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[string]*belief{}
	for b := range w.leases.beliefs {
		if b.kind == kind && b.key == key && !b.unsure && !b.alone && b.lease.Context().Err() == nil {
			all[b.lease.ID()] = b
		}
	}
	return all
}

// asks notes that a client asks for permits of a key, or for a load of it.
func (w *world) asks(c *client, kind, key string, permits int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases.asked[c.label+kind+key+strconv.Itoa(permits)] = true
}

// wantAskedFor checks that what a listing shows is of a client that asked for it.
func (w *world) wantAskedFor(st step, kind, id, label string, permits int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failIf(!w.leases.asked[label+kind+st.key+strconv.Itoa(permits)],
		"inspect", "%s shows %s of %q with %d permits, which nobody asked for", st, id, label, permits)
}

func (w *world) flushedAfter(t time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leases.flushedSince(t)
}
