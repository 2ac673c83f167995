package gocronlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/integrations/gocronlock"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A short job runs on one host per tick, if the lock is held for longer than the clocks differ.
func TestMinHold(t *testing.T) {
	const period = time.Second
	rdb, family := redistest.Shared(t, redistest.Newest(t)).Client(), redistest.Name(t)
	all := newTicks(4)
	slot := gocronlock.Every(period)
	for _, shift := range []time.Duration{0, 200 * time.Millisecond, -150 * time.Millisecond} {
		clock := newClock(shift)
		l := redistest.Must(gocronlock.Locker(newMutex(t, rdb, family), gocronlock.Config{MinHold: 600 * time.Millisecond}))(t)
		startJob(t, clock, period, gocron.NewTask(func() { all.add(slot(clock.Now())) }),
			gocron.WithName("job"), gocron.WithDistributedJobLocker(l))
	}
	all.check(t, period)
}

// A locker that waited would run the tick again when the other run has ended.
func TestLockerDoesNotWait(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		rdb, family := target.Client(t), redistest.Name(t)
		lockers := make([]gocron.Locker, 2)
		for i := range lockers {
			lockers[i] = redistest.Must(gocronlock.Locker(newMutex(t, rdb, family), gocronlock.Config{MinHold: time.Millisecond}))(t)
		}
		ctx, cancel := context.WithTimeout(t.Context(), redistest.Soon)
		defer cancel()
		held, err := lockers[0].Lock(ctx, "job")
		redistest.WantErr(t, err)
		_, err = lockers[1].Lock(ctx, "job")
		redistest.WantErr(t, err, leasehold.ErrBusy)
		redistest.WantNot(t, err, context.DeadlineExceeded)
		redistest.NoError(t, held.Unlock(ctx))
		redistest.Eventually(t, "the lock is free", func() bool {
			held, err := lockers[1].Lock(ctx, "job")
			if err == nil {
				_ = held.Unlock(ctx)
			}
			return err == nil
		})
	})
}

// Close of the mutex gives the lock back, also before MinHold is over, as the documentation says.
func TestCloseEndsMinHold(t *testing.T) {
	rdb, family := redistest.MiniClient(t), redistest.Name(t)
	m, other := newMutex(t, rdb, family), newMutex(t, rdb, family)
	l := redistest.Must(gocronlock.Locker(m, gocronlock.Config{MinHold: time.Hour}))(t)
	redistest.NoError(t, redistest.Must(l.Lock(t.Context(), "job"))(t).Unlock(t.Context()))
	redistest.WantErr(t, redistest.ErrorOf(other.TryLock(t.Context(), "job")), leasehold.ErrBusy)
	redistest.NoError(t, m.Close(t.Context()))
	redistest.NoError(t, redistest.Must(other.TryLock(t.Context(), "job"))(t).Unlock())
}

func work() {}

// gocron names a job without a name after its function, and so two jobs alike.
func TestUnnamedJobIsRefused(t *testing.T) {
	l := redistest.Must(gocronlock.Locker(newMutex(t, redistest.MiniClient(t), redistest.Name(t)), gocronlock.Config{MinHold: time.Millisecond}))(t)
	for _, fn := range []func(){work, func() {}, (&sync.Mutex{}).Lock} {
		errs := make(chan error, 10)
		startJob(t, newClock(0), 20*time.Millisecond, gocron.NewTask(fn), gocron.WithDistributedJobLocker(l), gocron.WithLimitedRuns(1),
			gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { errs <- err })))
		redistest.WantErr(t, redistest.Get(t, "the refusal", errs), leasehold.ErrInvalid)
	}
}
