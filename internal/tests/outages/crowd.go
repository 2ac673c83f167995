package outages

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

const (
	limit = 3 // of the semaphore
	total = 4 // of a family whose keys have that limit
	ttl   = 1500 * time.Millisecond
	key   = "k"

	// patience bounds what ends by itself in a few seconds, on a machine that is
	// busy with other tests.
	patience = time.Minute
)

// crowd is callers of a mutex, a semaphore, a family with a total and cached values, each handle with a
// client of its own as in a process of its own, who go on and on.
type crowd struct {
	*testing.T
	family  string
	connect func() redis.UniversalClient // to the servers that something happens to
	admin   redis.UniversalClient        // to the same
	seed    uint64

	ending atomic.Bool
	all    sync.WaitGroup
	shut   []func(context.Context) error

	mu      sync.Mutex
	locks   []turn
	permits []turn
	tenants []turn // of the family with a total, of whatever key
	reads   []turn // token is the load's number
	loads   []time.Time
	drops   []turn // invalidations that were confirmed
	stalls  []turn // when this process did not run
	errs    map[string]int
}

// turn is one call, and how long what it gave was believed to be held: until it
// was given back, or its deadline if that came before.
type turn struct {
	called, got, end, deadline time.Time
	token                      uint64
	key                        string // of a permit
}

func newCrowd(t *testing.T, connect func() redis.UniversalClient) *crowd {
	t.Helper()
	c := &crowd{T: t, family: redistest.Name(t), connect: connect, admin: connect(), errs: map[string]int{}, seed: redistest.Seed(t)}
	for range 3 { // processes
		m, s, g, f := c.mutex(ttl), c.semaphore(ttl), c.group(), c.withTotal()
		for i := range 2 {
			c.every(func(r *rand.Rand) error { return c.lock(m, r) })
			c.every(func(r *rand.Rand) error { return c.acquire(s, key, &c.permits, r) })
			for range 2 {
				c.every(func(r *rand.Rand) error { return c.acquire(f, tenantKeys[i], &c.tenants, r) })
			}
			c.every(func(r *rand.Rand) error { return c.fetch(g, r) })
		}
	}
	dropper := c.group()
	c.every(func(r *rand.Rand) error { return c.drop(dropper, r) })
	c.every(c.beat)
	t.Cleanup(c.stop)
	return c
}

// every calls do again and again until the end. Each of its errors must say that
// Redis could not be asked, or that a lease was lost.
func (c *crowd) every(do func(*rand.Rand) error) {
	c.seed++
	random := rand.New(rand.NewPCG(c.seed, 1))
	c.all.Go(func() {
		for !c.ending.Load() {
			switch err := do(random); {
			case err == nil:
				continue
			case errors.Is(err, leasehold.ErrLost):
				c.count("lost")
			case errors.Is(err, leasehold.ErrUnavailable):
				c.count("unavailable")
			default:
				c.count("other")
				c.Errorf("a call fails: %v", err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// stop ends the calls, and then the handles.
func (c *crowd) stop() {
	c.ending.Store(true)
	c.all.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, shut := range c.shut {
		redistest.Expect(c, shut(ctx), nil, "close: %v")
	}
	c.shut = nil
}

func (c *crowd) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs[what]++
}

func (c *crowd) mutex(ttl time.Duration) *mutex.Mutex {
	c.Helper()
	return opened(c, redistest.Must(mutex.New(c.connect(), mutex.Config{Name: c.family, TTL: ttl, KeepFor: harness.KeepFor(ttl)}))(c))
}

func (c *crowd) semaphore(ttl time.Duration) *semaphore.Semaphore {
	c.Helper()
	return opened(c, redistest.Must(semaphore.New(c.connect(), semaphore.Config{Name: c.family, Limit: limit, TTL: ttl, KeepFor: harness.KeepFor(ttl)}))(c))
}

// tenantKeys are the keys of the family with a total.
var tenantKeys = []string{"t0", "t1"}

func (c *crowd) withTotal() *semaphore.Semaphore {
	c.Helper()
	return opened(c, redistest.Must(semaphore.New(c.connect(), semaphore.Config{Name: c.family, Limit: limit, Total: total, TTL: ttl}))(c))
}

func (c *crowd) group() *singleflight.Group[int] {
	c.Helper()
	return opened(c, redistest.Must(singleflight.New(c.connect(), singleflight.Config[int]{
		Name: c.family, TTL: time.Minute, LeaseTTL: ttl, Logger: slog.New(slog.DiscardHandler),
	}))(c))
}

// opened is a handle that stop closes.
func opened[H harness.Handle](c *crowd, h H) H {
	c.shut = append(c.shut, h.Close)
	return h
}

// whole is a Redis key of the family with a total.
func (c *crowd) whole(part string) string {
	return fmt.Sprintf("leasehold:sem:{%s}:%s", c.family, part)
}

// part is a Redis key of one of the packages, by the names that the contract gives.
func (c *crowd) part(kind, key, part string) string {
	return fmt.Sprintf("leasehold:%s:{%s:%s}:%s", kind, c.family, key, part)
}

func within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// lock is one turn of the mutex.
func (c *crowd) lock(m *mutex.Mutex, random *rand.Rand) error {
	ctx, cancel := within()
	defer cancel()
	t := turn{called: time.Now()}
	l, err := m.Lock(ctx, key)
	if err != nil {
		return err
	}
	t.token = l.Token()
	return c.held(t, &c.locks, l, l.Unlock, random)
}

func (c *crowd) acquire(s *semaphore.Semaphore, key string, turns *[]turn, random *rand.Rand) error {
	ctx, cancel := within()
	defer cancel()
	t := turn{called: time.Now(), key: key}
	l, err := s.Acquire(ctx, key)
	if err != nil {
		return err
	}
	return c.held(t, turns, l, l.Release, random)
}

// lease is a lock or a permit.
type lease interface {
	Context() context.Context
	Deadline() time.Time
}

// held holds a lease for a while, gives it back, and keeps the turn.
func (c *crowd) held(t turn, turns *[]turn, l lease, release func() error, random *rand.Rand) error {
	t.got, t.deadline = time.Now(), l.Deadline()
	sleep(l.Context(), random)
	if t.end = time.Now(); t.end.After(l.Deadline()) {
		t.end = l.Deadline()
	}
	err := release()
	c.mu.Lock()
	defer c.mu.Unlock()
	*turns = append(*turns, t)
	return err
}

// sleep is work of some milliseconds, which stops where the lease ends.
func sleep(ctx context.Context, random *rand.Rand) {
	timer := time.NewTimer(time.Millisecond + time.Duration(random.IntN(4000))*time.Microsecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (c *crowd) fetch(g *singleflight.Group[int], random *rand.Rand) error {
	ctx, cancel := within()
	defer cancel()
	t := turn{called: time.Now()}
	r, err := g.Fetch(ctx, key, func(context.Context) (int, error) {
		c.mu.Lock()
		n := len(c.loads)
		c.loads = append(c.loads, time.Now())
		c.mu.Unlock()
		time.Sleep(2 * time.Millisecond)
		return n, nil
	})
	if err != nil {
		return err
	}
	t.got, t.token = time.Now(), uint64(r.Value)
	redistest.Check(c, r.Age >= 0, "a value is %v old", r.Age)
	c.mu.Lock()
	c.reads = append(c.reads, t)
	c.mu.Unlock()
	time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond)
	return nil
}

func (c *crowd) drop(g *singleflight.Group[int], random *rand.Rand) error {
	time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
	ctx, cancel := within()
	defer cancel()
	t := turn{called: time.Now()}
	if err := g.Invalidate(ctx, key); err != nil {
		return err
	}
	t.got = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drops = append(c.drops, t)
	return nil
}

// beat notes when timers of this process were late: what a call returned then may
// have been over only by the time that the test looked at it.
func (c *crowd) beat(*rand.Rand) error {
	from := time.Now()
	time.Sleep(5 * time.Millisecond)
	if to := time.Now(); to.Sub(from) > 50*time.Millisecond {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stalls = append(c.stalls, turn{called: from, got: to})
	}
	return nil
}
