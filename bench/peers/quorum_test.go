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
type claim struct {
	held   func() bool
	unlock func() error
}

type vote func(ctx context.Context, key string) (*claim, error)

var voted = []struct {
	name string
	open func(t *testing.T, rdbs []redis.UniversalClient) vote
}{
	{"redsync 4.18.1", func(_ *testing.T, rdbs []redis.UniversalClient) vote {
		var pools []syncredis.Pool
		for _, rdb := range rdbs {
			pools = append(pools, goredis.NewPool(rdb))
		}
		rs := redsync.New(pools...)
		return func(ctx context.Context, key string) (*claim, error) {
			m := rs.NewMutex(key, redsync.WithExpiry(quorum.RunTTL), redsync.WithTries(1<<20))
			return &claim{
				func() bool { return time.Now().Before(m.Until()) },
				func() error { return unlocked(m.Unlock()) },
			}, m.LockContext(ctx)
		}
	}},
	{"leasehold", func(t *testing.T, rdbs []redis.UniversalClient) vote {
		m := redistest.Must(mutex.NewQuorum(rdbs, mutex.Config{Name: "peers", TTL: quorum.RunTTL}))(t)
		closes(t, m)
		return func(ctx context.Context, key string) (*claim, error) {
			l, err := m.Lock(ctx, key)
			return &claim{
				func() bool { return time.Now().Before(l.Deadline()) && l.Context().Err() == nil },
				func() error { return l.Unlock() },
			}, err
		}
	}},
}

// TestQuorumPeers prints what became of locks of three and five servers under the same faults of minorities,
// and fails only where leasehold was wrong. Eight callers in four processes want one lock for up to 1 s each.
func TestQuorumPeers(t *testing.T) {
	redistest.NeedServers(t)
	seed := redistest.Seed(t)
	var mu sync.Mutex
	var rows []string
	t.Run("runs", func(t *testing.T) {
		for _, n := range []int{3, 5} {
			for _, lib := range voted {
				t.Run(fmt.Sprintf("%s, %d", lib.name, n), func(t *testing.T) {
					c := &contest{open: func(rdbs []redis.UniversalClient) vote { return lib.open(t, rdbs) }}
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

type contest struct {
	open func(rdbs []redis.UniversalClient) vote

	mu       sync.Mutex
	now      []*claim
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

func (c *contest) caller(ctx context.Context, number int, lock vote) {
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
		c.now = slices.DeleteFunc(c.now, func(other *claim) bool { return other == l })
		c.mu.Unlock()
		if err := l.unlock(); err != nil && !errors.Is(err, leasehold.ErrReleased) {
			c.mu.Lock()
			c.failed++
			c.mu.Unlock()
		}
		began = time.Now()
	}
}

func (c *contest) begin(number int, l *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.now, func(other *claim) bool { return other.held() }) && l.held() {
		c.overlaps++
	}
	c.now = append(c.now, l)
	c.turns[number]++
}
