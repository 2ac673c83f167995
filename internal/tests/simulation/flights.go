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
		if c.dead {
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
	ending := c.closing
	dead := c.dead
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
	for key, value := range got {
		w.read(a, key, value, from)
	}
	good = good && w.calm(a.from, a.to)
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
	for end := time.Now().Add(st.span); time.Now().Before(end) && !w.over() && !c.isDead(w); time.Sleep(st.by) {
		if w.closes(c) {
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
