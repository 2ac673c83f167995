package migration

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/leasehold-go/leasehold/mutex"
)

// client is a client of the server at REDIS_URL, or of an embedded one.
func client(t *testing.T) *redis.Client {
	t.Helper()
	opt := &redis.Options{}
	if url := os.Getenv("REDIS_URL"); url != "" {
		var err error
		if opt, err = redis.ParseURL(url); err != nil {
			t.Fatal("REDIS_URL is no Redis URL")
		}
	} else {
		mini := miniredis.RunT(t)
		mini.ClockTTL(true)
		opt.Addr = mini.Addr()
	}
	rdb := redis.NewClient(opt)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func mutexOf(t *testing.T, rdb *redis.Client) *mutex.Mutex {
	t.Helper()
	locks, err := newMutex(rdb)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

// mostAtOnce lets processes of two releases work side by side on one order. It
// returns how many of them worked at once.
func mostAtOnce(t *testing.T, a, b release) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var working, most atomic.Int64
	ship := func(context.Context, string) error {
		n := working.Add(1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		time.Sleep(5 * time.Millisecond)
		working.Add(-1)
		return nil
	}
	id := t.Name() + time.Now().String() // no other run's
	var all sync.WaitGroup
	for _, r := range []release{a, b, a, b} {
		all.Go(func() {
			for range 8 {
				if err := r(ctx, id, ship); err != nil {
					t.Errorf("ship: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
	return most.Load()
}

// checkRollout rolls out the second release among processes of the first, and
// the third among those of the second. Without the second one there would be a
// gap, which shows that the test can see one.
func checkRollout(t *testing.T, first, second, third release) {
	t.Helper()
	if n := mostAtOnce(t, first, second); n != 1 {
		t.Errorf("first and second release: %d at once", n)
	}
	if n := mostAtOnce(t, second, third); n != 1 {
		t.Errorf("second and third release: %d at once", n)
	}
	if n := mostAtOnce(t, first, third); n == 1 {
		t.Error("first and third release exclude each other: what is the second one for?")
	}
}

func TestRolloutFromRedsyncHasNoGap(t *testing.T) {
	rdb := client(t)
	rs, locks := redsync.New(goredis.NewPool(rdb)), mutexOf(t, rdb)
	checkRollout(t, redsyncOnly(rs), redsyncAndLeasehold(rs, locks), leaseholdOnly(locks))
}

func TestRolloutFromRedislockHasNoGap(t *testing.T) {
	rdb := client(t)
	old, locks := redislock.New(rdb), mutexOf(t, rdb)
	checkRollout(t, redislockOnly(old), redislockAndLeasehold(old, locks), leaseholdOnly(locks))
}

func TestRolloutFromRueidislockHasNoGap(t *testing.T) {
	url := os.Getenv("REDIS_URL")
	if url == "" {
		t.Skip("rueidislock needs client tracking, which the embedded server does not have: set REDIS_URL")
	}
	opt, err := rueidis.ParseURL(url)
	if err != nil {
		t.Fatal("REDIS_URL is no Redis URL")
	}
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: opt, KeyMajority: 1, NoLoopTracking: true, TryNextAfter: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	locks := mutexOf(t, client(t))
	checkRollout(t, rueidislockOnly(locker), rueidislockAndLeasehold(locker, locks), leaseholdOnly(locks))
}
