package semaphore

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/luascripts"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestLimitForSetsTheLimitOfAKey(t *testing.T) {
	each(t, func(f *fixture) {
		s, wire := f.open(limit(2), func(c *semaphore.Config) {
			c.LimitFor = func(key string) int { return map[string]int{"five": 5, "bad": -1, "huge": 100_001}[key] }
		})
		release(f, f.take(s, "five", 5))
		release(f, f.take(s, "default", 2))
		redistest.WantText(f, redistest.ErrorOf(s.TryAcquireN(f.Context(), "default", 3)), "3", "limit is 2")
		before := wire.Sent()
		for key, value := range map[string]string{"bad": "-1", "huge": "100001"} {
			redistest.WantErr(f, redistest.ErrorOf(s.Acquire(f.Context(), key)), leasehold.ErrInvalid, redistest.Says("LimitFor", value, "100000", f.Family+"/"+key))
		}
		redistest.Require(f, wire.Sent()-before, 0, "%d commands were sent")
	})
}

// A limit that is set at run time goes before everybody's own, with and without a total. Lowering it evicts nobody, and ends
// a wait that it can never serve. 0 goes back to the configured one.
func TestStoredLimitGoesFirst(t *testing.T) {
	plainAndTotal(t, 10, func(f *fixture, settings ...func(*semaphore.Config)) {
		settings = append(settings, limit(5))
		s, _ := f.open(settings...)
		operator, _ := f.open(settings...)
		set := func(n int) {
			f.Helper()
			redistest.WantErr(f, operator.SetLimit(f.Context(), "k", n))
		}
		l := f.take(s, "k", 4)
		heavy := f.start(s, "k", 5)
		redistest.Eventually(f, "a waiter", func() bool { return f.inspect(s, "k").Waiting == 1 })
		light := f.start(s, "k", 1)
		redistest.Eventually(f, "two waiters", func() bool { return f.inspect(s, "k").Waiting == 2 })
		set(2)
		redistest.WantErr(f, heavy.Failed(), leasehold.ErrInvalid, redistest.Not(leasehold.ErrUnavailable, leasehold.ErrLost), redistest.Says("5", "limit is 2", f.Family+"/k"))
		redistest.WantErr(f, redistest.ErrorOf(s.TryAcquireN(f.Context(), "k", 3)), leasehold.ErrInvalid, redistest.Says("3", "limit is 2"))
		redistest.WantErr(f, redistest.ErrorOf(s.TryAcquire(f.Context(), "k")), leasehold.ErrBusy, redistest.Says("4 of 2"))
		redistest.Require(f, l.Extend(f.Context(), time.Minute), nil, "the holder was evicted: %v")
		release(f, l)
		release(f, light.Got())
		set(6)
		release(f, f.take(s, "k", 6))
		set(0)
		release(f, f.take(s, "k", 5))
		redistest.WantErr(f, redistest.ErrorOf(s.TryAcquireN(f.Context(), "k", 6)), leasehold.ErrInvalid, redistest.Says("limit is 5"))
	})
}

func maxWait(d time.Duration) func(*semaphore.Config) {
	return func(c *semaphore.Config) { c.MaxWait = d }
}

// MaxWait bounds the wait of each call that waits: its end is busy, and neither an
// outage nor a ctx that ended. It leaves nothing behind.
func TestMaxWaitEndsTheWait(t *testing.T) {
	some(t, func(f *fixture) {
		const bound = 500 * time.Millisecond
		s, _ := f.open(limit(1), maxWait(bound))
		holder := f.take(s, "k", 1)
		for name, wait := range map[string]func(ctx context.Context) error{
			"Acquire":  func(ctx context.Context) error { _, err := s.Acquire(ctx, "k"); return err },
			"AcquireN": func(ctx context.Context) error { _, err := s.AcquireN(ctx, "k", 1); return err },
			"Do": func(ctx context.Context) error {
				return s.Do(ctx, "k", func(context.Context) error { f.Errorf("Do ran"); return nil })
			},
		} {
			began := time.Now()
			err := wait(f.Context())
			took := time.Since(began)
			var busy *leasehold.BusyError
			redistest.Check(f, errors.As(err, &busy) && busy.InUse == 1 && busy.Limit == 1,
				"%s: %v; want a BusyError that says 1 of 1", name, err)
			redistest.WantErr(f, err, leasehold.ErrBusy, redistest.Not(leasehold.ErrUnavailable, context.DeadlineExceeded, context.Canceled))
			redistest.Check(f, took >= bound && took <= bound+redistest.Soon, "%s: waited %v; want %v", name, took, bound)
		}
		redistest.Eventually(f, "an empty queue", func() bool { return f.Queued("k") == 0 })
		release(f, holder)
		f.WantHeld("k", 0)
	})
}

// RetryAfter is made of what was observed: at most 1 s where nothing was, else of the time that others held. It is never
// beyond the first expiry (TestRetryAfterIsNotAfterTheFirstExpiry).
func TestRetryAfterFitsAHeader(t *testing.T) {
	bubble(t, func(f *fixture) {
		wantAtMost := func(s *semaphore.Semaphore, key string, most time.Duration) {
			f.Helper()
			l := f.take(s, key, 1)
			var busy *leasehold.BusyError
			redistest.CheckNow(f, errors.As(redistest.ErrorOf(s.TryAcquire(f.Context(), key)), &busy), "not busy")
			redistest.Check(f, busy.RetryAfter > 0 && busy.RetryAfter <= most, "RetryAfter is %v; want at most %v", busy.RetryAfter, most)
			release(f, l)
		}
		s, _ := f.open(limit(1), ttl(30*time.Second))
		wantAtMost(s, "k", time.Second)
		for range 8 { // jobs of 20 ms
			l := f.take(s, "k", 1)
			time.Sleep(20 * time.Millisecond)
			release(f, l)
		}
		wantAtMost(s, "k", 2*time.Second)
	})
}

// A waiter asks by itself now and then: it gets its permit although the message
// about it was lost, or was published before its subscription stood.
func TestMissedMessageIsAskedFor(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		holder, _ := f.open()
		late := redistest.NewProxy(f.T, f.Addr)
		p.DropMessages(true)
		subscribe := late.HoldRequest(redistest.Named("subscribe"), 1)
		defer subscribe.Release()
		deaf, unborn := f.take(holder, "deaf", 1), f.take(holder, "unborn", 1)
		w1 := f.wait(f.Context(), f.openVia(p), "deaf", 1)
		w2 := f.wait(f.Context(), f.openVia(late), "unborn", 1)
		subscribe.Wait()
		release(f, deaf)
		release(f, unborn)
		release(f, w1.Got())
		release(f, w2.Got())
	})
}

// Waiters of a handle learn of what was granted before its subscription stood
// when it stands, also those whose own answers come later than that.
func TestGrantBeforeTheSubscriptionStands(t *testing.T) {
	bubble(t, func(f *fixture) {
		holder, _ := f.open(limit(2))
		s, wire := f.open(limit(2))
		release(f, f.take(s, "warm", 1))
		a, b := f.take(holder, "k", 1), f.take(holder, "k", 1)
		subscribe := wire.HoldDials()
		w1 := f.wait(f.Context(), s, "k", 1)
		synctest.Wait() // until its answer has come
		answer := wire.StallReplies(call.ScriptName(luascripts.PermitsEnter()))
		w2 := f.wait(f.Context(), s, "k", 1)
		release(f, a)
		release(f, b)
		subscribe()
		l1 := w1.Got()
		answer()
		answered := time.Now()
		l2 := w2.Got()
		redistest.AtMost(f, time.Since(answered), 500*time.Millisecond, "the second waiter heard of its grant %v after its answer")
		release(f, l1)
		release(f, l2)
	})
}

// A sign of life that fails is repeated soon, also if a newcomer queues meanwhile.
func TestSignOfLifeIsRepeatedBesideANewcomer(t *testing.T) {
	bubble(t, func(f *fixture) {
		holder, _ := f.open()
		s, wire := f.open()
		l := f.take(holder, "k", 1)
		first := f.start(s, "k", 1)
		time.Sleep(time.Second) // it has asked once
		ask, failed := luascripts.PermitsAsk(), make(chan struct{})
		var once sync.Once
		wire.Fail(func(name string) error {
			if name == call.ScriptName(ask) {
				once.Do(func() { close(failed) })
				return harness.ErrCut
			}
			return nil
		})
		<-failed
		wire.Heal()
		asked := wire.Ran(ask)
		second := f.start(s, "k", 1)
		time.Sleep(500 * time.Millisecond)
		redistest.Check(f, wire.Ran(ask) > asked, "nobody asked again within 500 ms")
		release(f, l)
		release(f, first.Got())
		release(f, second.Got())
	})
}

// A call that took long tells little of the server's clock. A grant after it is not taken for as old as that.
func TestSlowCallShortensNoGrant(t *testing.T) {
	bubble(t, func(f *fixture) {
		holder, _ := f.open()
		s, wire := f.open()
		l := f.take(holder, "k", 1)
		w := f.start(s, "k", 1)
		time.Sleep(200 * time.Millisecond) // what it asks at first has its answer
		ask := luascripts.PermitsAsk()
		wire.Stall(call.ScriptName(ask))
		time.Sleep(1600 * time.Millisecond) // a sign of life is under way
		ran := wire.Ran(ask)
		wire.Unstall()
		synctest.Wait() // until it is answered
		redistest.Require(f, wire.Ran(ask)-ran, 1, "%d signs of life were under way")
		release(f, l)
		got := w.Got()
		redistest.AtLeast(f, time.Until(got.Deadline()), 1900*time.Millisecond, "the lease was held for %v more when it was granted for 2 s")
		release(f, got)
	})
}
