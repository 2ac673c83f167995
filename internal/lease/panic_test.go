package lease_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// If a caller's ctx panics while its enter is under way, the grant that comes then is given back.
func TestCtxThatPanicsLeavesNoLease(t *testing.T) {
	inBubble(t, time.Minute, func(t *testing.T, rdb *redis.Client, m *lease.Manager) {
		record(rdb).spoilWith(func(redis.Cmder) error {
			time.Sleep(10 * time.Millisecond) // the caller waits meanwhile
			return nil
		})
		var dones atomic.Int32 // the first is that of the send
		ctx := harness.BrokenCtx{Context: t.Context(), Before: func(method string) {
			if method == "Done" && dones.Add(1) > 1 {
				panic(method)
			}
		}}
		ended := make(chan any, 1)
		go func() {
			defer func() { ended <- recover() }()
			_, _ = take(ctx, m, "k")
		}()
		redistest.Check(t, <-ended != nil, "the ctx did not panic")
		within, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l, err := take(within, m, "k")
		redistest.Require(t, err, nil, "the next caller: %v")
		redistest.NoError(t, l.Release("unlock"))
	})
}
