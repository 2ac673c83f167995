package semaphore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// The waiter that is refused leaves its place to another process.
func TestShutdownLetsHoldersFinish(t *testing.T) {
	for name, total := range map[string]int{"": 0, "Total": 10} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
				family := func(c *semaphore.Config) { c.Limit, c.Total, c.TTL = 3, total, time.Second }
				s, _ := f.open(family)
				other, _ := f.open(family)
				one, two := f.take(s, "k", 1), f.take(s, "k", 1)
				mine := harness.Start(f.T, func() (*semaphore.Lease, error) { return s.AcquireN(f.Context(), "k", 3) })
				time.Sleep(time.Second)
				synctest.Wait()
				done := make(chan error, 1)
				go func() { done <- s.Shutdown(f.Context()) }()
				redistest.Get(f, "the waiter's end", mine.Done)
				redistest.WantErr(f, mine.Failed(), leasehold.ErrClosed)
				_, err := s.Acquire(f.Context(), "new")
				redistest.WantErr(f, err, leasehold.ErrClosed)
				third, err := other.Acquire(f.Context(), "k")
				if err != nil {
					f.Fatal(err)
				}
				for _, held := range []*semaphore.Lease{one, two} {
					time.Sleep(5 * time.Second) // longer than the TTL: the lease is renewed
					select {
					case err := <-done:
						f.Fatalf("Shutdown returned %v beside a holder", err)
					default:
					}
					if err := held.Release(); err != nil {
						f.Errorf("release during Shutdown: %v (%v)", err, context.Cause(held.Context()))
					}
				}
				if err := redistest.Get(f, "Shutdown", done); err != nil {
					f.Error(err)
				}
				if err := third.Release(); err != nil {
					f.Error(err)
				}
			})
		})
	}
}

func TestTryDoDoesNotWait(t *testing.T) {
	each(t, func(f *fixture) {
		s, _ := f.open(limit(1))
		err := s.TryDo(f.Context(), "k", func(ctx context.Context) error {
			f.WantHeld("k", 1)
			redistest.WantErr(f, s.TryDo(ctx, "k", func(context.Context) error { f.Error("it ran"); return nil }), leasehold.ErrBusy)
			return errWork
		})
		redistest.WantErr(f, err, errWork)
		redistest.WantNot(f, err, leasehold.ErrLost)
		f.WantHeld("k", 0)
	})
}
