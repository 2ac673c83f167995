// Package situations brings handles into the situations that an Observer is told of. Each says which events it must
// be told, so that the events themselves and what is made of them can be tested in the same situations.
package situations

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/leaseholdtest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

// Situation is one situation, in a bubble of its own.
type Situation struct {
	Name string
	// Want is how often each event must be told in it. Other kinds of events may occur, and renewals more often.
	Want map[Told]int
	run  func(s *stage)
}

// Told is an event as it is counted.
type Told struct {
	Kind    leasehold.EventKind
	Type    string
	Outcome string
}

// stage is what a situation takes place on.
type stage struct {
	*testing.T
	a, b     *redis.Client // of two processes
	wire     *harness.Wire // of a
	observer leasehold.Observer
	logger   *slog.Logger
	opened   []harness.Handle
}

// Run brings handles with this Observer and Logger into the situation, in a bubble, and
// calls then when all handles are closed.
func (s Situation) Run(t *testing.T, observer leasehold.Observer, logger *slog.Logger, then func()) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		all := leaseholdtest.Clients(t, 2)
		on := &stage{T: t, a: all[0].(*redis.Client), b: all[1].(*redis.Client), observer: observer, logger: logger, wire: &harness.Wire{}}
		on.a.AddHook(on.wire)
		s.run(on)
		for _, h := range on.opened {
			on.must(h.Close(t.Context()))
		}
		synctest.Wait()
		then()
	})
}

func (s *stage) must(err error) {
	s.Helper()
	redistest.WantErr(s, err)
}

func (s *stage) semaphore(cfg semaphore.Config) *semaphore.Semaphore {
	cfg.Name, cfg.Observer, cfg.Logger = "caps", s.observer, s.logger
	cfg.Limit = max(1, cfg.Limit)
	return opened(s, redistest.Must(semaphore.New(s.a, cfg))(s))
}

func (s *stage) mutex(cfg mutex.Config) *mutex.Mutex {
	cfg.Name, cfg.Observer, cfg.Logger = "orders", s.observer, s.logger
	return opened(s, redistest.Must(mutex.New(s.a, cfg))(s))
}

func (s *stage) cache(rdb redis.UniversalClient, cfg singleflight.Config[string]) *singleflight.Group[string] {
	cfg.Name, cfg.Observer, cfg.Logger = "pages", s.observer, s.logger
	if cfg.TTL == 0 {
		cfg.TTL, cfg.Jitter = time.Minute, -1
	}
	return opened(s, redistest.Must(singleflight.New(rdb, cfg))(s))
}

// opened is a handle that Run closes.
func opened[H harness.Handle](s *stage, h H) H {
	s.opened = append(s.opened, h)
	return h
}

var errOrigin = errors.New("origin is down")

// loads makes a loader that returns v and err.
func loads(v string, err error) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return v, err }
}

const (
	sem = "semaphore"
	mtx = "mutex"
	flt = "singleflight"
)

// Leases are the situations of permits and locks.
var Leases = []Situation{
	{
		Name: "held for three seconds by one, waited for by another",
		Want: map[Told]int{
			{leasehold.EventAcquired, sem, leasehold.OutcomeGranted}:   2,
			{leasehold.EventHoldEnded, sem, leasehold.OutcomeReleased}: 2,
			{leasehold.EventAcquired, sem, leasehold.OutcomeBusy}:      1,
			{leasehold.EventAcquired, sem, leasehold.OutcomeCanceled}:  1,
		},
		run: func(s *stage) {
			h := s.semaphore(semaphore.Config{Limit: 2})
			first := redistest.Must(h.AcquireN(s.Context(), "k", 2))(s)
			redistest.WantErr(s, redistest.ErrorOf(h.TryAcquire(s.Context(), "k")), leasehold.ErrBusy)
			gone, cancel := context.WithTimeout(s.Context(), time.Second)
			defer cancel()
			redistest.WantErr(s, redistest.ErrorOf(h.Acquire(gone, "k")), context.DeadlineExceeded)
			second := harness.Start(s, func() (*semaphore.Lease, error) { return h.Acquire(s.Context(), "k") })
			time.Sleep(2 * time.Second)
			s.must(first.Release())
			s.must(second.Got().Release())
		},
	},
	{
		Name: "renewed, and closed while it is held",
		Want: map[Told]int{
			{leasehold.EventRenewed, mtx, leasehold.OutcomeOK}:       3,
			{leasehold.EventHoldEnded, mtx, leasehold.OutcomeClosed}: 1,
		},
		run: func(s *stage) {
			h := s.mutex(mutex.Config{TTL: 3 * time.Second})
			redistest.Must(h.Lock(s.Context(), "k"))(s)
			time.Sleep(3500 * time.Millisecond)
		},
	},
	{
		Name: "cut off from Redis for longer than the TTL",
		Want: map[Told]int{
			{leasehold.EventUnavailable, mtx, ""}:                   1,
			{leasehold.EventAvailable, mtx, ""}:                     1,
			{leasehold.EventLeaseEnded, mtx, leasehold.OutcomeLost}: 1,
			{leasehold.EventHoldEnded, mtx, leasehold.OutcomeLost}:  1,
			{leasehold.EventStaleRelease, mtx, ""}:                  1,
		},
		run: func(s *stage) {
			h := s.mutex(mutex.Config{TTL: time.Second})
			l := redistest.Must(h.Lock(s.Context(), "k"))(s)
			end := leaseholdtest.Outage(s.a)
			<-l.Context().Done()
			end()
			redistest.Check(s, l.Unlock() != nil, "Unlock of a lost lock returned nil")
		},
	},
	{
		Name: "its key is deleted, which its release finds",
		Want: map[Told]int{
			{leasehold.EventHoldEnded, mtx, leasehold.OutcomeReleased}: 1,
			{leasehold.EventLeaseEnded, mtx, leasehold.OutcomeLost}:    1,
			{leasehold.EventStaleRelease, mtx, ""}:                     1,
		},
		run: func(s *stage) {
			h := s.mutex(mutex.Config{})
			l := redistest.Must(h.Lock(s.Context(), "k"))(s)
			s.must(s.a.FlushAll(s.Context()).Err())
			redistest.Check(s, l.Unlock() != nil, "Unlock of a lost lock returned nil")
		},
	},
	{
		Name: "held for as long as MaxHold allows",
		Want: map[Told]int{
			{leasehold.EventLeaseEnded, sem, leasehold.OutcomeMaxHold}: 1,
			{leasehold.EventHoldEnded, sem, leasehold.OutcomeMaxHold}:  1,
		},
		run: func(s *stage) {
			h := s.semaphore(semaphore.Config{MaxHold: 2 * time.Second})
			l := redistest.Must(h.Acquire(s.Context(), "k"))(s)
			<-l.Context().Done()
		},
	},
	{
		Name: "granted after its caller has gone",
		Want: map[Told]int{
			{leasehold.EventLateGrant, sem, ""}:                       1,
			{leasehold.EventAcquired, sem, leasehold.OutcomeCanceled}: 1,
		},
		run: func(s *stage) {
			h := s.semaphore(semaphore.Config{})
			l := redistest.Must(h.Acquire(s.Context(), "warm"))(s) // the clock and the script are known
			s.must(l.Release())
			ctx, cancel := context.WithCancel(s.Context())
			defer cancel()
			release := s.wire.StallReplies("enter")
			waiter := harness.Start(s, func() (*semaphore.Lease, error) { return h.Acquire(ctx, "k") })
			synctest.Wait()
			cancel()
			_ = waiter.Failed()
			release()
		},
	},
}

// Loads are the situations of cached values.
var Loads = []Situation{
	{
		Name: "loaded by one, shared by another, hit, and served stale",
		Want: map[Told]int{
			{leasehold.EventLoadStarted, flt, ""}:                 2,
			{leasehold.EventLoadEnded, flt, leasehold.OutcomeOK}:  2,
			{leasehold.EventPublished, flt, leasehold.OutcomeOK}:  2,
			{leasehold.EventLookup, flt, leasehold.OutcomeLoaded}: 1,
			{leasehold.EventLookup, flt, leasehold.OutcomeShared}: 1,
			{leasehold.EventLookup, flt, leasehold.OutcomeHit}:    1,
			{leasehold.EventLookup, flt, leasehold.OutcomeStale}:  1,
		},
		run: func(s *stage) {
			cfg := singleflight.Config[string]{TTL: time.Minute, Jitter: -1, StaleFor: time.Minute}
			a, b := s.cache(s.a, cfg), s.cache(s.b, cfg)
			slow := func(context.Context) (string, error) { time.Sleep(time.Second); return "v", nil }
			first := harness.Start(s, func() (string, error) { return a.Do(s.Context(), "k", slow) })
			synctest.Wait()
			redistest.Must(b.Do(s.Context(), "k", slow))(s)
			first.Got()
			redistest.Must(b.Do(s.Context(), "k", slow))(s)
			time.Sleep(time.Minute)
			redistest.Must(b.Do(s.Context(), "k", slow))(s)
			time.Sleep(2 * time.Second) // for the refresh
		},
	},
	{
		Name: "a loader that fails, and one that finds nothing",
		Want: map[Told]int{
			{leasehold.EventLoadEnded, flt, leasehold.OutcomeError}:    1,
			{leasehold.EventLoadEnded, flt, leasehold.OutcomeNotFound}: 1,
			{leasehold.EventLookup, flt, leasehold.OutcomeHit}:         1,
		},
		run: func(s *stage) {
			g := s.cache(s.a, singleflight.Config[string]{TTL: time.Minute, NotFoundTTL: time.Minute})
			_, _ = g.Do(s.Context(), "failing", loads("", errOrigin))
			_, _ = g.Do(s.Context(), "absent", loads("", singleflight.ErrNotFound))
			_, _ = g.Do(s.Context(), "absent", loads("", singleflight.ErrNotFound))
		},
	},
	{
		Name: "a loader that takes too long",
		Want: map[Told]int{{leasehold.EventLoadEnded, flt, leasehold.OutcomeTimeout}: 1},
		run: func(s *stage) {
			g := s.cache(s.a, singleflight.Config[string]{TTL: time.Minute, LoadTimeout: time.Second})
			_, _ = g.Do(s.Context(), "k", func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })
		},
	},
	{
		Name: "left by its only caller while it is loaded",
		Want: map[Told]int{
			{leasehold.EventLoadStarted, flt, ""}:                      1,
			{leasehold.EventLoadEnded, flt, leasehold.OutcomeCanceled}: 1,
			{leasehold.EventLeaseEnded, flt, leasehold.OutcomeLost}:    0, // it was given back
		},
		run: func(s *stage) {
			g := s.cache(s.a, singleflight.Config[string]{LeaseTTL: 3 * time.Second})
			ctx, leave := context.WithCancel(s.Context())
			_, err := g.Do(ctx, "k", func(ctx context.Context) (string, error) {
				leave()
				<-ctx.Done()
				return "", ctx.Err()
			})
			redistest.Check(s, err != nil, "a caller that left got a value")
			time.Sleep(2 * time.Second) // the next renewal gives the lease back
		},
	},
	{
		Name: "an entry that is no value",
		Want: map[Told]int{{leasehold.EventDecodeFailed, flt, ""}: 1},
		run: func(s *stage) {
			g := s.cache(s.a, singleflight.Config[string]{})
			s.must(s.a.Set(s.Context(), "leasehold:flt:{pages:k}:value", "no envelope", time.Minute).Err())
			redistest.Must(g.Do(s.Context(), "k", loads("v", nil)))(s)
		},
	},
	{
		Name: "invalidated, once while it is loaded",
		Want: map[Told]int{
			{leasehold.EventInvalidated, flt, leasehold.OutcomeOK}:        2,
			{leasehold.EventPublished, flt, leasehold.OutcomeInvalidated}: 1,
		},
		run: func(s *stage) {
			g := s.cache(s.a, singleflight.Config[string]{})
			redistest.Must(g.Do(s.Context(), "k", loads("v", nil)))(s)
			s.must(g.Invalidate(s.Context(), "k"))
			redistest.Must(g.Do(s.Context(), "k", func(ctx context.Context) (string, error) { return "v", g.Invalidate(ctx, "k") }))(s)
		},
	},
}

// All is all situations.
var All = slices.Concat(Leases, Loads)
