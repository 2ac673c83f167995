package guide

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/leaseholdtest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// The three ways to go on while Redis is away for a minute.
func TestWhileRedisIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, ctx := leaseholdtest.Client(t), t.Context()
		caps := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "exports", Limit: 1}))(t)
		defer caps.Close(ctx)
		runs := 0
		work := func(ctx context.Context) error { runs++; return ctx.Err() }
		want := func(what string, err error, n int) {
			t.Helper()
			redistest.Check(t, err == nil && runs == n,
				"%s: %v, %d runs so far; want no error and %d", what, err, runs, n)
		}
		local := make(chan struct{}, 1)
		want("retry, Redis is there", runWhenPossible(ctx, caps, "acme", work), 1)
		want("skip, Redis is there", runIfPossible(ctx, caps, "acme", work), 2)
		want("without, Redis is there", runAnyway(ctx, caps, local, "acme", work), 3)

		end := leaseholdtest.Outage(rdb)
		want("skip", runIfPossible(ctx, caps, "acme", work), 3)
		want("without", runAnyway(ctx, caps, local, "acme", work), 4)
		began := time.Now()
		time.AfterFunc(time.Minute, end)
		want("retry", runWhenPossible(ctx, caps, "acme", work), 5)
		if waited := time.Since(began); waited < time.Minute || waited > 2*time.Minute {
			t.Errorf("waited %v for a Redis that was away for a minute", waited)
		}

		defer leaseholdtest.Outage(rdb)()
		short, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		if err := runWhenPossible(short, caps, "acme", work); !errors.Is(err, leasehold.ErrUnavailable) || runs != 5 {
			t.Errorf("%v, %d runs; want ErrUnavailable at the end of ctx", err, runs)
		}
	})
}
