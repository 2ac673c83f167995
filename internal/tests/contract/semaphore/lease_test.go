package semaphore

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/luascripts"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestContextIsTheAcquiringOneAndSaysWhyItEnded(t *testing.T) {
	each(t, func(f *fixture) {
		s, wire := f.open(limit(9), ttl(800*time.Millisecond))
		steady, _ := f.open(limit(9))
		parent := context.WithValue(f.Context(), ctxKey{}, "v")
		acquire := func(s *semaphore.Semaphore, parent context.Context) *semaphore.Lease {
			f.Helper()
			l, err := s.Acquire(parent, "k")
			if err != nil {
				f.Fatal(err)
			}
			ctx := l.Context()
			if ctx.Value(ctxKey{}) != "v" {
				f.Fatal("the Context does not come from the acquiring one")
			}
			if ctx.Err() != nil {
				f.Fatalf("the Context has ended: %v", context.Cause(ctx))
			}
			return l
		}
		cause := func(l *semaphore.Lease) error {
			f.Helper()
			redistest.Get(f, "the Context to end", l.Context().Done())
			return context.Cause(l.Context())
		}

		l := acquire(steady, parent)
		release(f, l)
		redistest.WantErr(f, cause(l), leasehold.ErrReleased)
		redistest.WantNot(f, cause(l), leasehold.ErrLost)

		l = f.take(steady, "k", 1) // its Context is asked for after its end only
		release(f, l)
		redistest.WantErr(f, cause(l), leasehold.ErrReleased)

		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(parent)
		l = acquire(steady, ctx)
		cancel(why)
		redistest.WantErr(f, cause(l), why)
		release(f, l)
		redistest.WantErr(f, cause(l), why)

		l = acquire(s, parent)
		wire.Cut()
		redistest.WantErr(f, cause(l), leasehold.ErrLost)
		redistest.WantNot(f, cause(l), leasehold.ErrReleased, leasehold.ErrMaxHold, leasehold.ErrRevoked)
		redistest.WantText(f, cause(l), f.Family+"/k")
		wire.Heal()
		redistest.WantErr(f, l.Release(), leasehold.ErrLost)

		l = acquire(steady, parent)
		harness.Close(f, steady)
		redistest.WantErr(f, cause(l), leasehold.ErrClosed)
		redistest.WantNot(f, cause(l), leasehold.ErrLost)
		err := l.Release()
		redistest.WantErr(f, err, leasehold.ErrReleased)
		redistest.WantNot(f, err, leasehold.ErrLost)
	})
}

// wantDeadline fails the test unless l's Deadline lies before the end of its
// permits by the margin, and is no more careful than that calls for.
func (f *fixture) wantDeadline(l *semaphore.Lease, key string, notBefore time.Time, term time.Duration) {
	f.Helper()
	deadline := l.Deadline() // first, since the other only grows
	margin := max(10*time.Millisecond, term/50)
	for _, ends := range f.Held(key) {
		if latest := time.UnixMilli(int64(ends)).Add(-margin); deadline.After(latest) {
			f.Fatalf("the Deadline of a term of %v lies %v before its end", term, time.UnixMilli(int64(ends)).Sub(deadline))
		}
	}
	if earliest := notBefore.Add(term - max(50*time.Millisecond, term/10)); deadline.Before(earliest) {
		f.Fatalf("the Deadline of a term of %v lies %v after its call", term, deadline.Sub(notBefore))
	}
}

func TestDeadlineLiesBeforeTheEndInRedis(t *testing.T) {
	each(t, func(f *fixture) {
		for _, term := range []time.Duration{time.Second, 3 * time.Second, 30 * time.Second, 10 * time.Hour} {
			s, _ := f.open(ttl(term))
			key := term.String()
			began := time.Now()
			l := f.take(s, key, 1)
			f.wantDeadline(l, key, began, term)
			began = time.Now()
			if err := l.Extend(f.Context(), 2*term); err != nil {
				f.Fatal(err)
			}
			f.wantDeadline(l, key, began, 2*term)
			if term < 3*time.Second { // too short for all that follows, on a busy machine
				release(f, l)
				continue
			}
			// A grant by message: its first term may be shorter.
			other, _ := f.open(ttl(term))
			w := f.wait(f.Context(), other, key, 1)
			began = time.Now()
			release(f, l)
			next := w.Got()
			f.wantDeadline(next, key, began, min(term, time.Second))
			own := f.wait(f.Context(), other, key, 1)
			began = time.Now()
			release(f, next)
			last := own.Got()
			f.wantDeadline(last, key, began, min(term, time.Second))
			release(f, last)
		}
	})
}

func TestRenewalsKeepTheLeaseAndMoveItsDeadline(t *testing.T) {
	some(t, func(f *fixture) {
		const term = 3 * time.Second
		s, wire := f.open(limit(3), ttl(term))
		l := f.take(s, "k", 3)
		first := l.Deadline()
		redistest.Eventually(f, "two renewals", func() bool { return wire.Ran(luascripts.PermitsRenew()) >= 2 })
		redistest.Eventually(f, "the Deadline to move", func() bool { return l.Deadline().After(first) })
		f.wantDeadline(l, "k", first.Add(-term), term)
		release(f, l) // nil: it was held all the time
	})
}

// A waiter's first term, while it might be dead, is short: it is confirmed to the
// full length right after.
func TestGrantByMessageIsConfirmedToTheFullTerm(t *testing.T) {
	some(t, func(f *fixture) {
		holder, _ := f.open()
		s, _ := f.open(ttl(time.Hour))
		l := f.take(holder, "k", 1)
		w := f.wait(f.Context(), s, "k", 1)
		release(f, l)
		got := w.Got()
		redistest.Eventually(f, "the full term", func() bool { return time.Until(got.Deadline()) > 50*time.Minute })
		release(f, got)
	})
}

func TestExtendNeverShortens(t *testing.T) {
	each(t, func(f *fixture) {
		s, wire := f.open(limit(2), ttl(1200*time.Millisecond))
		l := f.take(s, "k", 2)
		if err := l.Extend(f.Context(), 10*time.Minute); err != nil {
			f.Fatal(err)
		}
		far, deadline := f.Held("k"), l.Deadline()
		if time.Until(deadline) < 9*time.Minute {
			f.Fatalf("the Deadline lies in %v", time.Until(deadline))
		}
		for member, ends := range far {
			if ends < harness.Now()+9*60_000 {
				f.Fatalf("%s ends in %v ms", member, ends-harness.Now())
			}
		}
		renewals := wire.Ran(luascripts.PermitsRenew())
		if err := l.Extend(f.Context(), time.Second); err != nil {
			f.Fatal(err)
		}
		redistest.Eventually(f, "two renewals", func() bool { return wire.Ran(luascripts.PermitsRenew()) >= renewals+3 })
		for member, ends := range f.Held("k") {
			if ends < far[member] {
				f.Fatalf("%s was shortened by %v ms", member, far[member]-ends)
			}
		}
		if l.Deadline().Before(deadline) {
			f.Fatalf("the Deadline was pulled in by %v", deadline.Sub(l.Deadline()))
		}
		if left := f.RDB.PTTL(f.Context(), f.Part("k", "holders")).Val(); left < 9*time.Minute {
			f.Fatalf("the key expires in %v", left)
		}
		release(f, l)
	})
}

func TestExtendWithoutAnAnswer(t *testing.T) {
	some(t, func(f *fixture) {
		s, wire := f.open(limit(2))
		l := f.take(s, "k", 1)
		wire.Stall()
		ctx, cancel := context.WithTimeout(f.Context(), 300*time.Millisecond)
		defer cancel()
		err := l.Extend(ctx, time.Hour)
		redistest.WantErr(f, err, context.DeadlineExceeded, leasehold.ErrUnavailable)
		redistest.WantNot(f, err, leasehold.ErrLost)
		wire.Heal()
		wire.Cut()
		err = l.Extend(f.Context(), time.Hour)
		redistest.WantErr(f, err, leasehold.ErrUnavailable, harness.ErrCut)
		redistest.WantNot(f, err, leasehold.ErrLost)
		wire.Heal()
		if l.Context().Err() != nil {
			f.Fatal("the lease is lost")
		}
		release(f, l)
	})
}

// An Extend that did not extend must not say that it did.
func TestExtendWithACtxThatHasEnded(t *testing.T) {
	some(t, func(f *fixture) {
		s, _ := f.open()
		l := f.take(s, "k", 1)
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		for range 2000 {
			err := l.Extend(ctx, time.Hour)
			redistest.WantErr(f, err, context.Canceled)
			redistest.WantNot(f, err, leasehold.ErrUnavailable)
		}
		release(f, l)
	})
}

// The longest duration is what people write for "no bound".
func TestLongestMaxHold(t *testing.T) {
	some(t, func(f *fixture) {
		s, _ := f.open(func(c *semaphore.Config) { c.MaxHold = math.MaxInt64 })
		l := f.take(s, "k", 1)
		if left := time.Until(l.Deadline()); left < 20*time.Second {
			f.Fatalf("the Deadline lies in %v", left)
		}
		release(f, l)
	})
}

func TestLongestExtend(t *testing.T) {
	some(t, func(f *fixture) {
		s, _ := f.open()
		l := f.take(s, "k", 1)
		err := l.Extend(f.Context(), math.MaxInt64)
		if left := time.Until(l.Deadline()); err == nil && left < 24*time.Hour {
			f.Fatalf("it returns nil, and the Deadline lies in %v", left)
		}
		release(f, l)
	})
}

func TestMaxHoldFreesThePermitsAtOnce(t *testing.T) {
	each(t, func(f *fixture) {
		const most = 3 * time.Second
		s, _ := f.open(limit(2), func(c *semaphore.Config) { c.MaxHold = most })
		other, _ := f.open(limit(2))
		began := time.Now()
		l := f.take(s, "k", 2)
		w := f.wait(f.Context(), other, "k", 2)
		if err := l.Extend(f.Context(), time.Hour); err != nil {
			f.Fatal(err) // no longer than MaxHold all the same
		}
		redistest.Get(f, "the longest hold", l.Context().Done())
		if took := time.Since(began); took < most {
			f.Fatalf("it ended after %v", took)
		}
		cause := context.Cause(l.Context())
		redistest.WantErr(f, cause, leasehold.ErrMaxHold, leasehold.ErrLost)
		redistest.WantNot(f, cause, leasehold.ErrReleased, leasehold.ErrRevoked)
		next := w.Got()
		err := l.Release()
		redistest.WantErr(f, err, leasehold.ErrLost, leasehold.ErrMaxHold)
		f.WantHeld("k", 2)
		release(f, next)
	})
}

// MaxHold bounds the hold, not the lease: renewals go on until then.
func TestMaxHoldLongerThanTheTTL(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		s, _ := f.open(ttl(time.Second), func(c *semaphore.Config) { c.MaxHold = time.Minute })
		began := time.Now()
		l := f.take(s, "k", 1)
		<-l.Context().Done()
		if took := time.Since(began); took < 59*time.Second || took > 61*time.Second {
			f.Fatalf("it ended after %v: %v", took, context.Cause(l.Context()))
		}
		redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrMaxHold)
		redistest.Eventually(f, "the permit", func() bool { return len(f.Held("k")) == 0 })
	})
}

func TestIDAndKey(t *testing.T) {
	some(t, func(f *fixture) {
		s, _ := f.open(limit(50))
		seen := map[string]bool{}
		const key = "über {all}:%41"
		for range 50 {
			l := f.take(s, key, 1)
			if l.Key() != key {
				f.Fatalf("Key is %q", l.Key())
			}
			if l.ID() == "" || seen[l.ID()] {
				f.Fatalf("ID %q is not new", l.ID())
			}
			seen[l.ID()] = true
		}
	})
}
