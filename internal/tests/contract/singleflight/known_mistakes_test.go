package singleflight

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasehold-go/leasehold"
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
			if err := third.Invalidate(f.Context(), key); err != nil {
				f.Fatal(err)
			}
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
			if s := inspect(f, g, key); s.Cached || !s.Loading {
				f.Errorf("after the old load: %+v", s)
			}
			l2.returns("new")
			for _, p := range append(after, fetch(f, f.Context(), g, key, never(f))) {
				if r := p.got(); r.Value != "new" {
					f.Errorf("the caller after the Invalidate has %+v", r)
				}
			}
			if n := o.loads.Load(); n != 2 {
				f.Errorf("%d loads", n)
			}
		}
	})
}

// A caller that gives up takes no other along, whether the caller that remains is in the same
// process or in another.
func TestLoadOutlivesItsFirstCaller(t *testing.T) {
	for _, inside := range []bool{true, false} {
		subBubble(t, map[bool]string{true: "same process", false: "another"}[inside], func(f *fixture, _ *miniredis.Miniredis) {
			g, _ := f.open()
			h := g
			if !inside {
				h, _ = f.open()
			}
			o := newOrigin(f)
			ctx, cancel := context.WithCancel(f.Context())
			first := fetch(f, ctx, g, "k", o.obedient)
			l := o.next(f)
			remains := fetch(f, f.Context(), h, "k", o.obedient)
			synctest.Wait()
			cancel()
			redistest.WantErr(f, first.failed(), context.Canceled)
			time.Sleep(time.Minute)
			if l.over() {
				f.Fatalf("the load ended with its first caller: %v", context.Cause(l.ctx))
			}
			l.returns("v")
			remains.want("v", singleflight.Shared)
			if n := o.loads.Load(); n != 1 {
				f.Errorf("%d loads", n)
			}
		})
	}
}

// A loader that panics or calls Goexit leaves nobody waiting, gives nobody a zero
// value, and caches none.
func TestLoaderThatNeverReturns(t *testing.T) {
	each(t, func(f *fixture) {
		for what, end := range map[string]func(){"panic": func() { panic("oh") }, "goexit": runtime.Goexit} {
			var all []*pending[string]
			o := newOrigin(f)
			for range 4 {
				g, _ := f.open(func(c *singleflight.Config[string]) { c.ErrorTTL, c.NotFoundTTL = time.Minute, time.Minute })
				all = append(all, fetch(f, f.Context(), g, what, o.load))
			}
			l := o.next(f)
			redistest.Eventually(f, "three processes to wait", func() bool { return f.Queued(what) == 3 })
			l.does(end)
			thrown := 0
			for _, p := range all {
				redistest.Get(f, "an end", p.done)
				switch {
				case p.raised != nil || p.exited:
					thrown++
				case p.err == nil:
					f.Errorf("%s: a caller has %+v", what, p.result)
				default:
					redistest.WantErr(f, p.err, singleflight.ErrLoaderPanicked)
				}
			}
			if thrown != 1 {
				f.Errorf("%s: raised in %d callers", what, thrown)
			}
			g, _ := f.open()
			fetch(f, f.Context(), g, what, gives("v")).want("v", singleflight.Loaded)
		}
	})
}

// A load may take longer than the lease: that is renewed.
func TestLoadLongerThanItsLease(t *testing.T) {
	each(t, func(f *fixture) {
		g, _ := f.open(lease(3 * time.Second)) // a busy machine does not miss its renewals
		other, _ := f.open(lease(3 * time.Second))
		o := newOrigin(f)
		first := fetch(f, f.Context(), g, "k", o.load)
		l := o.next(f)
		waits := fetch(f, f.Context(), other, "k", o.load)
		time.Sleep(5 * time.Second)
		if l.over() {
			f.Fatalf("the load ended: %v", context.Cause(l.ctx))
		}
		l.returns("v")
		first.want("v", singleflight.Loaded)
		waits.want("v", singleflight.Shared)
		if n := o.loads.Load(); n != 1 {
			f.Errorf("%d loads", n)
		}
	})
}

// A TTL of less than a second is what it says.
func TestSubSecondTTL(t *testing.T) {
	each(t, func(f *fixture) {
		for _, ttl := range []time.Duration{time.Millisecond, 999 * time.Microsecond * 300} {
			g, _ := f.open(plain, func(c *singleflight.Config[string]) { c.TTL = ttl })
			key := ttl.String()
			fetch(f, f.Context(), g, key, gives("1")).got()
			s := inspect(f, g, key)
			if s.FreshFor > ttl+time.Millisecond || s.FreshFor+s.Age < ttl && s.FreshFor > 0 || s.KeptFor > ttl+1001*time.Millisecond {
				f.Errorf("a TTL of %v: %+v", ttl, s)
			}
			time.Sleep(ttl + time.Millisecond) // it counts in whole ms, rounded up
			if r := fetch(f, f.Context(), g, key, gives("2")).got(); r.Value != "2" {
				f.Errorf("a TTL of %v: %+v", ttl, r)
			}
		}
	})
}

// A load whose lease is gone publishes nothing, although the process that ran it
// has the lease again, for another load: attempts are told apart, not processes.
func TestOldLoadOfTheSameProcessIsRefused(t *testing.T) {
	each(t, func(f *fixture) {
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
		if s := inspect(f, g, "k"); s.Cached || !s.Loading {
			f.Errorf("after the old load: %+v", s)
		}
		l2.returns("new")
		second.want("new", singleflight.Loaded)
		fetch(f, f.Context(), g, "k", never(f)).want("new", singleflight.Cached)
		wire.Heal()
	})
}

// A load that fails has failed for all who waited: they don't try one after the
// other. A Redis that fails is no miss.
func TestFailureStartsNoStampede(t *testing.T) {
	each(t, func(f *fixture) {
		o := newOrigin(f)
		var all []*pending[string]
		for range 8 {
			g, _ := f.open()
			all = append(all, fetch(f, f.Context(), g, "k", o.load))
		}
		l := o.next(f)
		redistest.Eventually(f, "the others to wait", func() bool { return f.Queued("k") == 7 })
		l.fails(errors.New("boom"))
		for _, p := range all {
			redistest.WantText(f, p.failed(), "boom")
		}
		if n := o.loads.Load(); n != 1 {
			f.Errorf("%d loads", n)
		}
		g, wire := f.open()
		fetch(f, f.Context(), g, "k", gives("v")).got()
		wire.Cut()
		for _, key := range []string{"k", "another"} {
			_, err := g.Do(f.Context(), key, never(f))
			redistest.WantErr(f, err, leasehold.ErrUnavailable)
		}
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
		time.Sleep(10 * time.Minute)
		for _, p := range short {
			redistest.WantErr(f, p.failed(), context.DeadlineExceeded)
		}
		if n := o.loads.Load(); n != 1 {
			f.Fatalf("%d loads", n)
		}
		l.returns("v")
		for _, p := range all {
			if r := p.got(); r.Value != "v" {
				f.Errorf("%+v", r)
			}
		}
	})
}
