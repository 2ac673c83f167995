package mutex

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
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
		redistest.CheckNow(f, once >= 0, "no unlock succeeded: %v", errs)
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
			redistest.CheckNow(f, errors.Is(err, want) && !errors.Is(err, leasehold.ErrLost), "Do returns %v, want %v", err, want)
			f.wantHeld("k", false)
		}
		func() {
			defer func() {
				redistest.Expect(f, recover(), "boom", "recovered %v")
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
