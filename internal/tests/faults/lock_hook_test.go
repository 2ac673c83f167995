package faults

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// hook is a hook of the user's that treats commands in its own way while it is on.
type hook struct {
	on     atomic.Bool
	around func(cmds []redis.Cmder, send func() error) error
}

func (h *hook) add(rdb redis.UniversalClient) {
	rdb.AddHook(redistest.Around(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if h.on.Load() {
			return h.around(cmds, send)
		}
		return send()
	}))
}

// A hook that panics or ends its goroutine ends no process, and its caller is told at once: also
// where no script is sent. A guard takes no missing reply for a verdict.
func TestHookThatEndsReads(t *testing.T) {
	for name, end := range map[string]func(){"panics": func() { panic("a hook") }, "calls Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { hookThatEndsReads(t, end) }) })
	}
}

func hookThatEndsReads(t *testing.T, end func()) {
	h := &hook{around: func([]redis.Cmder, func() error) error { end(); return nil }}
	var rdbs []redis.UniversalClient
	for range 3 {
		_, client := redistest.Bubble(t)
		rdb := client()
		h.add(rdb)
		rdbs = append(rdbs, rdb)
	}
	one := redistest.Must(mutex.New(rdbs[0], mutex.Config{Name: "one"}))(t)
	three := redistest.Must(mutex.NewQuorum(rdbs, mutex.Config{Name: "three"}))(t)
	g := redistest.Must(mutex.NewGuard(rdbs[0], mutex.GuardConfig{Name: "one"}))(t)
	redistest.NoError(t, g.Set(t.Context(), "k", 1, "v", time.Minute)) // the script is known
	for _, m := range []*mutex.Mutex{one, three} {
		l := redistest.Must(m.Lock(t.Context(), "k"))(t)
		h.on.Store(true)
		began := time.Now()
		redistest.WantErr(t, redistest.ErrorOf(m.Inspect(t.Context(), "k")), leasehold.ErrUnavailable)
		redistest.WantErr(t, m.Revoke(t.Context(), "k", l.ID(), "test"), leasehold.ErrUnavailable)
		_, err := m.DoOnce(t.Context(), "l", "slot", time.Minute, func(context.Context, uint64) error { return nil })
		redistest.WantErr(t, err, leasehold.ErrUnavailable)
		ctx, cancel := context.WithTimeout(t.Context(), redistest.Soon)
		redistest.WantErr(t, g.Set(ctx, "k", 1, "v", time.Minute), leasehold.ErrUnavailable, redistest.Not(leasehold.ErrFenced))
		cancel()
		redistest.AtMost(t, time.Since(began), redistest.Soon/2, "the calls took %v")
		h.on.Store(false)
		redistest.NoError(t, l.Unlock())
		harness.Close(t, m)
	}
}

// A hook that panics or ends its goroutine while leases are renewed and waiters ask
// costs that round trip alone: nobody waits for it for ever.
func TestHookThatEndsItsGoroutineCostsOneRoundTrip(t *testing.T) {
	oldest := redistest.NeedServers(t)[0]
	for name, end := range map[string]func(){"panics": func() { panic("a hook") }, "calls Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Shared(t, oldest)
			redistest.NoLeaks(t)
			s := newSite(t, harness.Locks, srv.Client())
			rdb := srv.Client()
			var strikes atomic.Int64
			h := &hook{around: func(_ []redis.Cmder, send func() error) error {
				if strikes.Add(1)%2 == 1 {
					end()
				}
				return send()
			}}
			h.add(rdb)
			m := s.mutex(rdb, mutex.Config{TTL: time.Second})
			l := redistest.Must(m.Lock(t.Context(), s.key))(t)
			waiter := s.locking(m)
			s.waitQueued(1)
			h.on.Store(true)
			redistest.Eventually(t, "rounds of renewals", func() bool { return strikes.Load() >= 12 })
			h.on.Store(false) // Unlock makes its call on this goroutine
			redistest.Expect(t, context.Cause(l.Context()), nil, "the lock was lost: %v")
			redistest.NoError(t, l.Unlock())
			redistest.NoError(t, waiter.Got().Unlock())
			harness.CloseWithin(t, redistest.Soon, m)
		})
	}
}

// A hook that ends the goroutine of Lock, Unlock or DoOnce, before or after the call, leaves nothing
// behind: others get the lock long before its TTL is over.
func TestHookThatEndsItsCallerLeavesNoLock(t *testing.T) {
	for name, sends := range map[string]bool{"before the call": false, "after the call": true} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Shared(t, redistest.Newest(t))
			redistest.NoLeaks(t)
			s := newSite(t, harness.Locks, srv.Client())
			rdb := srv.Client()
			h := &hook{}
			h.around = func(_ []redis.Cmder, send func() error) error {
				if h.on.Store(false); sends {
					_ = send()
				}
				runtime.Goexit()
				return nil
			}
			h.add(rdb)
			m, other := s.mutex(rdb, mutex.Config{}), s.mutex(srv.Client(), mutex.Config{})
			nothing := func(context.Context, uint64) error { return nil }
			redistest.NoError(t, m.Do(t.Context(), s.key, nothing))
			ctx := context.Background() // it cannot end, so the calls are made on the caller's goroutine
			for call, f := range map[string]func(){
				"Lock":    func() { h.on.Store(true); _, _ = m.Lock(ctx, s.key) },
				"TryLock": func() { h.on.Store(true); _, _ = m.TryLock(ctx, s.key) },
				"Unlock":  func() { l := redistest.Must(m.Lock(ctx, s.key))(t); h.on.Store(true); _ = l.Unlock() },
				"DoOnce": func() {
					_, _ = m.DoOnce(ctx, s.key, "slot", time.Minute, func(context.Context, uint64) error { h.on.Store(true); return nil })
				},
			} {
				ends := harness.Begin(t, func() error { f(); return nil })
				redistest.Check(t, errors.Is(ends.Failed(), harness.ErrExited), "%s: %v; want that it ends its goroutine", call, ends.Err)
				soon, cancel := context.WithTimeout(t.Context(), redistest.Soon)
				redistest.NoError(t, other.Do(soon, s.key, nothing))
				cancel()
			}
			harness.CloseWithin(t, redistest.Soon, m)
		})
	}
}
