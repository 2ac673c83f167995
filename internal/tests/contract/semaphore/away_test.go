package semaphore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// away is how long a call that does not wait takes at most while Redis is known to be away.
const away = 100 * time.Millisecond

// goAway makes Redis one that s knows not to answer.
func (f *fixture) goAway(s *semaphore.Semaphore, w *harness.Wire) {
	f.Helper()
	w.GoAway(func() {
		redistest.WantErr(f, redistest.ErrorOf(s.TryAcquire(f.Context(), "k")), leasehold.ErrUnavailable, harness.ErrRefused)
	})
}

// Calls that never wait fail quickly while Redis is known to be away, and succeed at once when it is back.
func TestRedisIsAway(t *testing.T) {
	for mode, local := range map[string]time.Duration{"": 0, "in turns": time.Second} {
		t.Run(mode, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				s, wire := f.open(localFor(local))
				release(f, f.take(s, "k", 1))
				f.goAway(s, wire)
				for i := range 5 {
					for name, call := range map[string]func() error{
						"TryAcquire": func() error { _, err := s.TryAcquire(f.Context(), "k"); return err },
						"Inspect":    func() error { _, err := s.Inspect(f.Context(), "k"); return err },
					} {
						began := time.Now()
						redistest.WantErr(f, call(), leasehold.ErrUnavailable, harness.ErrRefused)
						redistest.AtMost(f, time.Since(began), away, "%s no. %d took %v", name, i)
					}
				}
				ctx, cancel := context.WithTimeout(f.Context(), time.Millisecond)
				defer cancel()
				time.Sleep(time.Second)
				redistest.WantErr(f, redistest.ErrorOf(s.TryAcquire(ctx, "k")), context.DeadlineExceeded)
				wire.Heal()
				time.Sleep(time.Second)
				release(f, f.take(s, "k", 1))
			})
		})
	}
}

// A try that finds Redis away on the way tries no longer.
func TestTryEndsWhenRedisGoesAway(t *testing.T) {
	bubble(t, func(f *fixture) {
		s, wire := f.open()
		release(f, f.take(s, "k", 1))
		wire.Refuse()
		before := wire.Sent("enter")
		redistest.WantErr(f, redistest.ErrorOf(s.TryAcquire(f.Context(), "k")), leasehold.ErrUnavailable, harness.ErrRefused)
		redistest.Expect(f, wire.Sent("enter")-before, 0, "%d enters were let through")
	})
}

// Release does not hold up finished work while Redis is away. The permit is given back when
// Redis is back. With LocalFor that is so also where the process queues again for its callers.
func TestReleaseWhileRedisIsAway(t *testing.T) {
	for mode, local := range map[string]time.Duration{"": 0, "in turns": time.Millisecond} {
		t.Run(mode, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				s, wire := f.open(limit(10), localFor(local))
				var leases []*semaphore.Lease
				for range 10 {
					leases = append(leases, f.take(s, "k", 1))
				}
				f.goAway(s, wire)
				ctx, cancel := context.WithCancel(f.Context())
				var waiters []*waiting
				for range 10 {
					waiters = append(waiters, harness.Start(f.T, func() (*semaphore.Lease, error) { return s.Acquire(ctx, "k") }))
				}
				time.Sleep(10 * time.Millisecond) // LocalFor is over
				for i, l := range leases {
					began := time.Now()
					redistest.WantErr(f, l.Release(), leasehold.ErrUnavailable, harness.ErrRefused)
					redistest.AtMost(f, time.Since(began), away, "release %d took %v", i)
				}
				f.WantHeld("k", 10)
				cancel()
				for _, w := range waiters {
					redistest.WantErr(f, w.Failed(), context.Canceled)
				}
				wire.Heal()
				time.Sleep(2 * time.Second)
				synctest.Wait()
				f.WantHeld("k", 0)
			})
		})
	}
}

// A waiter keeps its turn through a short outage: it never asks whether Redis is away. Nor does a renewal.
func TestWaitsOutlastAnOutage(t *testing.T) {
	for mode, local := range map[string]time.Duration{"": 0, "in turns": time.Second} {
		t.Run(mode, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				s, wire := f.open(localFor(local), ttl(12*time.Second))
				other, _ := f.open()
				held, kept := f.take(other, "k", 1), f.take(s, "kept", 1)
				queued := f.wait(f.Context(), s, "k", 1)
				wire.Refuse()
				redistest.WantErr(f, redistest.ErrorOf(s.TryAcquire(f.Context(), "l")), leasehold.ErrUnavailable)
				begins := harness.Start(f.T, func() (*semaphore.Lease, error) { return s.Acquire(f.Context(), "l") })
				time.Sleep(2 * time.Second)
				wire.Heal()
				release(f, begins.Got())
				time.Sleep(5 * time.Second)
				wire.Refuse()
				time.Sleep(4 * time.Second)
				wire.Heal()
				release(f, held)
				release(f, queued.Got())
				time.Sleep(10 * time.Second)
				release(f, kept)
			})
		})
	}
}

// A wait whose request Redis does not answer does not end as busy, whatever Redis answered
// before: to earlier requests, or to this one before it fell silent. With and without LocalFor.
func TestSilentRedisIsNoBusyTenant(t *testing.T) {
	type scene struct {
		f        *fixture
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
				c.f.Server.FlushAll()
			})
			return acquire(c, ctx, 2)
		}},
	}
	for name, sc := range scenes {
		for mode, local := range map[string]time.Duration{"": 0, ", in turns": 50 * time.Millisecond} {
			for end, byCtx := range map[string]bool{"MaxWait": false, "ctx": true} {
				t.Run(name+mode+", "+end, func(t *testing.T) {
					bubble(t, func(f *fixture) {
						ctx, cancel := f.Context(), context.CancelFunc(func() {})
						mod := []func(*semaphore.Config){localFor(local)}
						if byCtx {
							ctx, cancel = context.WithTimeout(ctx, sc.wait)
						} else {
							mod = append(mod, maxWait(sc.wait))
						}
						defer cancel()
						c := scene{f: f}
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

// If all connections of the pool are broken, no call fails, and none comes to one broken connection after another.
func TestBrokenConnectionsFailNoCall(t *testing.T) {
	bubble(t, func(f *fixture) {
		w := &harness.Wire{}
		rdb := f.Connect(w).(*redis.Client)
		s := f.openOn(rdb, w, limit(9))
		l := f.take(s, "held", 1)
		for name, call := range map[string]func() error{
			"Release":    l.Release,
			"TryAcquire": func() error { return redistest.ErrorOf(s.TryAcquire(f.Context(), "k")) },
			"Acquire":    func() error { return redistest.ErrorOf(s.Acquire(f.Context(), "k")) },
			"SetLimit":   func() error { return s.SetLimit(f.Context(), "k", 8) },
		} {
			breakIdle(f, rdb, w, 15)
			began := time.Now()
			redistest.Expect(f, call(), nil, name+": %v")
			redistest.AtMost(f, time.Since(began), 100*time.Millisecond, name+" took %v")
		}
	})
}

// breakIdle breaks n idle connections of the pool.
func breakIdle(f *fixture, rdb *redis.Client, w *harness.Wire, n int) {
	f.Helper()
	var pool []*redis.Conn
	for range n {
		conn := rdb.Conn()
		redistest.WantErr(f, conn.Ping(f.Context()).Err())
		pool = append(pool, conn)
	}
	for _, conn := range pool {
		_ = conn.Close()
	}
	w.Cut()
	w.Heal()
}

// Close waits until the client has looked at the connections that may be broken.
func TestCloseWaitsForWhatCallsBegan(t *testing.T) {
	bubble(t, func(f *fixture) {
		w := &harness.Wire{}
		rdb := f.Connect(w).(*redis.Client)
		s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: f.Family, Limit: 1}))(f)
		rdb.AddHook(w)
		l := f.take(s, "k", 1)
		breakIdle(f, rdb, w, 2) // Release comes to both
		w.Stall("time")
		release(f, l)
		closed := make(chan error, 1)
		go func() { closed <- s.Close(f.Context()) }()
		select {
		case <-closed:
			f.Error("Close did not wait")
		case <-time.After(time.Second):
			w.Unstall()
			redistest.WantErr(f, <-closed)
		}
	})
}
