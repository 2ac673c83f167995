package semaphore

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestContextIsTheAcquiringOneAndSaysWhyItEnded(t *testing.T) {
	each(t, func(f *fixture) {
		s, wire := f.open(limit(9), ttl(800*time.Millisecond))
		steady, _ := f.open(limit(9))
		parent := context.WithValue(f.Context(), ctxKey{}, "v")
		acquire := func(s *semaphore.Semaphore, parent context.Context) *semaphore.Lease {
			f.Helper()
			l := redistest.Must(s.Acquire(parent, "k"))(f)
			ctx := l.Context()
			redistest.CheckNow(f, ctx.Value(ctxKey{}) == "v", "the Context does not come from the acquiring one")
			redistest.CheckNow(f, ctx.Err() == nil, "the Context has ended: %v", context.Cause(ctx))
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
		redistest.WantErr(f, l.Release(), leasehold.ErrReleased, redistest.Not(leasehold.ErrLost))
	})
}

// The longest duration is what people write for "no bound".
func TestLongestMaxHoldAndExtend(t *testing.T) {
	some(t, func(f *fixture) {
		s, _ := f.open(func(c *semaphore.Config) { c.MaxHold = math.MaxInt64 })
		l := f.take(s, "k", 1)
		redistest.AtLeast(f, time.Until(l.Deadline()), 20*time.Second, "the Deadline lies in %v")
		err := l.Extend(f.Context(), math.MaxInt64)
		redistest.Check(f, err != nil || time.Until(l.Deadline()) >= 24*time.Hour, "Extend returns nil, and the Deadline lies in %v", time.Until(l.Deadline()))
		release(f, l)
	})
}

// A ctx whose methods panic, or that does not say why, as it ends ends the Context, and no process.
func TestCtxThatBreaksAsItEnds(t *testing.T) {
	bubble(t, func(f *fixture) {
		var ends atomic.Bool
		for name, err := range map[string]func() error{
			"Err panics":   func() error { panic("ctx") },
			"Err is nil":   func() error { return nil },
			"Value panics": func() error { return context.Canceled },
		} {
			for _, mod := range []func(*semaphore.Config){func(*semaphore.Config) {}, localFor(20 * time.Millisecond)} {
				s, _ := f.open(mod)
				ended := make(chan struct{})
				held := redistest.Must(s.Acquire(harness.BrokenCtx{
					Context: harness.EndedBadly{Context: f.Context(), Ended: ended, How: err},
					Before: func(method string) {
						if name == "Value panics" && method == "Value" && ends.Load() {
							panic("ctx")
						}
					},
				}, "k"))(f)
				ctx := held.Context()
				ends.Store(true)
				close(ended)
				redistest.Get(f, name+": the end of the Context", ctx.Done())
				release(f, held)
				ends.Store(false)
			}
		}
		s, _ := f.open()
		for most := range int32(8) { // Done panics after so many calls
			var n atomic.Int32
			func() {
				defer func() { _ = recover() }()
				held := redistest.Must(s.Acquire(harness.BrokenCtx{
					Context: harness.EndedBadly{Context: f.Context(), Ended: make(chan struct{})},
					Before: func(method string) {
						if method == "Done" && n.Add(1) > most {
							panic("Done")
						}
					},
				}, "k"))(f)
				defer held.Release()
				_ = held.Context()
			}()
			synctest.Wait()
		}
	})
}
