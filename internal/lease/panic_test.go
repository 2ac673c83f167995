package lease_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// panics is a ctx: its Done panics from the second call on. The first call is that of the send.
type panics struct {
	context.Context
	armed *atomic.Bool
}

func (c panics) Done() <-chan struct{} {
	if c.armed.Swap(true) {
		panic("Done")
	}
	return c.Context.Done()
}

// If a caller's ctx panics while its enter is under way, the grant that comes then is given back.
func TestCtxThatPanicsLeavesNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		rdb := client()
		warm(t, rdb)
		m := newLocks(t, rdb, time.Minute)
		r := record(rdb)
		r.spoilWith(func(redis.Cmder) error {
			r.spoilWith(nil)
			time.Sleep(10 * time.Millisecond) // the caller waits meanwhile
			return nil
		})
		ended := make(chan any, 1)
		go func() {
			defer func() { ended <- recover() }()
			_, _ = take(panics{t.Context(), new(atomic.Bool)}, m, "k")
		}()
		redistest.Check(t, <-ended != nil, "the ctx did not panic")
		within, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l, err := take(within, m, "k")
		redistest.Require(t, err, nil, "the next caller: %v")
		redistest.NoError(t, l.Release("unlock"))
	})
}
