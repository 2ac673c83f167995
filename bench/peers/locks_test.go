package peers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	syncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/quorum"
	"github.com/leasehold-go/leasehold/mutex"
)

// locker is a library's locks, with one client.
type locker struct {
	lock take // waits for the lock
	try  take // takes it if it is free
}

type take func(ctx context.Context, key string) (held, error)

type held struct {
	unlock func() error
	// extend sets the time that is left. It says whether the lock is held.
	extend func(ttl time.Duration) (bool, error)
}

// openRedislock is redislock with a linear backoff, which is what its documentation's example has. It neither
// renews nor counts tokens. It takes any client.
func openRedislock(rdb redislock.RedisClient, ttl, backoff time.Duration) locker {
	c := redislock.New(rdb)
	obtain := func(o *redislock.Options) take {
		return func(ctx context.Context, key string) (held, error) {
			l, err := c.Obtain(ctx, key, ttl, o)
			return held{
				func() error { return l.Release(context.Background()) },
				func(ttl time.Duration) (bool, error) {
					err := l.Refresh(context.Background(), ttl, nil)
					return err == nil, err
				},
			}, err
		}
	}
	// The strategy keeps no state: it may be shared.
	return locker{obtain(&redislock.Options{RetryStrategy: redislock.LinearBackoff(backoff)}), obtain(nil)}
}

// openRedsync is redsync on one server: a try each 50 to 250 ms. A Mutex is made for each turn, for it holds the
// state of one lock.
func openRedsync(rdb *redis.Client, options ...redsync.Option) locker {
	rs := redsync.New(goredis.NewPool(rdb))
	with := func(lock func(*redsync.Mutex, context.Context) error) take {
		return func(ctx context.Context, key string) (held, error) {
			m := rs.NewMutex(key, options...)
			return held{
				func() error { return unlocked(m.Unlock()) },
				func(time.Duration) (bool, error) { return m.Extend() }, // to the expiry that it was made with
			}, lock(m, ctx)
		}
	}
	return locker{with((*redsync.Mutex).LockContext), with((*redsync.Mutex).TryLockContext)}
}

func unlocked(ok bool, err error) error {
	if err == nil && !ok {
		return errors.New("not unlocked")
	}
	return err
}

// openMutex is leasehold's lock: renewed, with a fencing token, turns in the order of arrival.
func openMutex(tb testing.TB, rdb *redis.Client, ttl time.Duration) locker {
	tb.Helper()
	m := redistest.Must(mutex.New(rdb, mutex.Config{Name: "peers", TTL: ttl}))(tb)
	closes(tb, m)
	with := func(lock func(context.Context, string) (*mutex.Lock, error)) take {
		return func(ctx context.Context, key string) (held, error) {
			l, err := lock(ctx, key)
			return held{
				func() error { return l.Unlock() },
				func(ttl time.Duration) (bool, error) {
					err := l.Extend(context.Background(), ttl)
					return err == nil, err
				},
			}, err
		}
	}
	return locker{with(m.Lock), with(m.TryLock)}
}

func closes(tb testing.TB, m *mutex.Mutex) {
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = m.Close(ctx)
	})
}

// openRueidislock is rueidislock as its documentation has it for one server of
// 7.0.5 or later: KeyMajority 1 and NoLoopTracking. It has its own client, with
// the one connection that it insists on and pipelines by itself. It renews.
//
// TryNextAfter is for going on to the next of several keys, of which there is one: so it is no reason to give up,
// which the default of 20 ms is on a busy machine, after which WithContext waits for a message that nobody sends.
func openRueidislock(tb testing.TB, srv *harness.Server) locker {
	tb.Helper()
	all := redistest.Must(rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   redistest.Must(rueidis.ParseURL(srv.URL()))(tb),
		KeyMajority:    1,
		NoLoopTracking: true,
		TryNextAfter:   5 * time.Second,
	}))(tb)
	tb.Cleanup(all.Close)
	return locker{lock: func(ctx context.Context, key string) (held, error) {
		_, unlock, err := all.WithContext(ctx, key)
		return held{unlock: func() error { unlock(); return nil }}, err
	}}
}

// turn waits for the lock of key, runs hold with it, and gives it back. ctx bounds the wait alone: what was taken
// is given back also when ctx has ended.
type turn func(ctx context.Context, key string, hold func()) error

// forNothing holds a lock for no time.
func forNothing() {}

func (l locker) turn(ctx context.Context, key string, hold func()) error {
	h, err := l.lock(ctx, key)
	if err != nil {
		return err
	}
	hold()
	return h.unlock()
}

// A competitor is what takes turns, by the name of its metrics. rdb is the client to use, of a library that uses go-redis.
type competitor struct {
	name string
	open func(tb testing.TB, srv *harness.Server, rdb *redis.Client) turn
}

// competitors are all libraries, with a TTL of 30 s, but redsync with its default of 8 s. redislock tries as
// often as backoff says; redsync has as many tries as ctx allows instead of 32, since all others wait for as long
// as ctx allows, too.
func competitors(backoff time.Duration) []competitor {
	return []competitor{
		{"mutex", func(tb testing.TB, _ *harness.Server, rdb *redis.Client) turn { return openMutex(tb, rdb, 0).turn }},
		{"redislock", func(_ testing.TB, _ *harness.Server, rdb *redis.Client) turn {
			return openRedislock(rdb, 30*time.Second, backoff).turn
		}},
		{"redsync", func(_ testing.TB, _ *harness.Server, rdb *redis.Client) turn {
			return openRedsync(rdb, redsync.WithTries(math.MaxInt)).turn
		}},
		{"rueidislock", func(tb testing.TB, srv *harness.Server, _ *redis.Client) turn { return openRueidislock(tb, srv).turn }},
	}
}

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
