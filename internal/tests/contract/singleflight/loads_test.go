package singleflight

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

func maxLoads(n int) config { return func(c *singleflight.Config[string]) { c.MaxLoads = n } }

// At most MaxLoads loaders of a family run at once in the whole fleet; all callers get their values.
func TestMaxLoadsBoundsTheFleet(t *testing.T) {
	each(t, func(f *fixture) {
		const most, keys = 4, 6
		o := newOrigin(f)
		var all []*pending[string]
		for i := range 3 {
			g, _ := f.open(maxLoads(most))
			for k := range keys {
				all = append(all, fetch(f, f.Context(), g, fmt.Sprint(i, "-", k), o.load))
			}
		}
		var run []*loading
		for ended := range len(all) {
			for len(run) < min(most, len(all)-ended) {
				run = append(run, o.next(f))
			}
			redistest.AtMost(f, int(o.loads.Load())-ended, most, "%d loaders run at once")
			run[0].returns("v")
			run = run[1:]
		}
		for _, p := range all {
			p.want("v", singleflight.Loaded)
		}
	})
}

// A hook of the client that ends the goroutine of a release ends no process, and keeps no permit.
func TestHookThatEndsTheReleaseOfAPermit(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, w := f.open(maxLoads(1))
		var once sync.Once
		w.Fail(func(name string) error {
			if name == "leave" {
				once.Do(runtime.Goexit)
			}
			return nil
		})
		ctx := f.Within(time.Second)
		for _, key := range []string{"a", "b"} {
			redistest.NoError(f, redistest.ErrorOf(g.Do(ctx, key, func(context.Context) (string, error) { return "v", nil })))
		}
	})
}

// The lease comes first, and is renewed while its load waits for the permit:
// one load a key, however long that takes. LoadTimeout starts with the permit.
func TestLeaseIsTakenBeforeThePermit(t *testing.T) {
	bubble(t, func(f *fixture) {
		mod := func(c *singleflight.Config[string]) { c.LeaseTTL, c.LoadTimeout = time.Second, 5*time.Second }
		g, _ := f.open(maxLoads(1), func(c *singleflight.Config[string]) { c.LeaseTTL = time.Second })
		second, third, _ := f.two(maxLoads(1), mod)
		first, l, o := f.loading(g, "a")
		b := fetch(f, f.Context(), second, "b", o.load)
		again := fetch(f, f.Context(), third, "b", o.load)
		for range 30 {
			time.Sleep(time.Second)
			s := inspect(f, g, "b")
			redistest.CheckNow(f, s.Loading && s.Waiting == 1 && o.loads.Load() == 1, "%+v, %d loads", s, o.loads.Load())
		}
		l.returns("A")
		first.want("A", singleflight.Loaded)
		l = o.next(f)
		time.Sleep(4 * time.Second)
		l.returns("B")
		b.want("B", singleflight.Loaded)
		again.want("B", singleflight.Shared)
		slow := fetch(f, f.Context(), second, "c", o.load)
		l = o.next(f)
		redistest.WantErr(f, slow.Failed(), singleflight.ErrLoadTimeout)
		// A load that took too long keeps its permit until its loader has returned.
		d := fetch(f, f.Context(), g, "d", gives("D"))
		time.Sleep(30 * time.Second)
		redistest.Check(f, !d.Ended(), "two loads run at once")
		l.returns("C")
		d.want("D", singleflight.Loaded)
	})
}

// A DoMany takes one permit, however many its keys, and loads wait in order.
func TestDoManyTakesOnePermit(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, other, _ := f.two(maxLoads(2))
		o, b := newOrigin(f), newBatches()
		b.gate = make(chan struct{})
		many := doMany(f, f.Context(), g, []string{"a", "b", "c", "d", "e"}, b)
		redistest.Get(f, "the load", b.began)
		one, l := begin(f, f.Context(), other, "one", o, o.load)
		redistest.Expect(f, f.RDB.ZCard(f.Context(), f.Part("", "holders")).Val(), 2, "%d permits are taken")
		two := fetch(f, f.Context(), g, "two", o.load)
		three := fetch(f, f.Context(), other, "three", o.load)
		redistest.Require(f, o.loads.Load(), 1, "%d loads beside the DoMany")
		b.gate <- struct{}{}
		redistest.NoError(f, many.got("a", "A", "b", "B", "c", "C", "d", "D", "e", "E"))
		next := o.next(f)
		synctest.Wait()
		redistest.CheckNow(f, !two.Ended() && o.loads.Load() == 2, "not one at a time")
		next.returns("2")
		two.want("2", singleflight.Loaded)
		o.next(f).returns("3")
		three.want("3", singleflight.Loaded)
		l.returns("1")
		one.Got()
	})
}

// A revoked load's ctx ends with the reason, another process loads at once, under the permit of MaxLoads that is free
// again, and the late result goes to its own caller and is not stored.
func TestRevokeOfALoad(t *testing.T) {
	each(t, func(f *fixture) {
		for _, schema := range []uint32{0, 77} { // an operator reaches every schema
			prefix := fmt.Sprint(f.Family, schema)
			mod := func(c *singleflight.Config[string]) { c.MaxLoads, c.Prefix = 1, prefix }
			a, b, _ := f.two(mod)
			operator, _ := f.open(mod, func(c *singleflight.Config[string]) { c.Schema = schema })
			first, l, o := f.loading(a, "k")
			redistest.Eventually(f, "the loader's subscription", func() bool { return len(f.Subscribed(prefix)) > 0 })
			second := fetch(f, f.Context(), b, "k", o.load)
			redistest.Eventually(f, "a waiter", func() bool { return inspect(f, a, "k").Waiting == 1 })
			id := inspect(f, a, "k").LoadID
			redistest.WantErr(f, operator.Revoke(f.Context(), "k", id, "it hangs"))
			next := o.next(f) // while the first has not returned
			redistest.Get(f, "the end of the load's ctx", l.ctx.Done())
			revoked := new(leasehold.RevokedError)
			redistest.Check(f, errors.As(context.Cause(l.ctx), &revoked) && revoked.Reason == "it hangs", "the cause is %v", context.Cause(l.ctx))
			l.returns("late")
			first.want("late", singleflight.Loaded)
			s := inspect(f, a, "k")
			redistest.Check(f, !s.Cached && s.Loading, "the late result was stored, or ended the other load: %+v", s)
			next.returns("new")
			second.wantValue("new")
			wantStored(f, a, "k", "new")
			redistest.NoError(f, operator.Revoke(f.Context(), "k", id, "again"))
			redistest.WantErr(f, operator.Revoke(f.Context(), "k", "AAAAAAAA-1", "r"), leasehold.ErrNoLease)
			redistest.WantErr(f, operator.Revoke(f.Context(), "k", id, ""), leasehold.ErrInvalid)
		}
	})
}

// A load that is revoked before its process knows of it has not run: its caller asks anew.
func TestRevokeOfALoadWhoseReplyIsLost(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		operator, _ := f.open()
		g, o := f.openVia(p), newOrigin(f)
		lost := p.HoldReply(harness.Does("load enter"), 1)
		first := fetch(f, f.Context(), g, "k", o.load)
		lost.Wait()
		redistest.WantErr(f, operator.Revoke(f.Context(), "k", inspect(f, operator, "k").LoadID, "it hangs"))
		p.CloseAll()
		o.next(f).returns("new")
		first.wantValue("new")
	})
}

// One call tells 250 processes of a result. The others are told at once too, and not when they ask; also that a value
// is too large for them, so that each of them loads its own.
func TestResultReachesAllProcesses(t *testing.T) {
	for theirs, value := range map[string]string{"v": "v", "another": "larger than ten bytes"} {
		subBubble(t, theirs, func(f *fixture) {
			small := func(c *singleflight.Config[string]) { c.MaxValueBytes = 10 }
			first, l, _ := f.loading(mustOpen(f, small), "k")
			rdb := f.Connect(&harness.Wire{})
			var others []*pending[string]
			for range 260 {
				others = append(others, fetch(f.T, f.Context(), openOn(f, rdb, small), "k", gives("another")))
			}
			synctest.Wait()
			began := time.Now()
			l.returns(value)
			first.wantValue(value)
			for _, p := range others {
				p.wantValue(theirs)
			}
			redistest.AtMost(f, time.Since(began), time.Millisecond, "the last process had the result after %v")
		})
	}
}

// If the caller of a DoMany has left before its loader was called, a DoMany that waits for all of the keys calls its own.
// If several calls wait for some of the keys each, that loader is called; its panic is an error of theirs.
func TestDoManyIsLeftToOthers(t *testing.T) {
	leave := func(f *fixture, g *singleflight.Group[string], settle, goOn func()) {
		ctx, leaves := context.WithCancel(f.Context())
		for _, keys := range [][]string{{"a", "b"}, {"c", "d"}} {
			go g.DoMany(ctx, keys, func(context.Context, []string) (map[string]string, error) { panic("oh no") })
		}
		settle() // until they wait
		b := newBatches()
		one := doMany(f, f.Context(), g, []string{"a", "b"}, b)
		several := []*pending[string]{fetch(f, f.Context(), g, "c", never(f)), fetch(f, f.Context(), g, "d", never(f))}
		settle()
		leaves()
		synctest.Wait()
		goOn()
		redistest.NoError(f, one.got("a", "A", "b", "B"))
		for _, p := range several {
			redistest.WantErr(f, p.Failed(), singleflight.ErrLoaderPanicked)
		}
	}
	subBubble(t, "before it has leases", func(f *fixture) {
		g, wire := f.open()
		leave(f, g, synctest.Wait, wire.StallReplies("load enter"))
	})
	subBubble(t, "behind loads without Redis", func(f *fixture) {
		g, wire := f.open(locally)
		wire.Cut()
		first := newBatches()
		first.gate = make(chan struct{})
		doMany(f, f.Context(), g, []string{"a", "b", "c", "d"}, first)
		<-first.began
		leave(f, g, settleAway, func() { close(first.gate) })
	})
}
