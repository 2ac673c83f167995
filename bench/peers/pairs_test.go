package peers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A lone caller locks and unlocks a free key, beside two bare calls of a script
// that does nothing. All but rueidislock use the same client.
func BenchmarkLonePair(b *testing.B) { lonePairs(b, harness.Start(b)) }

func lonePairs(b *testing.B, srv *harness.Server) {
	b.Helper()
	rdb := srv.Client()
	ctx := context.Background()
	noop := harness.NoopPair(b, rdb)
	all := []harness.Runner{{Name: "floor", Pair: func() error { return noop(ctx) }}}
	for _, l := range competitors(100 * time.Millisecond) {
		take := l.open(b, srv, rdb)
		key := l.name + "-lone" // they would take each other's key
		all = append(all, harness.Runner{Name: l.name, Pair: func() error { return take(ctx, key, forNothing) }})
	}
	harness.Interleave(b, all...)
}

// Many goroutines, each locks and unlocks a key of its own: each library as it comes, with a pool in which there
// is room for all; redislock also with a client that pipelines by itself, which it can be handed; and pairs of
// empty scripts on such a client.
func BenchmarkManyKeys(b *testing.B) {
	const backoff = 100 * time.Millisecond // never used: the keys are free
	for _, n := range []int{1, 4, 16, 64, 128, 256} {
		b.Run(fmt.Sprintf("goroutines=%d", n), func(b *testing.B) {
			srv := harness.Start(b)
			piped := harness.NoopPair(b, srv.AutoPipeline())
			crowds := []harness.Crowd{
				{Name: "piped-floor", Pair: func(ctx context.Context, _ int) error { return piped(ctx) }},
				crowd("redislock-piped", n, openRedislock(srv.AutoPipeline(), 30*time.Second, backoff).turn),
			}
			for _, c := range competitors(backoff) {
				crowds = append(crowds, crowd(c.name, n, c.open(b, srv, srv.Client(harness.Pool(n)))))
			}
			harness.InterleaveCrowds(b, n, 50*time.Millisecond, crowds...)
		})
	}
}

func crowd(name string, n int, take turn) harness.Crowd {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s-%d", name, i)
	}
	return harness.Crowd{Name: name, Pair: func(ctx context.Context, i int) error { return take(ctx, keys[i], forNothing) }}
}

// See bench.BenchmarkContended. An op is too short for those that wait that long between two tries: -benchtime 20x and
// more tells something.
//
// redislock polls each 10 ms, ten times as often as in its documentation, since with that nearly all of the time
// nobody would hold the lock. "redsync-calls/turn" counts its tries, which are a SET and a script that undoes it.
func BenchmarkContended(b *testing.B) {
	srv := harness.Start(b)
	contend(b, srv, srv.Client(), harness.Local())
}

// contend lets crowds of all libraries want a key of srv, beside the crowd floor. stats is a client that counts.
func contend(b *testing.B, srv *harness.Server, stats *redis.Client, floor harness.Contenders) {
	b.Helper()
	const clients, goroutines = 4, 16
	all := []harness.Contenders{floor}
	for _, l := range competitors(10 * time.Millisecond) {
		key := l.name + "-contended"
		all = append(all, harness.Contenders{Name: l.name, Turn: harness.Spread(clients, func(int) func(context.Context, func()) error {
			take := l.open(b, srv, srv.Client(harness.Pool(goroutines)))
			redistest.Require(b, take(context.Background(), key, forNothing), nil, "%s: %v", l.name) // scripts loaded
			return func(ctx context.Context, hold func()) error { return take(ctx, key, hold) }
		})})
	}
	harness.Contend(b, stats, clients*goroutines, all...)
}
