package semaphore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

var errWork = errors.New("work failed")

// Do and TryDo run fn under a permit, return what fn did, and join the loss to it. Without a permit fn does not run.
func TestDo(t *testing.T) {
	some(t, func(f *fixture) {
		s, wire := f.open()
		never := func(context.Context) error { f.Error("fn ran"); return nil }
		parent := context.WithValue(f.Context(), ctxKey{}, "v")
		for op, do := range map[string]func(context.Context, string, func(context.Context) error) error{"do": s.Do, "try do": s.TryDo} {
			for _, want := range []error{nil, errWork} {
				var inside context.Context
				err := do(parent, "k", func(ctx context.Context) error {
					inside = ctx
					f.WantHeld("k", 1)
					redistest.Check(f, ctx.Err() == nil && ctx.Value(ctxKey{}) == "v", "fn runs under %v", ctx)
					redistest.WantErr(f, s.TryDo(ctx, "k", never), leasehold.ErrBusy)
					return want
				})
				redistest.CheckNow(f, errors.Is(err, want) && (want != nil || err == nil), "%s returns %v, want %v", op, err, want)
				redistest.WantNot(f, err, leasehold.ErrLost, leasehold.ErrReleased)
				redistest.WantErr(f, context.Cause(inside), leasehold.ErrReleased)
				f.WantHeld("k", 0)
			}
			redistest.WantText(f, do(f.Context(), "", never), "leasehold: semaphore: "+op+" ", "key is empty")
		}
		l := f.take(s, "k", 1)
		ctx := f.Within(50 * time.Millisecond)
		redistest.WantErr(f, s.Do(ctx, "k", never), context.DeadlineExceeded, redistest.Says("leasehold: semaphore: do "+f.Family+"/k: "))
		release(f, l)
		// Redis cannot confirm the release, but the work was done under the lease: that is no failure of it.
		err := s.Do(f.Context(), "k", func(context.Context) error { wire.Cut(); return nil })
		wire.Heal()
		redistest.WantNot(f, err, leasehold.ErrLost)
		redistest.Eventually(f, "the permit to be given back", func() bool { return len(f.Held("k")) == 0 })
		short, wire := f.open(ttl(400 * time.Millisecond))
		for _, want := range []error{nil, errWork} {
			err := short.Do(f.Context(), "short", func(ctx context.Context) error {
				wire.Cut()
				redistest.Get(f, "the loss", ctx.Done())
				return want
			})
			wire.Heal()
			redistest.WantErr(f, err, leasehold.ErrLost, redistest.Says(f.Family+"/short"))
			redistest.Check(f, errors.Is(err, want) || want == nil, "%v; want %v, too", err, want)
		}
	})
}

func TestDoReleasesOnPanicAndGoexit(t *testing.T) {
	some(t, func(f *fixture) {
		s, _ := f.open()
		func() {
			defer func() { redistest.Expect(f, recover(), "boom", "recovered %v") }()
			_ = s.Do(f.Context(), "k", func(context.Context) error { panic("boom") })
		}()
		f.WantHeld("k", 0)
		exits := harness.Begin(f, func() error {
			return s.Do(f.Context(), "k", func(context.Context) error { runtime.Goexit(); return nil })
		})
		redistest.WantErr(f, exits.Failed(), harness.ErrExited)
		f.WantHeld("k", 0)
	})
}

// A caller that holds permits may take more of them, but not more than the limit in force. Of a family with a total it
// may take those of other keys, but not more than the total in force.
func TestPermitsTakenTwice(t *testing.T) {
	some(t, func(f *fixture) {
		for name, mod := range map[string]func(*semaphore.Config){"limit": localFor(0), "limit, in turns": localFor(20 * time.Millisecond), "total": total(3)} {
			s, _ := f.open(limit(3), mod)
			keys, set := []string{"k", "k"}, func(n int) error { return s.SetLimit(f.Context(), "k", n) }
			if name == "total" {
				keys, set = []string{"k", "other", "third"}, func(n int) error { return s.SetTotal(f.Context(), n) }
			}
			ctx := f.Within(20 * time.Second)
			err := s.DoN(ctx, keys[0], 2, func(two context.Context) error {
				return s.Do(two, keys[1], func(three context.Context) error {
					never := func(context.Context) error { f.Errorf("%s: it ran", name); return nil }
					for _, key := range keys {
						err := s.Do(three, key, never)
						redistest.WantErr(f, err, leasehold.ErrInvalid, redistest.Says("that lease holds 3, and the "+name[:5]+" is 3"))
					}
					redistest.NoError(f, set(4))
					ran := false
					err := s.Do(three, keys[len(keys)-1], func(context.Context) error { ran = true; return nil })
					redistest.Check(f, ran && err == nil, "with a %s of 4: %v", name, err)
					return set(0)
				})
			})
			redistest.NoError(f, err)
			f.WantHeld("k", 0)
		}
	})
}

// A copy of a lease would give back what the lease itself may still use, and its Context would
// end instead of the lease's own: the panic names the misuse. go vet finds no such copies.
func TestUseOfACopyNamesTheMisuse(t *testing.T) {
	bubble(t, func(f *fixture) {
		s, _ := f.open(limit(1))
		l := f.take(s, "k", 1)
		synctest.Wait()
		copied := *l
		for name, lease := range map[string]*semaphore.Lease{"a copy": &copied, "the zero value": new(semaphore.Lease)} {
			for op, use := range map[string]func(){"release": func() { _ = lease.Release() }, "context": func() { lease.Context() }} {
				func() {
					defer func() {
						redistest.WantText(f, fmt.Errorf("%s: %v", name, recover()), "leasehold: "+op+" of a lease", "copy")
					}()
					use()
				}()
			}
		}
		f.WantHeld("k", 1)
		release(f, l)
		f.WantHeld("k", 0)
		redistest.WantErr(f, l.Release(), leasehold.ErrReleased)
	})
}

// The user closed the client first: Close cannot give back what is held, and does not say that it did. It is bound by its
// ctx, and the rest goes on by itself.
func TestCloseAfterTheClientSaysWhatItLeft(t *testing.T) {
	some(t, func(f *fixture) {
		rdb := f.Connect(&harness.Wire{})
		s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: f.Family, Limit: 1, TTL: 2 * time.Second}))(f)
		redistest.Must(s.Acquire(f.Context(), "k"))(f)
		redistest.WantErr(f, rdb.Close())
		ctx := f.Within(100 * time.Millisecond)
		began := time.Now()
		err := s.Close(ctx)
		redistest.AtMost(f, time.Since(began), 1500*time.Millisecond, "Close took %v")
		if len(f.Held("k")) > 0 {
			redistest.WantErr(f, err, context.DeadlineExceeded, leasehold.ErrUnavailable, redistest.Says("leasehold: semaphore: close "+f.Family))
		}
		redistest.WantErr(f, redistest.ErrorOf(s.Acquire(f.Context(), "k")), leasehold.ErrClosed)
		// With time it ends with the lease's term.
		redistest.Expect(f, s.Close(f.Context()), nil, "the second Close: %v")
		redistest.Eventually(f, "the end of the lease", func() bool { return len(f.Held("k")) == 0 })
	})
}

// TestDo has the Context of the acquiring ctx, and its end by a release and by a loss.
func TestContextIsTheAcquiringOneAndSaysWhyItEnded(t *testing.T) {
	each(t, func(f *fixture) {
		s, wire := f.open(limit(9), ttl(800*time.Millisecond))
		steady, _ := f.open(limit(9))
		cause := func(l *semaphore.Lease) error {
			f.Helper()
			redistest.Get(f, "the Context to end", l.Context().Done())
			return context.Cause(l.Context())
		}
		l := f.take(steady, "k", 1) // its Context is asked for after its end only
		release(f, l)
		redistest.WantErr(f, cause(l), leasehold.ErrReleased)

		ctx, cancel := context.WithCancelCause(f.Context())
		l = redistest.Must(steady.Acquire(ctx, "k"))(f)
		cancel(errWork)
		redistest.WantErr(f, cause(l), errWork)
		release(f, l)
		redistest.WantErr(f, cause(l), errWork)

		l, closed := f.take(s, "k", 1), f.take(steady, "k", 1)
		wire.Cut()
		redistest.WantErr(f, cause(l), leasehold.ErrLost, redistest.Not(leasehold.ErrReleased, leasehold.ErrMaxHold, leasehold.ErrRevoked), redistest.Says(f.Family+"/k"))
		wire.Heal()
		redistest.WantErr(f, l.Release(), leasehold.ErrLost)
		harness.Close(f, steady)
		redistest.WantErr(f, cause(closed), leasehold.ErrClosed, redistest.Not(leasehold.ErrLost))
		redistest.WantErr(f, closed.Release(), leasehold.ErrReleased, redistest.Not(leasehold.ErrLost))
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

// late is an Observer that takes some time.
type late struct{ harness.Told }

func (l *late) Observe(e leasehold.Event) {
	time.Sleep(10 * time.Millisecond)
	l.Told.Observe(e)
}

// The Observer knows of a renewal by Extend once that has returned, as of any other call.
func TestExtendReturnsOnceTheObserverKnows(t *testing.T) {
	bubble(t, func(f *fixture) {
		for _, local := range []time.Duration{0, time.Second} {
			told := new(late)
			s, _ := f.open(observer(told), func(c *semaphore.Config) { c.LocalFor = local })
			l := redistest.Must(s.Acquire(f.Context(), "k"))(f)
			redistest.NoError(f, l.Extend(f.Context(), time.Minute))
			redistest.Expect(f, told.Count(leasehold.EventRenewed, leasehold.OutcomeOK), 1, "the Observer knows of %d renewals")
			f.RDB.Del(f.Context(), f.Part("k", "holders"))
			redistest.WantErr(f, l.Extend(f.Context(), time.Minute), leasehold.ErrLost)
			redistest.Expect(f, told.Count(leasehold.EventLeaseEnded, leasehold.OutcomeLost), 1, "the Observer knows of %d lost leases")
			redistest.WantErr(f, l.Release(), leasehold.ErrLost)
		}
	})
}

// A ctx whose methods panic, or that does not say why, as it ends ends the Context, and no process.
func TestCtxThatBreaksAsItEnds(t *testing.T) {
	bubble(t, func(f *fixture) {
		for name, err := range map[string]func() error{
			"Err panics":   func() error { panic("ctx") },
			"Err is nil":   func() error { return nil },
			"Value panics": func() error { return context.Canceled },
		} {
			for _, turns := range []time.Duration{0, 20 * time.Millisecond} {
				s, _ := f.open(localFor(turns))
				ctx := harness.EndedBadly{Context: f.Context(), Ended: make(chan struct{}), How: err}
				held := redistest.Must(s.Acquire(harness.BrokenCtx{Context: ctx, Before: func(method string) {
					if name == "Value panics" && method == "Value" && ctx.Err() != nil {
						panic("ctx")
					}
				}}, "k"))(f)
				inside := held.Context()
				close(ctx.Ended)
				redistest.Get(f, name+": the end of the Context", inside.Done())
				release(f, held)
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
