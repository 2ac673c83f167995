package guide

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/leaseholdtest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestReadersAndAWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caps := redistest.Must(semaphore.New(leaseholdtest.Client(t), semaphore.Config{Name: "docs", Limit: readers}))(t)
		defer caps.Close(t.Context())
		var reading, writing atomic.Int32
		var together atomic.Bool
		read := func(context.Context) error {
			if reading.Add(1) >= 2 {
				together.Store(true)
			}
			defer reading.Add(-1)
			redistest.Check(t, writing.Load() <= 0, "a reader reads beside a writer")
			time.Sleep(10 * time.Millisecond)
			return nil
		}
		write := func(context.Context) error {
			redistest.Check(t, writing.Add(1) <= 1 && reading.Load() <= 0, "a writer writes beside others")
			defer writing.Add(-1)
			time.Sleep(10 * time.Millisecond)
			return nil
		}
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				what, do := Read, read
				if i%10 == 9 {
					what, do = Write, write
				}
				for range 5 {
					redistest.NoError(t, what(t.Context(), caps, "doc", do))
				}
			})
		}
		all.Wait()
		redistest.Check(t, together.Load(), "no two readers read at once")
		// A reader cannot become a writer.
		err := Read(t.Context(), caps, "doc", func(ctx context.Context) error { return Write(ctx, caps, "doc", write) })
		redistest.Check(t, errors.Is(err, leasehold.ErrInvalid), "%v; want ErrInvalid", err)
	})
}

func TestServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := redistest.Must(mutex.New(leaseholdtest.Client(t), mutex.Config{Name: "serve"}))(t)
		defer locks.Close(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		led := 0
		err := Serve(ctx, locks, func(ctx context.Context, token uint64) error {
			led++
			<-ctx.Done()
			return ctx.Err()
		})
		redistest.Check(t, err == nil && led == 1, "it led %d times and ended with %v; want once, and nil", led, err)
		oops := errors.New("oops")
		if err := Serve(t.Context(), locks, func(context.Context, uint64) error { return oops }); !errors.Is(err, oops) {
			t.Errorf("%v; want the error of the work", err)
		}
	})
}
