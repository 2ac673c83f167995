// Package replicas has grants that replicas must confirm: on a real primary with two
// replicas, whose links are cut and healed.
package replicas

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/leaseholdtest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// lease is a lock or a semaphore's lease.
type lease interface {
	Context() context.Context
	Deadline() time.Time
	Extend(ctx context.Context, ttl time.Duration) error
	giveBack() error
}

type (
	lockHeld   struct{ *mutex.Lock }
	permitHeld struct{ *semaphore.Lease }
)

func (l lockHeld) giveBack() error   { return l.Unlock() }
func (l permitHeld) giveBack() error { return l.Release() }

// handle is a handle of one of the kinds of lease. Without an error there is a lease.
type handle struct {
	acquire, tryAcquire func(ctx context.Context, key string) (lease, error)
}

// maker makes handles of one kind of lease. A semaphore takes from the Config what both have.
type maker = func(tb testing.TB, rdb redis.UniversalClient, cfg mutex.Config) handle

var kinds = map[string]maker{
	"mutex": newMutex,
	"semaphore": func(tb testing.TB, rdb redis.UniversalClient, cfg mutex.Config) handle {
		return newSemaphore(tb, rdb, cfg, 0)
	},
	"mutex, local turns": func(tb testing.TB, rdb redis.UniversalClient, cfg mutex.Config) handle {
		cfg.LocalFor = 20 * time.Millisecond
		return newMutex(tb, rdb, cfg)
	},
	"total": func(tb testing.TB, rdb redis.UniversalClient, cfg mutex.Config) handle {
		return newSemaphore(tb, rdb, cfg, 10_000)
	},
}

func newMutex(tb testing.TB, rdb redis.UniversalClient, cfg mutex.Config) handle {
	tb.Helper()
	harness.StrictOnly(tb, harness.Locks)
	cfg.KeepFor = harness.KeepFor(cfg.TTL)
	m := openMutex(tb, rdb, cfg)
	return handle{
		func(ctx context.Context, key string) (lease, error) {
			l, err := m.Lock(ctx, key)
			return lockHeld{l}, err
		},
		func(ctx context.Context, key string) (lease, error) {
			l, err := m.TryLock(ctx, key)
			return lockHeld{l}, err
		},
	}
}

// openMutex makes a mutex that is closed at the end of the test.
func openMutex(tb testing.TB, rdb redis.UniversalClient, cfg mutex.Config) *mutex.Mutex {
	tb.Helper()
	m := redistest.Must(mutex.New(rdb, cfg))(tb)
	tb.Cleanup(func() { harness.CloseWithin(tb, 30*time.Second, m) })
	return m
}

func newSemaphore(tb testing.TB, rdb redis.UniversalClient, cfg mutex.Config, total int) handle {
	tb.Helper()
	s := redistest.Must(semaphore.New(rdb, semaphore.Config{
		Name: cfg.Name, Limit: 1, Total: total, TTL: cfg.TTL, Replicas: cfg.Replicas, ReplicaWait: cfg.ReplicaWait, Observer: cfg.Observer,
	}))(tb)
	tb.Cleanup(func() { harness.CloseWithin(tb, 30*time.Second, s) })
	return handle{
		func(ctx context.Context, key string) (lease, error) {
			l, err := s.Acquire(ctx, key)
			return permitHeld{l}, err
		},
		func(ctx context.Context, key string) (lease, error) {
			l, err := s.TryAcquire(ctx, key)
			return permitHeld{l}, err
		},
	}
}

// granted acquires key, as often as it takes: replicas that were cut off, on a busy machine,
// may need more than ReplicaWait.
func granted(tb testing.TB, h handle, key string) (l lease) {
	tb.Helper()
	redistest.Eventually(tb, "a grant of "+key, func() bool {
		var err error
		l, err = h.acquire(context.Background(), key)
		return err == nil
	})
	return l
}

// blocked reports whether a WAIT has arrived at the server: it blocks its client there.
func blocked(rdb redis.UniversalClient) bool {
	return !strings.Contains(rdb.Info(context.Background(), "clients").Val(), "blocked_clients:0\r\n")
}

// eachVersion runs fn on a primary with two replicas of each version.
func eachVersion(t *testing.T, fn func(t *testing.T, x *redistest.Replicated)) {
	t.Helper()
	for _, v := range redistest.NeedServers(t) {
		t.Run(v.String(), func(t *testing.T) { fn(t, redistest.StartReplicated(t, v, 2)) })
	}
}

// onNewest runs fn on a primary with two replicas of the newest version, for each kind of lease.
func onNewest(t *testing.T, fn func(t *testing.T, x *redistest.Replicated, newHandle maker)) {
	t.Helper()
	x := redistest.StartReplicated(t, redistest.Newest(t), 2)
	for kind, newHandle := range kinds {
		t.Run(kind, func(t *testing.T) {
			defer x.Heal()
			fn(t, x, newHandle)
		})
	}
}

// New refuses a bad Replicas and ReplicaWait, by their names, values and bounds.
func TestConfigOfReplicas(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name               string
		ttl, maxHold, read time.Duration
		replicas           int
		replicaWait        time.Duration
		want               string // "" = it is good
	}{
		{name: "none", want: ""},
		{name: "negative", replicas: -1, want: "Replicas is -1; want 0 (none) or more"},
		{name: "default", replicas: 1},
		{name: "a quarter of the TTL", replicas: 1, ttl: 4 * time.Second, replicaWait: time.Second},
		{name: "more", replicas: 1, ttl: 4 * time.Second, replicaWait: 1001 * time.Millisecond, want: "ReplicaWait is 1.001s; want 1ms to 1s (a quarter of the TTL), or 0"},
		{name: "more than MaxHold", replicas: 1, maxHold: 2 * time.Second, replicaWait: time.Second, want: "(a quarter of the TTL, or of MaxHold)"},
		{name: "negative wait", replicas: 1, replicaWait: -1, want: "ReplicaWait is -1ns; want 1ms to 3.75s"},
		{name: "too short", replicas: 1, replicaWait: time.Microsecond, want: "ReplicaWait is 1µs; want 1ms"},
		{name: "without replicas", ttl: time.Second, replicaWait: time.Second, want: "ReplicaWait is 1s; want 1ms to 250ms"},
		{name: "the client's patience", replicas: 1, read: time.Second, replicaWait: 900 * time.Millisecond, want: "ReplicaWait is 900ms; want 1ms to 750ms (three quarters of the client's ReadTimeout)"},
		{name: "within it", replicas: 1, read: time.Second, replicaWait: 750 * time.Millisecond},
		{name: "default with an impatient client", replicas: 1, read: 200 * time.Millisecond},
		{name: "default with a short TTL", replicas: 1, ttl: 100 * time.Millisecond},
		{name: "client without a bound", replicas: 1, read: -1, replicaWait: 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: c.read})
			defer rdb.Close()
			_, err1 := mutex.New(rdb, mutex.Config{Name: "f", TTL: c.ttl, MaxHold: c.maxHold, Replicas: c.replicas, ReplicaWait: c.replicaWait})
			_, err2 := semaphore.New(rdb, semaphore.Config{Name: "f", Limit: 1, TTL: c.ttl, MaxHold: c.maxHold, Replicas: c.replicas, ReplicaWait: c.replicaWait})
			for _, err := range []error{err1, err2} {
				if c.want == "" {
					redistest.NoError(t, err)
					continue
				}
				redistest.Check(t, err != nil && errors.Is(err, leasehold.ErrInvalid) && strings.Contains(err.Error(), c.want),
					"error %v; want %q", err, c.want)
			}
		})
	}
}

// By itself, WAIT takes no longer than an impatient client waits for an answer.
func TestDefaultWaitFitsTheClient(t *testing.T) {
	x := redistest.StartReplicated(t, redistest.Newest(t), 1)
	x.Cut()
	rdb := x.Primary.Client(func(o *redis.Options) { o.ReadTimeout = 400 * time.Millisecond })
	h := newMutex(t, rdb, mutex.Config{Name: redistest.Name(t), Replicas: 1})
	began := time.Now()
	redistest.WantErr(t, redistest.ErrorOf(h.acquire(t.Context(), "k")), leasehold.ErrUnavailable, redistest.Says("0 of 1 replicas confirmed it within 300ms"))
	redistest.AtMost(t, time.Since(began), 2*time.Second, "it took %v")
}

// The embedded server has no replicas: the error says so, and the lock is free.
func TestEmbeddedServerHasNoReplicas(t *testing.T) {
	t.Parallel()
	rdb := leaseholdtest.Client(t)
	h := newMutex(t, rdb, mutex.Config{Name: "f", Replicas: 1})
	for range 2 {
		redistest.WantErr(t, redistest.ErrorOf(h.acquire(t.Context(), "k")), leasehold.ErrUnavailable, redistest.Says("0 of 1 replicas confirmed it"))
	}
	redistest.Eventually(t, "a lock without replicas", func() bool {
		l, err := newMutex(t, rdb, mutex.Config{Name: "f"}).acquire(t.Context(), "k")
		return err == nil && l.giveBack() == nil
	})
}
