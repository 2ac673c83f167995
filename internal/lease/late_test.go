package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A waiter whose ctx or MaxWait ends while it is granted the lock is told that the lock was busy: Redis answered.
func TestWaitThatEndsAtTheGrantWasBusy(t *testing.T) {
	for name, maxWait := range map[string]time.Duration{"ctx": 0, "MaxWait": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, client := redistest.Bubble(t)
				cfg := lockConfig(time.Minute)
				cfg.MaxWait = maxWait
				m := redistest.Must(lease.New(client(), cfg))(t)
				defer func() { _ = m.Close(context.Background()) }()
				late := 0
				for range 30 { // the waiter sees the grant or the end, each time by chance
					held := mustTake(t, m, "k")
					ctx, cancel := context.WithCancel(t.Context())
					l := new(lease.Lease)
					_, err := m.Acquire(ctx, lease.Attempt{Op: "lock", Key: "k", Permits: 1, Limit: 1, Wait: true, OnWait: func() {
						redistest.WantErr(t, held.Release("unlock"))
						time.Sleep(maxWait)
						synctest.Wait() // the grant has come
						if maxWait == 0 {
							cancel()
						}
					}}, l)
					cancel()
					if err == nil {
						redistest.WantErr(t, l.Release("unlock"))
						continue
					}
					late++
					var busy *leasehold.BusyError
					redistest.CheckNow(t, errors.As(err, &busy) && !errors.Is(err, leasehold.ErrUnavailable), "it is told: %v", err)
				}
				redistest.Check(t, late > 0, "no wait of 30 ended at the grant")
			})
		})
	}
}
