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

// A wait whose request Redis does not answer does not end as busy, whatever Redis answered
// before: to earlier requests, or to this one before it fell silent. With and without LocalFor.
func TestSilentRedisIsNoBusyTenant(t *testing.T) {
	type scene struct {
		f        *fixture
		server   *miniredis.Miniredis
		s, other *semaphore.Semaphore
		wire     *harness.Wire
	}
	acquire := func(c scene, ctx context.Context, n int) []error {
		var calls []*waiting
		for range n {
			calls = append(calls, harness.Start(c.f.T, func() (*semaphore.Lease, error) { return c.s.Acquire(ctx, "k") }))
		}
		var errs []error
		for _, call := range calls {
			<-call.Done
			errs = append(errs, call.Err)
		}
		return errs
	}
	const long = 6 * time.Second // but shorter than the time for which waiters put up with it
	scenes := map[string]struct {
		wait time.Duration
		run  func(c scene, ctx context.Context) []error
	}{
		"the first enter": {300 * time.Millisecond, func(c scene, ctx context.Context) []error {
			release(c.f, c.f.take(c.s, "other", 1)) // the server's clock is known
			c.wire.Stall()
			return acquire(c, ctx, 1)
		}},
		"an enter after an earlier request was answered": {300 * time.Millisecond, func(c scene, ctx context.Context) []error {
			release(c.f, c.f.take(c.s, "k", 1))
			held := c.f.take(c.other, "k", 1)
			_, err := c.s.TryAcquire(c.f.Context(), "k")
			redistest.WantErr(c.f, err, leasehold.ErrBusy)
			waiting := harness.StartQueued(c.f.Fixture, "k", func() (*semaphore.Lease, error) { return c.s.Acquire(c.f.Context(), "k") })
			release(c.f, held)
			release(c.f, waiting.Got())
			time.Sleep(time.Millisecond)
			c.wire.Stall()
			return acquire(c, ctx, 2)
		}},
		"queued": {long, func(c scene, ctx context.Context) []error {
			c.f.take(c.other, "k", 1)
			time.AfterFunc(100*time.Millisecond, func() { c.wire.Stall() })
			return acquire(c, ctx, 2)
		}},
		"queued, and connections fail": {long, func(c scene, ctx context.Context) []error {
			c.f.take(c.other, "k", 1)
			time.AfterFunc(100*time.Millisecond, func() { c.wire.Cut() })
			return acquire(c, ctx, 2)
		}},
		"queued, and queues again": {long, func(c scene, ctx context.Context) []error {
			c.f.take(c.other, "k", 1)
			time.AfterFunc(100*time.Millisecond, func() {
				c.wire.Stall("enter")
				c.server.FlushAll()
			})
			return acquire(c, ctx, 2)
		}},
	}
	for name, sc := range scenes {
		for mode, local := range map[string]time.Duration{"": 0, ", in turns": 50 * time.Millisecond} {
			for end, byCtx := range map[string]bool{"MaxWait": false, "ctx": true} {
				t.Run(name+mode+", "+end, func(t *testing.T) {
					bubble(t, func(f *fixture, server *miniredis.Miniredis) {
						ctx, cancel := f.Context(), context.CancelFunc(func() {})
						mod := []func(*semaphore.Config){localFor(local)}
						if byCtx {
							ctx, cancel = context.WithTimeout(ctx, sc.wait)
						} else {
							mod = append(mod, maxWait(sc.wait))
						}
						defer cancel()
						c := scene{f: f, server: server}
						c.s, c.wire = f.open(mod...)
						c.other, _ = f.open()
						errs := sc.run(c, ctx)
						for _, err := range errs {
							redistest.WantErr(f, err, leasehold.ErrUnavailable, redistest.Not(leasehold.ErrBusy))
						}
						c.wire.Heal()
						synctest.Wait()
					})
				})
			}
		}
	}
}
