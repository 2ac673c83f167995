package guide

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/leaseholdtest"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestTransfersInBothDirections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accounts := redistest.Must(mutex.New(leaseholdtest.Client(t), mutex.Config{Name: "accounts"}))(t)
		defer accounts.Close(t.Context())
		balance := map[string]int{"alice": 50, "bob": 50} // the locks guard it
		var all sync.WaitGroup
		for i := range 20 {
			from, to := "alice", "bob"
			if i%2 == 0 {
				from, to = to, from
			}
			all.Go(func() {
				redistest.NoError(t, transfer(t.Context(), accounts, from, to, func(context.Context, uint64, uint64) error {
					balance[from]--
					time.Sleep(time.Millisecond)
					balance[to]++
					return nil
				}))
			})
		}
		all.Wait()
		redistest.Check(t, balance["alice"] == 50 && balance["bob"] == 50, "the balance is %v; want 50 each", balance)
	})
}
