package mutex

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/luascripts"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestTryLockTellsHowBusy(t *testing.T) {
	each(t, func(f *fixture) {
		m, _ := f.open()
		l := f.take(m, "k")
		w := f.wait(f.Context(), m, "k")
		_, err := m.TryLock(f.Context(), "k")
		redistest.WantErr(f, err, leasehold.ErrBusy)
		redistest.WantNot(f, err, leasehold.ErrUnavailable, leasehold.ErrQueueFull)
		redistest.WantText(f, err, "leasehold: mutex: try lock "+f.Family+"/k: ")
		var busy *leasehold.BusyError
		if !errors.As(err, &busy) || busy.InUse != 1 || busy.Limit != 1 || busy.Waiting != 1 ||
			busy.RetryAfter <= 0 || busy.RetryAfter > 30*time.Second {
			f.Fatalf("busy is %+v", busy)
		}
		unlock(f, l)
		unlock(f, w.Got())
	})
}

func TestLockersAreServedInTheOrderOfArrivalAcrossHandles(t *testing.T) {
	each(t, func(f *fixture) {
		a, _ := f.open()
		b, _ := f.open()
		l := f.take(a, "k")
		var line []*waiting
		for range 3 {
			line = append(line, f.wait(f.Context(), a, "k"), f.wait(f.Context(), b, "k"))
		}
		for i, w := range line {
			unlock(f, l)
			l = w.Got()
			for _, later := range line[i+1:] {
				select {
				case <-later.Done:
					f.Fatalf("somebody came before waiter %d", i+1)
				default:
				}
			}
		}
		unlock(f, l)
	})
}

// The lock is not reentrant: a holder that asks again waits.
func TestLockIsNotReentrant(t *testing.T) {
	each(t, func(f *fixture) {
		m, _ := f.open()
		l := f.take(m, "k")
		ctx, cancel := context.WithCancel(f.Context())
		w := f.wait(ctx, m, "k")
		cancel()
		redistest.WantErr(f, w.Failed(), context.Canceled)
		unlock(f, l)
	})
}

func TestLockCtxEnds(t *testing.T) {
	each(t, func(f *fixture) {
		m, wire := f.open(func(c *mutex.Config) { c.Prefix = f.Family })
		l := f.take(m, "k")
		ctx, cancel := context.WithCancel(f.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := m.Lock(ctx, "k")
			ended <- err
		}()
		redistest.Eventually(f, "the handle to know", func() bool { return wire.Answered("ask") > 0 })
		cancel()
		err := redistest.Get(f, "the cancelled lock", ended)
		redistest.WantErr(f, err, context.Canceled, leasehold.ErrBusy)
		redistest.WantNot(f, err, leasehold.ErrUnavailable)

		wire.Stall()
		for _, lock := range []func(context.Context, string) (*mutex.Lock, error){m.Lock, m.TryLock} {
			ctx, cancel := context.WithTimeout(f.Context(), 300*time.Millisecond)
			_, err = lock(ctx, "other")
			cancel()
			redistest.WantErr(f, err, context.DeadlineExceeded, leasehold.ErrUnavailable)
			redistest.WantNot(f, err, leasehold.ErrBusy)
		}
		wire.Heal()
		unlock(f, l)
	})
}

func TestUnlockIsNilOnce(t *testing.T) {
	each(t, func(f *fixture) {
		m, _ := f.open()
		l := f.take(m, "k")
		errs := make([]error, 10)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = l.Unlock() })
		}
		wg.Wait()
		once := slices.Index(errs, nil)
		if once < 0 {
			f.Fatalf("no unlock succeeded: %v", errs)
		}
		for _, err := range slices.Delete(errs, once, once+1) {
			redistest.WantErr(f, err, leasehold.ErrReleased)
			redistest.WantNot(f, err, leasehold.ErrLost)
			redistest.WantText(f, err, "leasehold: mutex: unlock "+f.Family+"/k: ")
		}
		redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrReleased)
		redistest.WantErr(f, l.Extend(f.Context(), time.Minute), leasehold.ErrReleased)
		f.wantHeld("k", false)
	})
}

func TestUnlockOfWhatIsGoneIsErrLost(t *testing.T) {
	each(t, func(f *fixture) {
		m, _ := f.open()
		l := f.take(m, "k")
		f.RDB.Del(f.Context(), f.Part("k", "holders"))
		err := l.Unlock()
		redistest.WantErr(f, err, leasehold.ErrLost)
		redistest.WantNot(f, err, leasehold.ErrUnavailable)
	})
}

func TestUnlockWithoutAnAnswerIsErrUnavailable(t *testing.T) {
	each(t, func(f *fixture) {
		m, wire := f.open()
		l := f.take(m, "k")
		wire.Cut()
		err := l.Unlock()
		redistest.WantErr(f, err, leasehold.ErrUnavailable)
		redistest.WantNot(f, err, leasehold.ErrLost)
		wire.Heal()
		redistest.Eventually(f, "the lock to be given back", func() bool { return len(f.Held("k")) == 0 })
	})
}

func TestLockExtendAndDeadline(t *testing.T) {
	each(t, func(f *fixture) {
		m, wire := f.open(ttl(1200 * time.Millisecond))
		l := f.take(m, "k")
		within := func(term time.Duration) {
			f.Helper()
			deadline := l.Deadline()
			latest := time.UnixMilli(int64(f.Held("k")[firstOf(f.Held("k"))])).Add(-max(10*time.Millisecond, term/50))
			if deadline.After(latest) {
				f.Fatalf("the Deadline lies %v too late", deadline.Sub(latest))
			}
		}
		within(1200 * time.Millisecond)
		if err := l.Extend(f.Context(), 10*time.Minute); err != nil {
			f.Fatal(err)
		}
		within(10 * time.Minute)
		far := l.Deadline()
		if err := l.Extend(f.Context(), time.Second); err != nil {
			f.Fatal(err)
		}
		renewals := wire.Ran(luascripts.PermitsRenew())
		redistest.Eventually(f, "two renewals", func() bool { return wire.Ran(luascripts.PermitsRenew()) >= renewals+2 })
		if l.Deadline().Before(far) || time.Until(far) < 9*time.Minute {
			f.Fatalf("the Deadline was %v and is %v", far, l.Deadline())
		}
		within(10 * time.Minute)
		for range 1000 {
			ctx, cancel := context.WithCancel(f.Context())
			cancel()
			err := l.Extend(ctx, time.Hour)
			redistest.WantErr(f, err, context.Canceled)
			redistest.WantNot(f, err, leasehold.ErrUnavailable) // nothing was sent
		}
		redistest.WantText(f, l.Extend(f.Context(), time.Millisecond), "ttl is 1ms", "100ms", f.Family+"/k")
		if l.Key() != "k" || l.ID() == "" {
			f.Fatalf("Key is %q, ID %q", l.Key(), l.ID())
		}
		unlock(f, l)
	})
}

func TestLockMaxHold(t *testing.T) {
	each(t, func(f *fixture) {
		m, _ := f.open(func(c *mutex.Config) { c.MaxHold = time.Second })
		other, _ := f.open()
		l := f.take(m, "k")
		w := f.wait(f.Context(), other, "k")
		next := w.Got() // though the lease was one of 30 s
		redistest.Get(f, "the longest hold", l.Context().Done())
		redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrMaxHold, leasehold.ErrLost)
		redistest.WantErr(f, l.Unlock(), leasehold.ErrMaxHold, leasehold.ErrLost)
		f.wantHeld("k", true)
		if next.Token() <= l.Token() {
			f.Fatalf("token %d after %d", next.Token(), l.Token())
		}
		unlock(f, next)

		forever, _ := f.open(func(c *mutex.Config) { c.MaxHold = math.MaxInt64 })
		l = f.take(forever, "k")
		if left := time.Until(l.Deadline()); left < 20*time.Second {
			f.Fatalf("with the longest MaxHold the Deadline lies in %v", left)
		}
		unlock(f, l)
	})
}

func TestMutexDo(t *testing.T) {
	each(t, func(f *fixture) {
		m, wire := f.open(ttl(time.Second))
		work := errors.New("work failed")
		last := uint64(0)
		for _, want := range []error{nil, work} {
			err := m.Do(f.Context(), "k", func(ctx context.Context, token uint64) error {
				f.wantHeld("k", true)
				if token <= last || token != f.fence("k") || ctx.Err() != nil {
					f.Errorf("token %d after %d; last issued %d; ctx %v", token, last, f.fence("k"), ctx.Err())
				}
				last = token
				return want
			})
			if !errors.Is(err, want) || errors.Is(err, leasehold.ErrLost) {
				f.Fatalf("Do returns %v, want %v", err, want)
			}
			f.wantHeld("k", false)
		}
		func() {
			defer func() {
				if v := recover(); v != "boom" {
					f.Errorf("recovered %v", v)
				}
			}()
			_ = m.Do(f.Context(), "k", func(context.Context, uint64) error { panic("boom") })
		}()
		f.wantHeld("k", false)
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = m.Do(f.Context(), "k", func(context.Context, uint64) error {
				runtime.Goexit()
				return nil
			})
		})
		wg.Wait()
		f.wantHeld("k", false)
		err := m.Do(f.Context(), "k", func(ctx context.Context, _ uint64) error {
			wire.Cut()
			redistest.Get(f, "the loss", ctx.Done())
			return work
		})
		wire.Heal()
		redistest.WantErr(f, err, leasehold.ErrLost, work)
		err = m.Do(f.Context(), "", func(context.Context, uint64) error {
			f.Error("fn ran")
			return nil
		})
		redistest.WantText(f, err, "key is empty")
	})
}
