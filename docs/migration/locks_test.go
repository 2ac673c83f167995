package migration

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// client is a client of the server at REDIS_URL, or of an embedded one.
func client(t *testing.T) *redis.Client {
	t.Helper()
	url := os.Getenv("REDIS_URL")
	if url == "" {
		return redistest.MiniClient(t)
	}
	rdb := redis.NewClient(redistest.Must(redis.ParseURL(url))(t))
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
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
func checkRollout(t *testing.T, rdb *redis.Client, first release) {
	t.Helper()
	locks := redistest.Must(mutex.New(rdb, mutex.Config{Name: "orders"}))(t)
	defer func() { _ = locks.Close(context.Background()) }()
	third := leaseholdOnly(locks)
	second := underBoth(first, third)
	redistest.Expect(t, mostAtOnce(t, first, second), 1, "first and second release: %d at once")
	redistest.Expect(t, mostAtOnce(t, second, third), 1, "second and third release: %d at once")
	if n := mostAtOnce(t, first, third); n == 1 {
		t.Error("first and third release exclude each other: what is the second one for?")
	}
}

func TestRolloutFromRedsyncHasNoGap(t *testing.T) {
	rdb := client(t)
	checkRollout(t, rdb, redsyncOnly(redsync.New(goredis.NewPool(rdb))))
}

func TestRolloutFromRedislockHasNoGap(t *testing.T) {
	rdb := client(t)
	checkRollout(t, rdb, redislockOnly(redislock.New(rdb)))
}

func TestRolloutFromRueidislockHasNoGap(t *testing.T) {
	url := os.Getenv("REDIS_URL")
	if url == "" {
		t.Skip("rueidislock needs client tracking, which the embedded server does not have: set REDIS_URL")
	}
	locker := redistest.Must(rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: redistest.Must(rueidis.ParseURL(url))(t), KeyMajority: 1, NoLoopTracking: true, TryNextAfter: time.Second,
	}))(t)
	t.Cleanup(locker.Close)
	// A waiter of rueidislock may miss the end of a lock and wait for ever, so it gives up after a second, and asks anew.
	checkRollout(t, client(t), func(ctx context.Context, id string, ship work) error {
		for {
			waits, giveUp := context.WithCancel(ctx)
			timer := time.AfterFunc(time.Second, giveUp)
			err := rueidislockOnly(locker)(waits, id, func(ctx context.Context, id string) error {
				timer.Stop()
				return ship(ctx, id)
			})
			giveUp()
			if !errors.Is(err, context.Canceled) || ctx.Err() != nil {
				return err
			}
		}
	})
}
