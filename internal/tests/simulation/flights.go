package simulation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/singleflight"
)

// errorTTL is how long the clients that remember failures do.
const errorTTL = 100 * time.Millisecond

// loading is one call of a loader: what it returns is its number.
type loading struct {
	key       string
	client    *client
	began, to time.Time   // to: it returned, or its ctx had ended before
	many      bool        // of several keys: it may go on for the others
	revoked   *revocation // that ended its ctx, nil: none did
}

// drop is an Invalidate, or a FLUSHALL of all keys: done is zero where it failed,
// so that it may or may not have happened.
type drop struct {
	key          string
	called, done time.Time
}

// asking is a call that may wait for a load.
type asking struct {
	client   *client
	key      string
	from, to time.Time // to: zero while it runs
	st       step
	keys     []string
}

// cache is what happened to the cached values.
type cache struct {
	loads []*loading
	drops []drop
	calls []*asking
}

func (f *cache) died(c *client) {
	now := time.Now()
	for _, l := range f.loads {
		if l.client == c && l.to.IsZero() {
			l.to = now
		}
	}
	for _, a := range f.calls {
		if a.client == c && a.to.IsZero() {
			a.to = now
		}
	}
}

var errOrigin = errors.New("the origin is down")

// loader makes the loader of one key, as a step wants it.
func (w *world) loader(c *client, st step, key string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		l := &loading{key: key, client: c, began: time.Now(), many: st.verb == many}
		w.mu.Lock()
		n := len(w.flights.loads)
		w.flights.loads = append(w.flights.loads, l)
		w.note("loads")
		if c.dead.Load() {
			l.to = l.began
		}
		w.mu.Unlock()
		stopped := func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if l.to.IsZero() {
				l.to = time.Now()
				w.loadEnded(l, context.Cause(ctx))
			}
		}
		defer context.AfterFunc(ctx, stopped)()
		defer stopped()
		timer := time.NewTimer(st.load)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-w.failed:
		case <-c.ctx.Done():
		case <-ctx.Done():
			if st.obeys {
				return "", ctx.Err()
			}
			select {
			case <-timer.C:
			case <-w.failed:
			case <-c.ctx.Done():
			}
		}
		if st.fails {
			return "", fmt.Errorf("%w (load %d)", errOrigin, n)
		}
		value := strconv.Itoa(n)
		if st.big {
			value += strings.Repeat(".", 6000) // does not ride on messages
		}
		return value, nil
	}
}

// ask is a call of a client's group.
func (w *world) ask(c *client, st step) {
	a := &asking{client: c, key: st.key, from: time.Now(), st: st, keys: []string{st.key}}
	if st.verb == many {
		a.keys = flightKeys
	}
	for _, key := range a.keys {
		w.asks(c, "flt", key, 1)
	}
	good := w.good(c, a.from)
	ctx, cancel := context.WithTimeout(context.Background(), st.wait)
	if st.wait == 0 {
		ctx = context.Background()
	}
	defer cancel()
	if st.verb != invalidate && st.verb != peek {
		w.mu.Lock()
		w.flights.calls = append(w.flights.calls, a)
		w.mu.Unlock()
	}
	got, from, err := w.call(ctx, c, st)
	w.mu.Lock()
	a.to = time.Now()
	ending, dead := c.closing.Load(), c.dead.Load()
	if st.verb == invalidate {
		d := drop{key: st.key, called: a.from}
		if err == nil && !dead {
			d.done = a.to
		}
		w.flights.drops = append(w.flights.drops, d)
	}
	w.mu.Unlock()
	if w.over() || dead {
		return
	}
	good = good && w.calm(a.from, a.to)
	for key, value := range got {
		w.read(a, key, value, from, good)
	}
	what := string(st.verb)
	switch {
	case err == nil:
		if st.verb == do {
			what = from.String()
		}
	case strings.Contains(err.Error(), errOrigin.Error()):
		what += ": failed"
		w.failedBy(a, err, good)
	case errors.Is(err, context.DeadlineExceeded) && st.wait > 0 && a.to.Sub(a.from) >= st.wait:
		what += ": gave up"
		if late := a.to.Sub(a.from) - st.wait; good && late > 10*time.Millisecond {
			w.fail("ctx", "%s: returned %v after its ctx had ended", st, late)
		}
	case errors.Is(err, leasehold.ErrClosed) && ending:
		what += ": closed"
	case errors.Is(err, leasehold.ErrUnavailable) && !good:
		what += ": unavailable"
	case errors.Is(err, leasehold.ErrLost) && !good:
		what += ": lost"
	default:
		w.failIf(!ending, "S4", "%s: %v (network good: %v)", st, err, good)
	}
	w.note(what)
}

// poll reads a key again and again, so that it becomes hot.
func (w *world) poll(c *client, st step) {
	one := st
	one.verb, one.span, one.by, one.wait = do, 0, 0, time.Second
	for end := time.Now().Add(st.span); time.Now().Before(end) && !w.over() && !c.dead.Load(); time.Sleep(st.by) {
		if c.closing.Load() {
			return
		}
		w.ask(c, one)
	}
}

// call calls the package.
func (w *world) call(ctx context.Context, c *client, st step) (map[string]string, singleflight.Source, error) {
	switch st.verb {
	case invalidate:
		return nil, 0, c.group.Invalidate(ctx, st.key)
	case peek:
		r, ok, err := c.group.Peek(ctx, st.key)
		if !ok || err != nil {
			return nil, 0, err
		}
		return map[string]string{st.key: r.Value}, r.Source, nil
	case many:
		got, err := c.group.DoMany(ctx, flightKeys, func(ctx context.Context, missing []string) (map[string]string, error) {
			return w.loadMany(ctx, c, st, missing)
		})
		return got, singleflight.Shared, err
	}
	r, err := c.group.Fetch(ctx, st.key, w.loader(c, st, st.key))
	if err != nil {
		return nil, 0, err
	}
	return map[string]string{st.key: r.Value}, r.Source, nil
}

func (w *world) loadMany(ctx context.Context, c *client, st step, missing []string) (map[string]string, error) {
	var mu sync.Mutex
	var all errgroup.Group
	values := map[string]string{}
	for _, key := range missing {
		load := w.loader(c, st, key)
		all.Go(func() error {
			v, err := load(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				values[key] = v
			}
			return err
		})
	}
	return values, all.Wait()
}

// read checks a value that a caller got: S5, and its age.
func (w *world) read(a *asking, key, value string, from singleflight.Source, good bool) {
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
	l := w.flights.loads[n]
	age := a.from.Sub(l.to)
	w.failIf(good && !l.to.IsZero() && age > valueTTL+a.client.stale+100*time.Millisecond,
		"S5", "%s by client %d got a value of %s (%s) that was loaded %v before", a.st, a.client.number, key, from, age)
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
