package singleflight

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// Close ends all waits with ErrClosed, those of the load's own caller too, and the
// load's ctx; its lease is free at once for a process that waits. A closed handle sends nothing.
func TestClose(t *testing.T) {
	some(t, func(f *fixture) {
		g, other, wire := f.two(maxLoads(1))
		o := newOrigin(f)
		first, l := begin(f, f.Context(), g, "k", o, o.obedient)
		joins := fetch(f, f.Context(), g, "k", o.obedient)
		waits := fetch(f, f.Context(), other, "k", gives("v"))
		redistest.Eventually(f, "the other process", func() bool { return f.Queued("k") == 1 })
		began := time.Now()
		redistest.WantErr(f, g.Close(f.Context()))
		redistest.Check(f, l.over(), "Close returned before the load had ended")
		redistest.WantErr(f, context.Cause(l.ctx), leasehold.ErrClosed)
		redistest.WantErr(f, first.Failed(), leasehold.ErrClosed)
		redistest.WantErr(f, joins.Failed(), leasehold.ErrClosed)
		waits.want("v", singleflight.Loaded)
		redistest.AtMost(f, time.Since(began), 5*time.Second, "the lease was free after %v")
		for range 3 {
			redistest.WantErr(f, g.Close(f.Context()))
		}
		sent := wire.Sent()
		for call, err := range everyCall(f, f.Context(), g, "k") {
			redistest.WantErr(f, err, leasehold.ErrClosed, redistest.Says("singleflight: "+call+" "+f.Family))
		}
		redistest.Expect(f, wire.Sent()-sent, 0, "%d commands were sent")
		fetch(f, f.Context(), other, "k", never(f)).wantValue("v") // its values stay
	})
}

// Close and Shutdown wait for loaders, no longer than their ctx; what is left ends by itself. When its ctx ends,
// Shutdown is a Close.
func TestCloseIsBoundedByItsCtx(t *testing.T) {
	for op, end := range map[string]func(*singleflight.Group[string], context.Context) error{
		"close": (*singleflight.Group[string]).Close, "shutdown": (*singleflight.Group[string]).Shutdown,
	} {
		subBubble(t, op, func(f *fixture) {
			g, other, _ := f.two()
			first, l, _ := f.loading(g, "k") // ignores its ctx
			began := time.Now()
			err := end(g, f.Within(3*time.Second))
			redistest.WantErr(f, err, context.DeadlineExceeded, redistest.Not(leasehold.ErrUnavailable), redistest.Says("singleflight: close "+f.Family, "loader"))
			redistest.Expect(f, time.Since(began), 3*time.Second, "it took %v")
			redistest.WantErr(f, first.Failed(), leasehold.ErrClosed)
			redistest.Get(f, "the end of the load's ctx", l.ctx.Done())
			redistest.WantErr(f, context.Cause(l.ctx), leasehold.ErrClosed)
			fetch(f, f.Context(), other, "k", gives("new")).want("new", singleflight.Loaded)
			l.returns("old")
			redistest.NoError(f, g.Close(f.Context()))
			wantStored(f, other, "k", "new")
		})
	}
}

// Redis does not answer what is under way when the ctx of Close ends, and no loader runs: Close says so.
func TestCloseOfWhatRedisDoesNotAnswer(t *testing.T) {
	for what, begin := range map[string]func(f *fixture, g *singleflight.Group[string], w *harness.Wire){
		"an invalidation": func(f *fixture, g *singleflight.Group[string], w *harness.Wire) {
			invalidate(f, g, "k")
			w.Stall()
			harness.Begin(f, func() error { return g.Invalidate(f.Context(), "k") })
		},
		"a publication": func(f *fixture, g *singleflight.Group[string], w *harness.Wire) {
			_, l, _ := f.loading(g, "k")
			w.Stall()
			l.returns("v")
		},
	} {
		subBubble(t, what, func(f *fixture) {
			g, w := f.open()
			begin(f, g, w)
			synctest.Wait()
			redistest.WantErr(f, g.Close(f.Within(time.Second/2)), context.DeadlineExceeded, leasehold.ErrUnavailable)
			redistest.NoError(f, g.Close(f.Context()))
		})
	}
}

// Nothing is sent any more once Close has returned, whatever state loads were in.
func TestCloseLeavesNothingRunning(t *testing.T) {
	for what, put := range map[string]func(f *fixture, w *harness.Wire){
		"held": func(*fixture, *harness.Wire) {},
		"lost": func(f *fixture, _ *harness.Wire) {
			f.Server.FlushAll()
			time.Sleep(9 * time.Second)
		},
		"expired": func(_ *fixture, w *harness.Wire) {
			w.Cut()
			time.Sleep(11 * time.Second)
			w.Heal()
		},
	} {
		for _, most := range []int{0, 3} {
			subBubble(t, fmt.Sprint(what, ", MaxLoads ", most), func(f *fixture) {
				g, wire := f.open(maxLoads(most))
				first, l, _ := f.loading(g, "k")
				put(f, wire)
				closed := harness.Begin(f, func() error { return g.Close(f.Context()) })
				time.Sleep(time.Second)
				l.returns("v") // later than Close has begun
				closed.Got()
				first.Failed()
				sent := wire.Sent()
				time.Sleep(time.Minute)
				synctest.Wait()
				redistest.Expect(f, wire.Sent()-sent, 0, "%d commands were sent after Close had returned")
				redistest.Check(f, f.freed("k"), "the lease is held yet")
			})
		}
	}
}

// Invalidate and Put that Redis does not answer return when the handle is closed.
func TestCloseEndsInvalidations(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, w := f.open()
		put(f, g, "k", "v")
		w.Stall()
		ended := harness.Begin(f, func() error { return g.Invalidate(f.Context(), "k") })
		stored := harness.Begin(f, func() error { return g.Put(f.Context(), "k", "w") })
		synctest.Wait()
		closed := harness.Begin(f, func() error { return g.Close(f.Context()) })
		synctest.Wait()
		redistest.CheckNow(f, ended.Ended() && stored.Ended() && !closed.Ended(), "ended: %v, %v; closed: %v", ended.Ended(), stored.Ended(), closed.Ended())
		redistest.WantErr(f, ended.Failed(), leasehold.ErrClosed)
		redistest.WantErr(f, stored.Failed(), leasehold.ErrClosed)
		closed.Got()
	})
}

// Close waits for a near read, and for a subscription that is being made at a server that hangs, until ctx ends.
func TestCloseWaitsForCopiesInMemory(t *testing.T) {
	for what, hang := range map[string]func(f *fixture, g *singleflight.Group[string], w *harness.Wire){
		"a near read": func(f *fixture, g *singleflight.Group[string], w *harness.Wire) {
			time.Sleep(9 * time.Second)
			w.Stall()
			peek(f, g, "k") // renews the read lease
		},
		"a subscription": func(_ *fixture, _ *singleflight.Group[string], w *harness.Wire) {
			w.Cut()
			w.Heal()
			w.Stall()
		},
	} {
		subBubble(t, what, func(f *fixture) {
			g, w := f.open(nearFor(10 * time.Second))
			heat(f, g, g, "k", "v")
			hang(f, g, w)
			time.Sleep(time.Second)
			began := time.Now()
			redistest.WantErr(f, g.Close(f.Within(time.Second)), context.DeadlineExceeded, leasehold.ErrUnavailable)
			redistest.Expect(f, time.Since(began), time.Second, "Close took %v")
			redistest.NoError(f, g.Close(f.Context()))
			redistest.AtLeast(f, time.Since(began), clientPatience-time.Second, "the second Close ended after %v")
		})
	}
}

// A load goes on, for its callers here and elsewhere. Shutdown refuses all other waiters, also under LoadLocally.
func TestShutdownLetsLoadsFinish(t *testing.T) {
	for _, policy := range []singleflight.Policy{singleflight.Fail, singleflight.LoadLocally} {
		subBubble(t, policy.String(), func(f *fixture) {
			g, other, _ := f.two(maxLoads(2), func(c *singleflight.Config[string]) { c.OnUnavailable = policy })
			here, there := newOrigin(f), newOrigin(f)
			first, l := begin(f, f.Context(), g, "k", here, here.obedient)
			joins := fetch(f, f.Context(), g, "k", here.obedient)
			elsewhere := fetch(f, f.Context(), other, "k", never(f))
			theirs, m := begin(f, f.Context(), other, "theirs", there, there.load)
			waits := fetch(f, f.Context(), g, "theirs", never(f))
			permit := fetch(f, f.Context(), g, "permit", never(f)) // both permits are taken
			time.Sleep(time.Second)
			synctest.Wait()
			done := harness.Begin(f, func() error { return g.Shutdown(f.Context()) })
			time.Sleep(time.Millisecond)
			synctest.Wait()
			redistest.WantErr(f, waits.Failed(), leasehold.ErrClosed)
			redistest.WantErr(f, permit.Failed(), leasehold.ErrClosed)
			redistest.WantErr(f, redistest.ErrorOf(g.Do(f.Context(), "new", never(f))), leasehold.ErrClosed)
			time.Sleep(time.Minute) // longer than LeaseTTL: the lease is renewed
			redistest.CheckNow(f, !done.Ended(), "Shutdown returned %v beside a load", done.Err)
			redistest.CheckNow(f, !l.over(), "the load has ended: %v", context.Cause(l.ctx))
			l.returns("v")
			for _, caller := range []*pending[string]{first, joins, elsewhere} {
				caller.wantValue("v")
			}
			done.Got()
			wantStored(f, other, "k", "v")
			m.returns("v")
			theirs.Got()
			fetch(f, f.Context(), other, "permit", gives("w")).Got() // nothing is left of the refused call
		})
	}
}

// A DoMany has the right to load one key, and waits for the answer about another one, when Shutdown comes. Its loader
// has nobody to load for, so its failure is not that of those that wait elsewhere.
func TestShutdownBeforeALoadBeginsFailsNobodyElse(t *testing.T) {
	c := redistest.SharedCluster(t, redistest.NeedServers(t)[0])
	f := &fixture{harness.NewOn(t, harness.Loads, c.Client())}
	second := ""
	for i := 0; second == "" || c.NodeFor(f.Part(second, "value")).Addr() == c.NodeFor(f.Part("k", "value")).Addr(); i++ {
		second = fmt.Sprint(i)
	}
	asked, answers := make(chan struct{}, 1), make(chan struct{})
	rdb := c.Client()
	rdb.AddHook(redistest.Around(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if harness.CommandName(cmds[0]) == "load enter" && cmds[0].Args()[3] == f.Part(second, "holders") {
			asked <- struct{}{}
			<-answers
		}
		return send()
	}))
	g, other := openOn[string](f, rdb), openOn[string](f, c.Client())
	b := newBatches()
	b.gate = make(chan struct{})
	many := doMany(f, f.Context(), g, []string{"k", second}, b)
	redistest.Get(f, "the question about the second key", asked)
	redistest.Eventually(f, "the right to load", func() bool { return inspect(f, other, "k").Loading })
	waits := fetch(f, f.Context(), other, "k", gives("v"))
	redistest.Eventually(f, "the other process", func() bool { return f.Queued("k") == 1 })
	done := harness.Begin(f, func() error { return g.Shutdown(f.Context()) })
	redistest.WantErr(f, many.Failed(), leasehold.ErrClosed)
	waits.want("v", singleflight.Loaded)
	close(answers)
	done.Got()
}
