package singleflight

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// Here are ways in which other caches have served what was invalidated, or let
// everybody load at once.

// A caller that asks after Invalidate returned gets nothing that was loaded before, and
// the load that it met is stored by nobody: not in the process of the load, where
// it is joined, nor in another, where it is waited for, nor later.
func TestInvalidateDuringALoad(t *testing.T) {
	each(t, func(f *fixture) {
		for _, waited := range []bool{false, true} {
			key := fmt.Sprint(waited)
			g, _ := f.open()
			other, _ := f.open()
			third, _ := f.open()
			o := newOrigin(f)
			first := fetch(f, f.Context(), g, key, o.load)
			l := o.next(f)
			var waits *pending[string]
			if waited {
				waits = fetch(f, f.Context(), other, key, never(f))
				redistest.Eventually(f, "the other", func() bool { return f.Queued(key) == 1 })
			}
			redistest.WantErr(f, third.Invalidate(f.Context(), key))
			var after []*pending[string]
			for _, h := range []*singleflight.Group[string]{g, other, third} {
				after = append(after, fetch(f, f.Context(), h, key, o.load))
			}
			l2 := o.next(f)
			l.returns("old")
			first.want("old", singleflight.Loaded)
			if waited {
				waits.want("old", singleflight.Shared)
			}
			s := inspect(f, g, key)
			redistest.Check(f, !s.Cached && s.Loading, "after the old load: %+v", s)
			l2.returns("new")
			for _, p := range append(after, fetch(f, f.Context(), g, key, never(f))) {
				p.wantValue("new")
			}
			redistest.Expect(f, o.loads.Load(), 2, "%d loads")
		}
	})
}

// A load may take longer than the lease: that is renewed.
func TestLoadLongerThanItsLease(t *testing.T) {
	some(t, func(f *fixture) {
		g, _ := f.open(lease(3 * time.Second)) // a busy machine does not miss its renewals
		other, _ := f.open(lease(3 * time.Second))
		o := newOrigin(f)
		first := fetch(f, f.Context(), g, "k", o.load)
		l := o.next(f)
		waits := fetch(f, f.Context(), other, "k", o.load)
		time.Sleep(5 * time.Second)
		redistest.CheckNow(f, !l.over(), "the load ended: %v", context.Cause(l.ctx))
		l.returns("v")
		first.want("v", singleflight.Loaded)
		waits.want("v", singleflight.Shared)
		redistest.Expect(f, o.loads.Load(), 1, "%d loads")
	})
}

// A load whose lease is gone publishes nothing, although the process that ran it
// has the lease again, for another load: attempts are told apart, not processes.
func TestOldLoadOfTheSameProcessIsRefused(t *testing.T) {
	some(t, func(f *fixture) {
		f.teach()
		g, wire := f.open()
		o := newOrigin(f)
		ctx, cancel := context.WithCancel(f.Context())
		first := fetch(f, ctx, g, "k", o.load)
		l := o.next(f)
		wire.Stall("load renew") // so that it doesn't know
		cancel()
		first.failed()
		f.RDB.Del(f.Context(), f.Part("k", "holders"))
		second := fetch(f, f.Context(), g, "k", o.load)
		l2 := o.next(f)
		lands := wire.Sent("load publish")
		l.returns("old")
		redistest.Eventually(f, "the old load to publish", func() bool { return wire.Answered("load publish") == lands+1 })
		s := inspect(f, g, "k")
		redistest.Check(f, !s.Cached && s.Loading, "after the old load: %+v", s)
		l2.returns("new")
		second.want("new", singleflight.Loaded)
		fetch(f, f.Context(), g, "k", never(f)).want("new", singleflight.Cached)
		wire.Heal()
	})
}

// A waiter has no time-out of its own after which it would load beside the others;
// one whose caller has, leaves.
func TestWaitersDoNotLoadAfterATimeOut(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		o := newOrigin(f)
		var all, short []*pending[string]
		ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
		defer cancel()
		for range 5 {
			g, _ := f.open()
			all = append(all, fetch(f, f.Context(), g, "k", o.load))
			short = append(short, fetch(f, ctx, g, "k", o.load))
			synctest.Wait()
		}
		l := o.next(f)
		time.Sleep(2 * time.Minute)
		for _, p := range short {
			redistest.WantErr(f, p.failed(), context.DeadlineExceeded)
		}
		redistest.Require(f, o.loads.Load(), 1, "%d loads")
		l.returns("v")
		for _, p := range all {
			p.wantValue("v")
		}
	})
}
