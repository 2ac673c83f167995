package guide

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/leaseholdtest"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestReportTakesTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, err := mutex.New(leaseholdtest.Client(t), mutex.Config{Name: "reports"})
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close(t.Context())

		err = locks.Do(t.Context(), "daily", func(ctx context.Context, token uint64) error {
			time.Sleep(10 * time.Minute) // no time passes outside the bubble
			return ctx.Err()             // the lock was renewed all the time
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestAnotherProcessTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		processes := leaseholdtest.Clients(t, 2) // two clients of one server
		first, err := mutex.New(processes[0], mutex.Config{Name: "reports", TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close(t.Context())
		second, err := mutex.New(processes[1], mutex.Config{Name: "reports", TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close(t.Context())

		lock, err := first.Lock(t.Context(), "daily")
		if err != nil {
			t.Fatal(err)
		}
		_ = processes[0].Close() // the first process crashes
		next, err := second.Lock(t.Context(), "daily")
		if err != nil {
			t.Fatal(err)
		}
		defer next.Unlock()
		if lock.Context().Err() == nil || next.Token() <= lock.Token() {
			t.Error("the first process still believes that it holds the lock")
		}
	})
}

func TestLockedOut(t *testing.T) {
	rdb := leaseholdtest.Client(t) // works without a bubble, too
	locks, err := mutex.New(rdb, mutex.Config{Name: "reports"})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(t.Context())

	lock, err := locks.Lock(t.Context(), "daily")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	if _, err := locks.TryLock(t.Context(), "daily"); !errors.Is(err, leasehold.ErrBusy) {
		t.Errorf("error %v; want ErrBusy", err)
	}

	end := leaseholdtest.Outage(rdb) // Redis is away from here on
	defer end()
	if _, err := locks.TryLock(t.Context(), "weekly"); !errors.Is(err, leasehold.ErrUnavailable) {
		t.Errorf("error %v; want ErrUnavailable", err)
	}
}
