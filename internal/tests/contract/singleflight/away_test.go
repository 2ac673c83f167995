package singleflight

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// goAway makes Redis one that g knows not to answer.
func (f *fixture) goAway(g *singleflight.Group[string], w *harness.Wire) {
	f.Helper()
	synctest.Wait() // an answer that is still to come would say that it is back
	w.GoAway(func() {
		redistest.WantErr(f, peekErr(f.Context(), g, "k"), leasehold.ErrUnavailable, harness.ErrRefused)
	})
}

// Calls fail quickly while Redis is known to be away, and succeed at once when it is back.
func TestRedisIsAway(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, wire := f.open()
		fetch(f, f.Context(), g, "k", gives("v")).Got()
		f.goAway(g, wire)
		for i := range 5 {
			for name, call := range map[string]func() error{
				"do":      func() error { _, err := g.Do(f.Context(), "k", never(f)); return err },
				"peek":    func() error { _, _, err := g.Peek(f.Context(), "k"); return err },
				"inspect": func() error { _, err := g.Inspect(f.Context(), "k"); return err },
				"do many": func() error { return doMany(f, f.Context(), g, []string{"k", "l"}, newBatches()).got() },
			} {
				began := time.Now()
				redistest.WantErr(f, call(), leasehold.ErrUnavailable, harness.ErrRefused)
				redistest.AtMost(f, time.Since(began), 100*time.Millisecond, "%s no. %d took %v", name, i)
			}
		}
		wire.Heal()
		time.Sleep(time.Second)
		fetch(f, f.Context(), g, "k", never(f)).want("v", singleflight.Cached)
	})
}

// A call that finds Redis away after its look-up does not try for long, either.
func TestRedisGoesAwayAfterTheLookUp(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, wire := f.open()
		fetch(f, f.Context(), g, "warm", gives("v")).Got()
		var away atomic.Bool
		wire.Fail(func(name string) error {
			if name == "load enter" || away.Load() {
				away.Store(true)
				return harness.ErrRefused
			}
			return nil
		})
		began := time.Now()
		redistest.WantErr(f, fetch(f, f.Context(), g, "k", never(f)).Failed(), leasehold.ErrUnavailable, harness.ErrRefused)
		redistest.AtMost(f, time.Since(began), 100*time.Millisecond, "it took %v")
	})
}

// Invalidate and Put have a bound of their own, of 6 s, so that a short outage loses no
// invalidation. They do not ask whether Redis is away.
func TestInvalidateOutlastsAnOutage(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, g *singleflight.Group[string]) error{
		"invalidate": func(ctx context.Context, g *singleflight.Group[string]) error { return g.Invalidate(ctx, "k") },
		"put":        func(ctx context.Context, g *singleflight.Group[string]) error { return g.Put(ctx, "k", "new") },
	} {
		subBubble(t, name, func(f *fixture) {
			g, wire := f.open()
			if err := call(f.Context(), g); err != nil { // the server knows the script
				f.Fatal(err)
			}
			f.goAway(g, wire)
			wire.StallReplies("")
			wire.Unstall()
			ended := harness.Begin(f, func() error { return call(f.Context(), g) })
			time.Sleep(4500 * time.Millisecond)
			wire.Heal()
			synctest.Wait()
			ended.Got()
		})
	}
}

// An Observer is told of each call that fails because Redis is away, with the time that it
// took. It is not told of calls that are served, or that their callers left.
func TestObserverIsToldOfCallsThatRedisAbsenceMadeFail(t *testing.T) {
	bubble(t, func(f *fixture) {
		var told []time.Duration
		observer := harness.ObserverFunc(func(e leasehold.Event) {
			if e.Kind == leasehold.EventLookup && e.Outcome == leasehold.OutcomeUnavailable {
				told = append(told, e.Duration)
			}
		})
		g, wire := f.open(func(c *singleflight.Config[string]) { c.Observer = observer }, maxLoads(1))
		fetch(f, f.Context(), g, "k", gives("v")).Got()
		fetch(f, f.Context(), g, "k", never(f)).Got()
		fetch(f, f.Context(), g, "l", fails(context.DeadlineExceeded)).Failed()
		f.goAway(g, wire) // a Peek
		want := 1
		for name, calls := range map[string]struct {
			call func()
			keys int
		}{
			"do":      {func() { _, _ = g.Do(f.Context(), "k", never(f)) }, 1},
			"fetch":   {func() { _, _ = g.Fetch(f.Context(), "k", never(f)) }, 1},
			"peek":    {func() { _, _, _ = g.Peek(f.Context(), "k") }, 1},
			"do many": {func() { _ = doMany(f, f.Context(), g, []string{"a", "b"}, newBatches()).got() }, 2},
			"its caller has left": {func() {
				ctx, leave := context.WithCancel(f.Context())
				time.AfterFunc(time.Millisecond, leave)
				_, _ = g.Do(ctx, "k", never(f))
			}, 0},
			"a short ctx": {func() {
				ctx := f.within(time.Millisecond)
				_, _ = g.Do(ctx, "k", never(f))
			}, 1},
		} {
			time.Sleep(time.Second)
			began := time.Now()
			calls.call()
			took := time.Since(began)
			synctest.Wait()
			if want += calls.keys; len(told) != want {
				f.Fatalf("after %s the Observer was told of %d calls, want %d", name, len(told), want)
			}
			redistest.Check(f, calls.keys <= 0 || told[want-1] == took && took != 0, "%s took %v, and the Observer was told %v", name, took, told)
		}
		wire.Heal()
		// Redis answers the look-up, and is away when the permit is asked for.
		wire.CutOff("enter")
		redistest.WantErr(f, fetch(f, f.Context(), g, "new", never(f)).Failed(), leasehold.ErrUnavailable)
		if want++; len(told) != want {
			f.Errorf("told of %d calls, want %d", len(told), want)
		}
	})
}
