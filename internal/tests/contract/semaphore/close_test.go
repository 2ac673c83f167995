package semaphore

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestCloseGivesBackEverythingAndWakesWaiters(t *testing.T) {
	each(t, func(f *fixture) {
		s, wire := f.open(limit(3))
		other, _ := f.open(limit(3))
		mine, theirs := f.take(s, "mine", 3), f.take(other, "theirs", 3)
		w1, w2 := f.wait(f.Context(), s, "theirs", 2), f.wait(f.Context(), s, "mine", 1)
		harness.Close(f, s)
		for _, w := range []*waiting{w1, w2} {
			select {
			case <-w.Done:
			case <-time.After(200 * time.Millisecond): // its goroutine may be about to say so
				f.Fatal("Close returned before a waiter did")
			}
			redistest.WantErr(f, w.Failed(), leasehold.ErrClosed)
			redistest.WantNot(f, w.Failed(), leasehold.ErrBusy, leasehold.ErrUnavailable)
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

// closer begins Close as soon as a grant is there, before the call returns it.
type closer struct{ s *semaphore.Semaphore }

func (c *closer) Observe(e leasehold.Event) {
	if e.Kind == leasehold.EventAcquired {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // Close begins, and does not wait
		_ = c.s.Close(ctx)
	}
}

func TestAcquireDoesNotReturnALeaseThatCloseGivesBack(t *testing.T) {
	bubble(t, func(f *fixture) {
		var c closer
		c.s, _ = f.open(func(cfg *semaphore.Config) { cfg.Observer = &c })
		redistest.WantErr(f, redistest.ErrorOf(c.s.Acquire(f.Context(), "k")), leasehold.ErrClosed)
		harness.Close(f, c.s)
		f.WantHeld("k", 0)
	})
}

// Close waits for Redis as long as its ctx says; the rest goes on by itself.
func TestCloseIsBoundByItsCtx(t *testing.T) {
	some(t, func(f *fixture) {
		s, wire := f.open(limit(2))
		f.take(s, "k", 2)
		wire.Stall()
		ctx, cancel := context.WithTimeout(f.Context(), 20*time.Millisecond)
		defer cancel()
		redistest.WantErr(f, s.Close(ctx), context.DeadlineExceeded, redistest.Says("leasehold: semaphore: close "+f.Family))
		wire.Heal()
		redistest.Eventually(f, "the permits to be given back", func() bool { return len(f.Held("k")) == 0 })
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
			redistest.WantErr(f, err, leasehold.ErrReleased)
			redistest.WantNot(f, err, leasehold.ErrLost, leasehold.ErrClosed)
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
