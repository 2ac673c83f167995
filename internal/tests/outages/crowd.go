// Package outages has callers of all three packages at work while something
// happens to their servers, and checks what they were told afterwards.
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

	// patience bounds what ends by itself in a few seconds, on a machine that is busy with other tests.
	patience = time.Minute
)

// crowd is callers of a mutex, a semaphore, a family with a total and cached values, each handle with a
// client of its own as in a process of its own, who go on and on.
type crowd struct {
	*testing.T
	family  string
	connect func() redis.UniversalClient // to the servers that something happens to
	admin   redis.UniversalClient        // to the same

	ending atomic.Bool
	all    sync.WaitGroup
	shut   []func(context.Context) error

	mu       sync.Mutex
	done     map[string]*deeds
	inside   map[lease]string // what is held, by whom it is
	tokens   map[uint64]bool  // that were granted
	highest  uint64           // of these
	loads    []time.Time      // when they began
	dropped  time.Time        // when the latest Invalidate was called that was confirmed
	errs     map[string]int
	overlaps int // permits that were one too many, and old values
}

// deeds are what the callers of one kind have done.
type deeds struct {
	n    int
	last time.Time // when the latest call began that came to a good end
}

// lease is a lock or a permit.
type lease interface {
	Context() context.Context
	Deadline() time.Time
}

// The kinds of callers. Of the family with a total there is one for each key.
const (
	locking  = "mutex"
	limiting = "semaphore"
	sharing  = "family with a total "
	reading  = "singleflight"
	dropping = "invalidate"
)

// tenantKeys are the keys of the family with a total.
var tenantKeys = []string{"t0", "t1"}

func newCrowd(t *testing.T, connect func() redis.UniversalClient) *crowd {
	t.Helper()
	c := &crowd{
		T: t, family: redistest.Name(t), connect: connect, admin: connect(), errs: map[string]int{},
		done: map[string]*deeds{}, inside: map[lease]string{}, tokens: map[uint64]bool{},
	}
	for range 3 { // processes
		m, s, f, g := c.mutex(ttl), c.semaphore(ttl, 0), c.semaphore(ttl, total), c.group()
		for i := range 2 {
			c.every(locking, func() error { return c.lock(m) })
			c.every(limiting, func() error { return c.acquire(s, limiting, key) })
			for range 2 {
				c.every(sharing+tenantKeys[i], func() error { return c.acquire(f, sharing+tenantKeys[i], tenantKeys[i]) })
			}
			c.every(reading, func() error { return c.fetch(g) })
		}
	}
	dropper := c.group()
	c.every(dropping, func() error { return c.drop(dropper) })
	t.Cleanup(c.stop)
	return c
}

// every calls do again and again until the end. Each of its errors must say that
// Redis could not be asked, or that a lease was lost.
func (c *crowd) every(what string, do func() error) {
	mine := c.done[what]
	if mine == nil {
		mine = &deeds{}
		c.done[what] = mine
	}
	c.all.Go(func() {
		for !c.ending.Load() {
			called := time.Now()
			err := do()
			c.mu.Lock()
			switch {
			case err == nil:
				mine.n++
				if called.After(mine.last) {
					mine.last = called
				}
			case errors.Is(err, leasehold.ErrLost):
				c.errs["lost"]++
			case errors.Is(err, leasehold.ErrUnavailable):
				c.errs["unavailable"]++
			default:
				c.Errorf("a call fails: %v", err)
			}
			c.mu.Unlock()
			if err != nil {
				time.Sleep(5 * time.Millisecond)
			}
		}
	})
}

// stop ends the calls, and then the handles.
func (c *crowd) stop() {
	c.ending.Store(true)
	c.all.Wait()
	ctx, cancel := within()
	defer cancel()
	for _, shut := range c.shut {
		redistest.Expect(c, shut(ctx), nil, "close: %v")
	}
	c.shut = nil
}

func (c *crowd) mutex(ttl time.Duration) *mutex.Mutex {
	c.Helper()
	return opened(c, redistest.Must(mutex.New(c.connect(), mutex.Config{Name: c.family, TTL: ttl, KeepFor: harness.KeepFor(ttl)}))(c))
}

// semaphore opens a semaphore, or a family with a total.
func (c *crowd) semaphore(ttl time.Duration, total int) *semaphore.Semaphore {
	c.Helper()
	cfg := semaphore.Config{Name: c.family, Limit: limit, Total: total, TTL: ttl}
	if total == 0 {
		cfg.KeepFor = harness.KeepFor(ttl)
	}
	return opened(c, redistest.Must(semaphore.New(c.connect(), cfg))(c))
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
func (c *crowd) part(kind, key, part string) string { return harness.Part(kind, c.family, key, part) }

func within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// lock is one turn of the mutex. A lock has a higher token than all that had been granted when it was
// asked for, and no two have the same (S2).
func (c *crowd) lock(m *mutex.Mutex) error {
	ctx, cancel := within()
	defer cancel()
	c.mu.Lock()
	before := c.highest
	c.mu.Unlock()
	l, err := m.Lock(ctx, key)
	if err != nil {
		return err
	}
	c.mu.Lock()
	redistest.Check(c, l.Token() > before && !c.tokens[l.Token()], "token %d, of a lock that was asked for when %d had been granted", l.Token(), before)
	c.highest, c.tokens[l.Token()] = max(c.highest, l.Token()), true
	c.mu.Unlock()
	return c.keep(locking, l, l.Unlock)
}

func (c *crowd) acquire(s *semaphore.Semaphore, what, key string) error {
	ctx, cancel := within()
	defer cancel()
	l, err := s.Acquire(ctx, key)
	if err != nil {
		return err
	}
	return c.keep(what, l, l.Release)
}

// keep is work of some milliseconds with a lease, which stops where the lease ends.
func (c *crowd) keep(what string, l lease, release func() error) error {
	c.mu.Lock()
	c.inside[l] = what
	c.count(what)
	c.mu.Unlock()
	select {
	case <-time.After(time.Millisecond + rand.N(4*time.Millisecond)):
	case <-l.Context().Done():
	}
	c.mu.Lock()
	delete(c.inside, l)
	c.mu.Unlock()
	return release()
}

// count finds whether more is believed to be held than the limit, or than the total. Called with the lock.
func (c *crowd) count(what string) {
	held := map[string]int{}
	for l, kind := range c.inside {
		if time.Now().Before(l.Deadline()) && l.Context().Err() == nil {
			held[kind]++
		}
	}
	most := limit
	if what == locking {
		most = 1
	}
	if held[what] > most || held[sharing+tenantKeys[0]]+held[sharing+tenantKeys[1]] > total {
		c.overlaps++
	}
}

// fetch reads a value. One that was loaded before an Invalidate was called that had been confirmed is
// an old one (S5).
func (c *crowd) fetch(g *singleflight.Group[int]) error {
	ctx, cancel := within()
	defer cancel()
	c.mu.Lock()
	dropped := c.dropped
	c.mu.Unlock()
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
	redistest.Check(c, r.Age >= 0, "a value is %v old", r.Age)
	c.mu.Lock()
	if c.loads[r.Value].Before(dropped) {
		c.overlaps++
	}
	c.mu.Unlock()
	time.Sleep(rand.N(time.Millisecond))
	return nil
}

func (c *crowd) drop(g *singleflight.Group[int]) error {
	time.Sleep(rand.N(20 * time.Millisecond))
	ctx, cancel := within()
	defer cancel()
	called := time.Now()
	if err := g.Invalidate(ctx, key); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped = called
	return nil
}
