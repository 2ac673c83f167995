package semaphore

import (
	"context"
	"fmt"
	"strings"
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

// withAndWithoutLocalFor runs test with that LocalFor and with none, in a bubble.
func withAndWithoutLocalFor(t *testing.T, local time.Duration, test func(f *fixture, local time.Duration)) {
	for _, local := range []time.Duration{0, local} {
		t.Run(fmt.Sprint("LocalFor ", local), func(t *testing.T) { bubble(t, func(f *fixture) { test(f, local) }) })
	}
}

// Calls that never wait fail quickly while Redis is known to be away, and succeed at once when it is back.
func TestRedisIsAway(t *testing.T) {
	withAndWithoutLocalFor(t, time.Second, func(f *fixture, local time.Duration) {
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
		ctx := f.Within(time.Millisecond)
		time.Sleep(time.Second)
		redistest.WantErr(f, redistest.ErrorOf(s.TryAcquire(ctx, "k")), context.DeadlineExceeded)
		wire.Heal()
		time.Sleep(time.Second)
		release(f, f.take(s, "k", 1))
	})
}

// What an Inspect of one key was told of an outage is told to callers of others without its name.
func TestOutageNamesNoOtherKey(t *testing.T) {
	bubble(t, func(f *fixture) {
		s, wire := f.open()
		release(f, f.take(s, "k", 1))
		wire.Fail(func(name string) error {
			if name == "time" {
				return nil // the server goes away after that
			}
			return harness.ErrRefused
		})
		redistest.WantErr(f, redistest.ErrorOf(s.Inspect(f.Context(), "alice")), leasehold.ErrUnavailable, harness.ErrRefused)
		err := redistest.ErrorOf(s.TryAcquire(f.Context(), "k"))
		redistest.WantErr(f, err, leasehold.ErrUnavailable, harness.ErrRefused)
		redistest.Check(f, !strings.Contains(err.Error(), "alice"), "the error of k names another key: %v", err)
	})
}

// Release does not hold up finished work while Redis is away. The permit is given back when
// Redis is back. With LocalFor that is so also where the process queues again for its callers.
func TestReleaseWhileRedisIsAway(t *testing.T) {
	withAndWithoutLocalFor(t, time.Millisecond, func(f *fixture, local time.Duration) {
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
}

// A waiter keeps its turn through a short outage: it never asks whether Redis is away. Nor does a renewal.
func TestWaitsOutlastAnOutage(t *testing.T) {
	withAndWithoutLocalFor(t, time.Second, func(f *fixture, local time.Duration) {
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
}

// A wait whose request Redis does not answer does not end as busy, whatever Redis answered
// before: to earlier requests, or to this one before it fell silent. Nor does a try beside it. With and without LocalFor.
func TestSilentRedisIsNoBusyTenant(t *testing.T) {
	const short, long = 300 * time.Millisecond, 6 * time.Second // for less than which waiters put up with it
	later := func(fn func()) { time.AfterFunc(100*time.Millisecond, fn) }
	scenes := map[string]struct {
		wait    time.Duration
		callers int
		falls   func(f *fixture, s, other *semaphore.Semaphore, wire *harness.Wire)
	}{
		"the first enter": {short, 1, func(f *fixture, s, _ *semaphore.Semaphore, wire *harness.Wire) {
			release(f, f.take(s, "other", 1)) // the server's clock is known
			wire.Stall()
		}},
		"an enter after an earlier request was answered": {short, 2, func(f *fixture, s, other *semaphore.Semaphore, wire *harness.Wire) {
			release(f, f.take(s, "k", 1))
			held := f.take(other, "k", 1)
			redistest.WantErr(f, redistest.ErrorOf(s.TryAcquire(f.Context(), "k")), leasehold.ErrBusy)
			waiting := f.wait(f.Context(), s, "k", 1)
			release(f, held)
			release(f, waiting.Got())
			time.Sleep(time.Millisecond)
			wire.Stall()
		}},
		"queued": {long, 2, func(f *fixture, _, other *semaphore.Semaphore, wire *harness.Wire) {
			f.take(other, "k", 1)
			later(func() { wire.Stall() })
		}},
		"queued, and connections fail": {long, 2, func(f *fixture, _, other *semaphore.Semaphore, wire *harness.Wire) {
			f.take(other, "k", 1)
			later(wire.Cut)
		}},
		"queued, and queues again": {long, 2, func(f *fixture, _, other *semaphore.Semaphore, wire *harness.Wire) {
			f.take(other, "k", 1)
			later(func() { wire.Stall("enter"); f.Server.FlushAll() })
		}},
	}
	for name, sc := range scenes {
		for _, end := range []string{"MaxWait", "ctx"} {
			t.Run(name+", "+end, func(t *testing.T) {
				withAndWithoutLocalFor(t, 50*time.Millisecond, func(f *fixture, local time.Duration) {
					bounded := f.Within(sc.wait)
					ctx, mod := bounded, localFor(local)
					if end == "MaxWait" {
						ctx, mod = f.Context(), func(c *semaphore.Config) { c.LocalFor, c.MaxWait = local, sc.wait }
					}
					s, wire := f.open(mod)
					other, _ := f.open()
					sc.falls(f, s, other, wire)
					var calls []*waiting
					for range sc.callers {
						calls = append(calls, harness.Start(f.T, func() (*semaphore.Lease, error) { return s.Acquire(ctx, "k") }))
					}
					time.Sleep(sc.wait - 50*time.Millisecond)
					try := harness.Start(f.T, func() (*semaphore.Lease, error) { return s.TryAcquire(bounded, "k") })
					for _, call := range calls {
						redistest.WantErr(f, call.Failed(), leasehold.ErrUnavailable, redistest.Not(leasehold.ErrBusy))
					}
					redistest.WantNot(f, try.Failed(), leasehold.ErrBusy)
					wire.Heal()
					synctest.Wait()
				})
			})
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
			f.BreakIdle(rdb, w, 15)
			began := time.Now()
			redistest.Expect(f, call(), nil, name+": %v")
			redistest.AtMost(f, time.Since(began), 100*time.Millisecond, name+" took %v")
		}
	})
}

// Close waits until the client has looked at the connections that may be broken.
func TestCloseWaitsForWhatCallsBegan(t *testing.T) {
	bubble(t, func(f *fixture) {
		w := &harness.Wire{}
		rdb := f.Connect(w).(*redis.Client)
		s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: f.Family, Limit: 1}))(f)
		rdb.AddHook(w)
		l := f.take(s, "k", 1)
		f.BreakIdle(rdb, w, 2) // Release comes to both
		w.Stall("time")
		release(f, l)
		closed := harness.Begin(f, func() error { return s.Close(f.Context()) })
		time.Sleep(time.Second)
		redistest.Check(f, !closed.Ended(), "Close did not wait")
		w.Unstall()
		closed.Got()
	})
}
