package semaphore

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
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

// MaxWait bounds the wait of each call that waits: its end is busy, and neither an
// outage nor a ctx that ended. It leaves nothing behind.
func TestMaxWaitEndsTheWait(t *testing.T) {
	some(t, func(f *fixture) {
		const bound = 500 * time.Millisecond
		s, _ := f.open(func(c *semaphore.Config) { c.MaxWait = bound })
		holder := f.take(s, "k", 1)
		never := func(context.Context) error { f.Errorf("Do ran"); return nil }
		for name, wait := range map[string]func() error{
			"Acquire":  func() error { return redistest.ErrorOf(s.Acquire(f.Context(), "k")) },
			"AcquireN": func() error { return redistest.ErrorOf(s.AcquireN(f.Context(), "k", 1)) },
			"Do":       func() error { return s.Do(f.Context(), "k", never) },
		} {
			began := time.Now()
			err := harness.Begin(f, wait).Failed()
			redistest.Between(f, time.Since(began), bound, bound+redistest.Soon, name+" waited %v")
			busy := harness.Busy(f, err)
			redistest.Check(f, busy.InUse == 1 && busy.Limit == 1, "%s: %v; want 1 of 1", name, err)
			redistest.WantErr(f, err, leasehold.ErrBusy, redistest.Not(leasehold.ErrUnavailable, context.DeadlineExceeded, context.Canceled))
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
		s, _ := f.open(ttl(30 * time.Second))
		for _, most := range []time.Duration{time.Second, 2 * time.Second} {
			l := f.take(s, "k", 1)
			after := harness.Busy(f, redistest.ErrorOf(s.TryAcquire(f.Context(), "k"))).RetryAfter
			redistest.Check(f, after > 0 && after <= most, "RetryAfter is %v; want at most %v", after, most)
			release(f, l)
			for range 8 { // jobs of 20 ms
				l := f.take(s, "k", 1)
				time.Sleep(20 * time.Millisecond)
				release(f, l)
			}
		}
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
		answer := wire.StallReplies("enter")
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
		failed := make(chan struct{})
		once := sync.OnceFunc(func() { close(failed) })
		wire.Fail(func(name string) error {
			if name == "ask" {
				once()
				return harness.ErrCut
			}
			return nil
		})
		<-failed
		wire.Heal()
		asked := wire.Sent("ask")
		second := f.start(s, "k", 1)
		time.Sleep(500 * time.Millisecond)
		redistest.Check(f, wire.Sent("ask") > asked, "nobody asked again within 500 ms")
		release(f, l)
		release(f, first.Got())
		release(f, second.Got())
	})
}

// Newcomers that queue all the time put no sign of life of the others off.
func TestNewcomersPutNoSignOfLifeOff(t *testing.T) {
	bubble(t, func(f *fixture) {
		holder, _ := f.open()
		s, wire := f.open()
		l := f.take(holder, "k", 1)
		first := f.start(s, "k", 1)
		for range 12 {
			ctx, leave := context.WithTimeout(f.Context(), 500*time.Millisecond)
			_, err := s.Acquire(ctx, "k")
			leave()
			redistest.WantErr(f, err, leasehold.ErrBusy)
		}
		redistest.Check(f, wire.Sent("ask") >= 4, "%d signs of life in 6 s", wire.Sent("ask"))
		release(f, l)
		release(f, first.Got())
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
		wire.Stall("ask")
		time.Sleep(1600 * time.Millisecond) // a sign of life is under way
		ran := wire.Sent("ask")
		wire.Unstall()
		synctest.Wait() // until it is answered
		redistest.Require(f, wire.Sent("ask")-ran, 1, "%d signs of life were under way")
		release(f, l)
		got := w.Got()
		redistest.AtLeast(f, time.Until(got.Deadline()), 1900*time.Millisecond, "the lease was held for %v more when it was granted for 2 s")
		release(f, got)
	})
}

func TestCloseGivesBackEverythingAndWakesWaiters(t *testing.T) {
	each(t, func(f *fixture) {
		s, wire := f.open(limit(3))
		other, _ := f.open(limit(3))
		mine, theirs := f.take(s, "mine", 3), f.take(other, "theirs", 3)
		w1, w2 := f.wait(f.Context(), s, "theirs", 2), f.wait(f.Context(), s, "mine", 1)
		harness.Close(f, s)
		for _, w := range []*waiting{w1, w2} {
			w.Within(200*time.Millisecond, "the end of a waiter, after Close") // its goroutine may be about to say so
			redistest.WantErr(f, w.Failed(), leasehold.ErrClosed, redistest.Not(leasehold.ErrBusy, leasehold.ErrUnavailable))
		}
		f.WantHeld("mine", 0)
		f.WantHeld("theirs", 3)
		redistest.Require(f, f.Queued("mine")+f.Queued("theirs"), 0, "%d waiters are left")
		redistest.WantErr(f, context.Cause(mine.Context()), leasehold.ErrClosed)
		redistest.WantErr(f, mine.Release(), leasehold.ErrReleased)
		redistest.WantErr(f, mine.Extend(f.Context(), time.Minute), leasehold.ErrReleased)
		sent := wire.Sent()
		redistest.WantErr(f, redistest.ErrorOf(s.Acquire(f.Context(), "k")), leasehold.ErrClosed)
		redistest.WantErr(f, redistest.ErrorOf(s.TryAcquireN(f.Context(), "k", 2)), leasehold.ErrClosed)
		redistest.WantErr(f, s.Do(f.Context(), "k", nil), leasehold.ErrClosed)
		redistest.WantErr(f, redistest.ErrorOf(s.Inspect(f.Context(), "k")), leasehold.ErrClosed)
		harness.Close(f, s)
		redistest.Require(f, wire.Sent()-sent, 0, "%d commands were sent after Close")
		release(f, theirs)
	})
}

// Close begins as soon as a grant is there, before the call returns it.
func TestAcquireDoesNotReturnALeaseThatCloseGivesBack(t *testing.T) {
	bubble(t, func(f *fixture) {
		var s *semaphore.Semaphore
		s, _ = f.open(observer(harness.ObserverFunc(func(e leasehold.Event) {
			if e.Kind == leasehold.EventAcquired {
				_ = s.Close(harness.Ended(f.Context())) // it begins, and does not wait
			}
		})))
		redistest.WantErr(f, redistest.ErrorOf(s.Acquire(f.Context(), "k")), leasehold.ErrClosed)
		harness.Close(f, s)
		f.WantHeld("k", 0)
	})
}

// An idle handle has no goroutines, no subscription and no keys, without Close:
// the bubble does not end while a goroutine is left.
func TestIdleHandleNeedsNoClose(t *testing.T) {
	bubble(t, func(f *fixture) {
		w := &harness.Wire{}
		s := redistest.Must(semaphore.New(f.Connect(w), semaphore.Config{Name: f.Family, Prefix: f.Family, Limit: 1}))(f)
		l := f.take(s, "k", 1)
		waiter := f.start(s, "k", 1)
		redistest.Eventually(f, "the subscription", func() bool { return len(f.Subscribed(f.Family)) == 1 })
		release(f, l)
		release(f, waiter.Got())
		time.Sleep(5 * time.Second)
		redistest.Require(f, len(f.Subscribed(f.Family)), 0, "%d subscriptions are left")
		left := f.Keys()
		redistest.CheckNow(f, len(left) == 0, "keys are left: %q", left)
		sent := w.Sent()
		time.Sleep(time.Hour)
		redistest.Require(f, w.Sent()-sent, 0, "an idle handle sent %d commands")
	})
}

func TestReleaseIsNilOnce(t *testing.T) {
	each(t, func(f *fixture) {
		s, _ := f.open(limit(2))
		l := f.take(s, "k", 2)
		errs := make([]error, 10)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = l.Release() })
		}
		wg.Wait()
		once := slices.Index(errs, nil)
		redistest.CheckNow(f, once >= 0, "no release succeeded: %v", errs)
		for _, err := range slices.Delete(errs, once, once+1) {
			redistest.WantErr(f, err, leasehold.ErrReleased, redistest.Not(leasehold.ErrLost, leasehold.ErrClosed))
			redistest.WantText(f, err, "leasehold: semaphore: release "+f.Family+"/k: ")
		}
		f.WantHeld("k", 0)
	})
}

func TestReleaseOfWhatIsGoneIsErrLost(t *testing.T) {
	each(t, func(f *fixture) {
		s, _ := f.open(limit(2))
		for _, n := range []int{1, 2} {
			l := f.take(s, "k", n)
			f.RDB.Del(f.Context(), f.Part("k", "holders"))
			redistest.WantErr(f, l.Release(), leasehold.ErrLost, redistest.Not(leasehold.ErrReleased, leasehold.ErrUnavailable))
			redistest.WantErr(f, l.Release(), leasehold.ErrReleased)
		}
	})
}

// A release takes no ctx, so it has to end by itself where nothing is answered and the client waits for ever.
func TestReleaseBoundsItself(t *testing.T) {
	bubble(t, func(f *fixture) {
		opt, wire := *f.RDB.(*redis.Client).Options(), &harness.Wire{}
		opt.ReadTimeout = -1
		rdb := redis.NewClient(&opt)
		f.Cleanup(func() { _ = rdb.Close() })
		l := f.take(f.openOn(rdb, wire, ttl(time.Hour)), "k", 1)
		wire.Stall()
		began := time.Now()
		redistest.WantErr(f, l.Release(), leasehold.ErrUnavailable, redistest.Not(leasehold.ErrLost))
		redistest.AtMost(f, time.Since(began), 8*time.Second, "it took %v")
	})
}

type ctxKey struct{}

// One call grants to 64 waiters. What a new limit has room for beyond that is granted at once too, and not at the
// waiters' next signs of life.
func TestRaisedLimitReachesAllWaiters(t *testing.T) {
	bubble(t, func(f *fixture) {
		s, _ := f.open()
		f.take(s, "k", 1)
		var waiters []*waiting
		for range 150 {
			waiters = append(waiters, f.wait(f.Context(), s, "k", 1))
		}
		began := time.Now()
		redistest.WantErr(f, s.SetLimit(f.Context(), "k", 1+len(waiters)))
		for _, w := range waiters {
			w.Got()
		}
		redistest.AtMost(f, time.Since(began), time.Millisecond, "the last of them got its permit after %v")
	})
}

// A grant comes after its term is over. The waiter does not get it: it is given back, and the waiter asks anew.
func TestGrantThatComesTooLateIsAskedForAnew(t *testing.T) {
	bubble(t, func(f *fixture) {
		s, wire := f.open(ttl(time.Second))
		release(f, f.take(s, "k", 1)) // the server has told its time
		tell := wire.StallReplies("enter")
		waiter := f.start(s, "k", 1)
		time.Sleep(1100 * time.Millisecond)
		tell()
		l := waiter.Got()
		redistest.Check(f, l.Context().Err() == nil && time.Until(l.Deadline()) > 0, "a lease until %v", l.Deadline())
		f.WantHeld("k", 1)
		release(f, l)
		f.WantHeld("k", 0)
	})
}
