package singleflight

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A Put may have run if its reply is lost. It is not sent again: its second run could undo a Put
// that was answered in between.
func TestPutWhoseReplyIsLost(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		g := f.openVia(p)
		other, _ := f.open()
		puts := harness.Does("load put")
		lost := p.EatReply(puts, 1)
		written := harness.Begin(f, func() error { return g.Put(f.Context(), "k", "first") })
		redistest.Get(f, "the lost reply", lost.Fired())
		put(f, other, "k", "second")
		redistest.WantErr(f, written.Failed(), leasehold.ErrUnavailable)
		redistest.Expect(f, peek(f, g, "k").Value, "second", "the value is %q")
	})
}

// An Invalidate that fails names the keys that may have been dropped or not; it
// tries for 3 s, and returns at once when its ctx ends.
func TestInvalidateFails(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, wire := f.open()
		fetch(f, f.Context(), g, "a", gives("v")).Got()
		wire.Cut()
		began := time.Now()
		err := g.Invalidate(f.Context(), "a", "b")
		of := "singleflight: invalidate " + f.Family
		redistest.WantErr(f, err, leasehold.ErrUnavailable, harness.ErrCut, redistest.Says(of+"/a", of+"/b"))
		redistest.WantErr(f, keysError(f, err, "a", "b")["b"], leasehold.ErrUnavailable, harness.ErrCut)
		redistest.Between(f, time.Since(began), 3*time.Second, 4*time.Second, "tried for %v")
		began = time.Now()
		err = g.Invalidate(f.Within(time.Second), "a", "b")
		redistest.WantErr(f, err, context.DeadlineExceeded, leasehold.ErrUnavailable, redistest.Says(f.Family+"/a", f.Family+"/b"))
		redistest.Expect(f, time.Since(began), time.Second, "returned after %v")
		wire.Heal()
		go func() { time.Sleep(time.Second); wire.Heal() }()
		wire.Cut()
		redistest.NoError(f, g.Invalidate(f.Context(), "a")) // it was tried again
		wantNothing(f, g, "a")
		// What the server refuses for one key is that key's error alone.
		f.RDB.Set(f.Context(), f.Part("bad", "holders"), "a string", time.Minute)
		fetch(f, f.Context(), g, "good", gives("v")).Got()
		err = g.Invalidate(f.Context(), "good", "bad")
		redistest.WantErr(f, err, leasehold.ErrUnavailable)
		redistest.WantText(f, keysError(f, err, "bad")["bad"], f.Family+"/bad", "WRONGTYPE")
		redistest.Check(f, !strings.Contains(err.Error(), "/good"), "%v", err)
		wantNothing(f, g, "good")
	})
}

// After Invalidate or Put has returned, no handle serves the value from before, whichever handle called: one with
// copies of its own, or one without. It waits for messages and not for the end of a read lease.
func TestNearNothingOldAfterAnInvalidation(t *testing.T) {
	each(t, func(f *fixture) {
		var readers []*singleflight.Group[string]
		for range 3 {
			readers = append(readers, mustOpen(f, nearFor(hold)))
		}
		writers := map[string]*singleflight.Group[string]{"a reader": readers[0], "a handle without copies": mustOpen(f)}
		for n := range 8 {
			for who, writer := range writers {
				old := fmt.Sprintf("%s %d", who, n)
				put(f, writer, "k", old)
				for _, g := range readers {
					warm(f, g, "k", old)
				}
				want := ""
				if n%2 == 0 {
					redistest.AtMost(f, invalidate(f, writer, "k"), redistest.Soon, "an invalidation by "+who+" took %v")
				} else {
					want = old + "!"
					put(f, writer, "k", want)
				}
				for i, g := range readers {
					r := peek(f, g, "k")
					redistest.CheckNow(f, r.Value == want, "after a change by %s reader %d has %+v; want %q", who, i, r, want)
				}
			}
		}
	})
}

// A reader that hears nothing is waited out: Invalidate returns when its read lease is over. It
// counts from before the near read was sent, so a reply that comes late makes it no longer.
func TestNearWaitsForAReaderThatHearsNothing(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		const lasts = 1500 * time.Millisecond
		g, writer := f.openVia(p, nearFor(lasts)), mustOpen(f, nearFor(lasts))
		put(f, writer, "k", "old")
		late := p.HoldReply(harness.Does("near read"), 1)
		held := harness.Begin(f, func() error { late.Wait(); return nil })
		redistest.Eventually(f, "a near read", func() bool { peek(f, g, "k"); return held.Ended() })
		p.SetHook(func(ev redistest.Event) redistest.Action { // nor is the lease renewed
			if ev.Stage == redistest.OnMessage || ev.Stage == redistest.OnRequest && harness.Script(ev.Cmd) == "near read" {
				return redistest.Vanish
			}
			return redistest.Pass
		})
		done := invalidating(f, writer, "k")
		time.Sleep(lasts / 2)
		late.Release()
		redistest.AtLeast(f, done.Got(), lasts/2, "the invalidation took %v, and the reader heard nothing")
		wantNothing(f, g, "k")
	})
}

// The copy of a reader that hears nothing is served, and not longer than each invalidation waits, also a second one.
// ctx and Close end the wait at once, with an error.
func TestNearSecondInvalidationWaitsToo(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		plain, writer, closing := mustOpen(f), mustOpen(f, nearFor(hold)), mustOpen(f, nearFor(hold))
		put(f, writer, "k", "old")
		g := f.openVia(p, nearFor(hold))
		warm(f, g, "k", "old")
		p.DropMessages(true)
		waiting := func(ctx context.Context, writer *singleflight.Group[string]) *harness.Call[struct{}] {
			dropped := p.Dropped()
			waits := harness.Begin(f, func() error { return writer.Invalidate(ctx, "k") })
			redistest.Eventually(f, "the wait", func() bool { return p.Dropped() > dropped })
			return waits
		}
		for i, writer := range []*singleflight.Group[string]{plain, writer, writer} {
			ctx := harness.EndedBadly{Context: f.Context(), Ended: make(chan struct{}), How: func() error { return nil }}
			waits := waiting(ctx, writer)
			close(ctx.Ended)
			err := waits.Failed()
			redistest.WantErr(f, err, context.Canceled)
			if i == 0 { // later ones may have met what the one before still told
				redistest.WantErr(f, err, redistest.Not(leasehold.ErrUnavailable), redistest.Says(f.Family+"/k", "memory"))
			}
			wantPeek(f, g, "k", "old", singleflight.Near)
		}
		waits := waiting(f.Context(), closing)
		harness.Close(f, closing)
		redistest.WantErr(f, waits.Failed(), leasehold.ErrClosed)
		waits = waiting(f.Context(), writer)
		p.DropMessages(false)
		waits.Got()
		wantNothing(f, g, "k")
	})
}

// A near read that is under way while its key is invalidated brings nothing that is served later: neither a first one
// nor a renewal. The reader has acknowledged, so Invalidate has returned.
func TestNearReadUnderWayDoesNotOutliveAnInvalidation(t *testing.T) {
	for name, renewal := range map[string]bool{"first": false, "renewal": true, "renewal of a changed value": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				g, wire := f.open(nearFor(2 * time.Second))
				writer := mustOpen(f)
				put(f, writer, "k", "refreshed")
				refreshed := f.RDB.Get(f.Context(), f.Part("k", "value")).Val()
				time.Sleep(time.Millisecond) // another time of publication
				put(f, writer, "k", "old")
				if renewal {
					warm(f, g, "k", "old")
				}
				if name == "renewal of a changed value" { // as a refresh changes it, which tells no reader
					redistest.WantErr(f, f.RDB.Set(f.Context(), f.Part("k", "value"), refreshed, time.Minute).Err())
				}
				release := readUnderWay(f, g, wire)
				invalidate(f, writer, "k")
				release()
				for range 20 {
					wantNothing(f, g, "k")
					synctest.Wait()
				}
			})
		})
	}
}

// A reader acknowledges after it has dropped the copy: the copy is gone when its message leaves the process.
func TestNearDropsBeforeItAcknowledges(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		g, writer := f.openVia(p, nearFor(hold)), mustOpen(f)
		for range 5 {
			heat(f, writer, g, "k", "old")
			held := p.HoldRequest(harness.Does("near leave"), 1)
			done := invalidating(f, writer, "k")
			held.Wait()
			wantNothing(f, g, "k")
			held.Release()
			done.Got()
		}
	})
}

// An acknowledgement that is lost is made up for: the reader is told again.
func TestNearLostMessagesAreRepeated(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		g, writer := f.openVia(p, nearFor(hold)), mustOpen(f, nearFor(hold))
		heat(f, writer, writer, "own", "v") // the writer listens, so no new subscription has the reader told again
		heat(f, writer, g, "k", "old")
		lost := p.DropRequest(harness.Does("near leave"), 1)
		redistest.AtMost(f, invalidate(f, writer, "k"), redistest.Soon, "with a lost acknowledgement the invalidation took %v")
		lost.Wait()
		heat(f, writer, g, "k", "old")
		p.CloseAll() // the subscription ends, and with it every copy
		redistest.AtMost(f, invalidate(f, writer, "k"), redistest.Soon, "with a lost subscription the invalidation took %v")
		wantNothing(f, g, "k")
	})
}

// A reader of another schema may register after an invalidation ran for the caller's own
// schema. The call for its schema finds it.
func TestNearReadersOfAllSchemasAreFound(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		schema := func(n uint32) config { return func(c *singleflight.Config[string]) { c.Schema = n } }
		writer := f.openVia(p, schema(1))
		g := mustOpen(f, schema(2), nearFor(hold))
		for range 3 {
			fetch(f, f.Context(), g, "k", gives("old")).Got()
			held := p.HoldRequest(harness.Does("load invalidate"), 2)
			done := invalidating(f, writer, "k")
			held.Wait()
			warm(f, g, "k", "old")
			held.Release()
			redistest.AtMost(f, done.Got(), redistest.Soon, "it took %v")
			wantNothing(f, g, "k")
		}
	})
}

// The own copy of the caller goes also if the call fails, since it may have run.
func TestNearOwnCopyGoesWithAFailedInvalidation(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		g := f.openVia(p, nearFor(hold))
		heat(f, g, g, "k", "old")
		for n := range 50 { // each try
			p.EatReply(harness.Does("load put"), n+1)
		}
		redistest.WantErr(f, g.Put(f.Context(), "k", "new"), leasehold.ErrUnavailable)
		r := peek(f, g, "k")
		redistest.Check(f, r.Value == "new", "after a Put without an answer its own handle has %+v", r)
	})
}

// A hook that ends the goroutine of an acknowledgement costs that one alone.
func TestNearHookThatEndsAnAcknowledgement(t *testing.T) {
	some(t, func(f *fixture) {
		g, writer, w := f.two(nearFor(hold))
		for n := range 3 {
			heat(f, writer, g, "k", fmt.Sprint(n))
			var ended atomic.Bool
			w.Fail(func(name string) error {
				if n == 1 && name == "near leave" && !ended.Swap(true) {
					runtime.Goexit()
				}
				return nil
			})
			took := invalidate(f, writer, "k") // the reader is told again
			redistest.AtMost(f, took, redistest.Soon, "invalidation %d took %v", n)
		}
	})
}

// An acknowledgement does not wait for the reply to an earlier one: over a long way an invalidation takes no
// longer while a reader acknowledges others. Those that come together are one call.
func TestNearAcknowledgementsDoNotWaitForEachOther(t *testing.T) {
	bubble(t, func(f *fixture) {
		const trip, n = 300 * time.Millisecond, 6
		f.teach()
		connect := f.Connect
		f.Connect = func(w *harness.Wire) redis.UniversalClient {
			rdb := connect(w)
			rdb.AddHook(redistest.Around(func(_ context.Context, _ []redis.Cmder, send func() error) error {
				time.Sleep(trip / 2)
				defer time.Sleep(trip / 2)
				return send()
			}))
			return rdb
		}
		g, writer, w := f.two(nearFor(hold))
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprint(i))
		}
		fill := func() {
			for _, key := range keys {
				heat(f, writer, g, key, "v")
			}
		}
		heat(f, writer, writer, "own", "v") // it listens
		fill()
		var all []*harness.Call[time.Duration]
		for _, key := range keys {
			all = append(all, invalidating(f, writer, key))
			time.Sleep(trip / n)
		}
		for i, one := range all {
			redistest.AtMost(f, one.Got(), trip+trip/8, fmt.Sprintf("invalidation %d took %%v", i))
		}
		fill()
		before := w.Sent("near leave")
		invalidate(f, writer, keys...)
		redistest.AtMost(f, w.Sent("near leave")-before, 2, "%d calls acknowledged it")
	})
}

// When its subscription comes back, a reader drops its copies: a server that took over may have lost its
// registrations. This holds also if the handle listened, as a writer, before it had its first copy.
func TestNearCopiesGoWhenTheSubscriptionComesBack(t *testing.T) {
	for name, listens := range map[string]bool{"opened for the copy": false, "open before the copy": true} {
		t.Run(name, func(t *testing.T) {
			withProxy(t, func(f *fixture, p *redistest.Proxy) {
				g := f.openVia(p, nearFor(hold))
				if listens {
					reader := mustOpen(f, nearFor(hold))
					heat(f, reader, reader, "other", "v")
					invalidate(f, g, "other")
				}
				put(f, g, "k", "new")
				lost := f.RDB.Get(f.Context(), f.Part("k", "value")).Val()
				heat(f, g, g, "k", "old")
				redistest.WantErr(f, f.RDB.Set(f.Context(), f.Part("k", "value"), lost, time.Minute).Err())
				redistest.WantErr(f, f.RDB.Del(f.Context(), f.Part("k", "near")).Err())
				p.CloseAll()
				redistest.Eventually(f, "the end of the copy", func() bool { return peek(f, g, "k").Value == "new" })
			})
		})
	}
}
