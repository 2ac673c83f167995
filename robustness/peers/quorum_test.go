package peers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	syncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/quorum"
	"github.com/leasehold-go/leasehold/mutex"
)

// A claim is a lock of several servers, as its holder sees it.
type claim interface {
	held() bool
	unlock() error
}

// voted are the libraries with locks of several servers.
var voted = []struct {
	name string
	open func(t *testing.T, rdbs []redis.UniversalClient) func(ctx context.Context, key string) (claim, error)
}{
	{"redsync 4.18.1", func(_ *testing.T, rdbs []redis.UniversalClient) func(context.Context, string) (claim, error) {
		var pools []syncredis.Pool
		for _, rdb := range rdbs {
			pools = append(pools, goredis.NewPool(rdb))
		}
		rs := redsync.New(pools...)
		return func(ctx context.Context, key string) (claim, error) {
			m := rs.NewMutex(key, redsync.WithExpiry(quorum.RunTTL), redsync.WithTries(1<<20))
			if err := m.LockContext(ctx); err != nil {
				return nil, err
			}
			return redsyncClaim{m}, nil
		}
	}},
	{"leasehold", func(t *testing.T, rdbs []redis.UniversalClient) func(context.Context, string) (claim, error) {
		m := redistest.Must(mutex.NewQuorum(rdbs, mutex.Config{Name: "peers", TTL: quorum.RunTTL}))(t)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = m.Close(ctx)
		})
		return func(ctx context.Context, key string) (claim, error) {
			l, err := m.Lock(ctx, key)
			if err != nil {
				return nil, err
			}
			return leaseholdClaim{l}, nil
		}
	}},
}

type redsyncClaim struct{ m *redsync.Mutex }

func (c redsyncClaim) held() bool { return time.Now().Before(c.m.Until()) }

func (c redsyncClaim) unlock() error {
	if ok, err := c.m.Unlock(); err != nil || !ok {
		return errors.Join(err, errors.New("not unlocked"))
	}
	return nil
}

type leaseholdClaim struct{ l *mutex.Lock }

func (c leaseholdClaim) held() bool {
	return time.Now().Before(c.l.Deadline()) && c.l.Context().Err() == nil
}
func (c leaseholdClaim) unlock() error { return c.l.Unlock() }

// TestQuorumPeers prints what became of locks of three and five servers under the same faults of
// minorities, and fails only where leasehold was wrong. Eight callers in four processes want one
// lock for up to 1 s each.
func TestQuorumPeers(t *testing.T) {
	redistest.NeedServers(t)
	seed := redistest.Seed(t)
	var mu sync.Mutex
	var rows []string
	t.Run("runs", func(t *testing.T) {
		for _, n := range []int{3, 5} {
			for _, lib := range voted {
				t.Run(fmt.Sprintf("%s, %d", lib.name, n), func(t *testing.T) {
					c := &contest{open: func(rdbs []redis.UniversalClient) func(context.Context, string) (claim, error) {
						return lib.open(t, rdbs)
					}}
					quorum.Faults(t, quorum.Run{Servers: n, Seed: seed, For: time.Minute}, c.run)
					mu.Lock()
					defer mu.Unlock()
					rows = append(rows, fmt.Sprintf("| %d | %s | %s |", n, lib.name, c))
					redistest.Check(t, lib.name != "leasehold" || c.overlaps <= 0 && slices.Min(c.turns) != 0, "%v", c)
				})
			}
		}
	})
	slices.Sort(rows)
	fmt.Printf("\n| servers | library | turns | beside another holder | fewest of a caller to the most | longest wait | unlocks that failed |\n|---|---|---|---|---|---|---|\n%s\n\n", strings.Join(rows, "\n"))
}

// A contest is callers of one library that want one lock.
type contest struct {
	open func(rdbs []redis.UniversalClient) func(ctx context.Context, key string) (claim, error)

	mu       sync.Mutex
	now      []claim
	turns    []int // by caller
	overlaps int   // turns that began beside another holder
	failed   int   // unlocks
	longest  time.Duration
}

func (c *contest) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := 0
	for _, n := range c.turns {
		sum += n
	}
	return fmt.Sprintf("%d | %d | %d / %d | %.1f s | %d", sum, c.overlaps, slices.Min(c.turns), slices.Max(c.turns), c.longest.Seconds(), c.failed)
}

func (c *contest) run(ctx context.Context, clients func() []redis.UniversalClient) {
	var all sync.WaitGroup
	c.turns = make([]int, 8)
	for process := range 4 {
		lock := c.open(clients())
		for i := range 2 {
			all.Go(func() { c.caller(ctx, 2*process+i, lock) })
		}
	}
	all.Wait()
}

func (c *contest) caller(ctx context.Context, number int, lock func(context.Context, string) (claim, error)) {
	for began := time.Now(); ctx.Err() == nil; {
		l, err := lock(ctx, "k")
		c.mu.Lock()
		c.longest = max(c.longest, time.Since(began))
		c.mu.Unlock()
		if err != nil {
			time.Sleep(20 * time.Millisecond) // it goes on waiting
			continue
		}
		c.begin(number, l)
		for until := time.Now().Add(time.Duration(rand.IntN(1000)) * time.Millisecond); l.held() && time.Now().Before(until); {
			time.Sleep(2 * time.Millisecond)
		}
		c.mu.Lock()
		c.now = slices.DeleteFunc(c.now, func(other claim) bool { return other == l })
		c.mu.Unlock()
		if err := l.unlock(); err != nil && !errors.Is(err, leasehold.ErrReleased) {
			c.mu.Lock()
			c.failed++
			c.mu.Unlock()
		}
		began = time.Now()
	}
}

func (c *contest) begin(number int, l claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.now, claim.held) && l.held() {
		c.overlaps++
	}
	c.now = append(c.now, l)
	c.turns[number]++
}
