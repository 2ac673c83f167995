package peers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dtm-labs/rockscache"
	"github.com/go-redis/cache/v9"
	"github.com/redis/go-redis/v9"
	"github.com/vmihailenco/msgpack/v5"

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

// Production has a network between the clients and the server. The benchmarks below have one, too: harness.Delay
// in each direction, so that a round trip takes about 1 ms. What is compared runs in turns over the same network.

// A lone caller, beside two bare calls of a script that does nothing, which are two round
// trips: see BenchmarkLonePair.
func BenchmarkNetworkLonePair(b *testing.B) { lonePairs(b, harness.Start(b).Behind(b)) }

// One key that 64 goroutines of four clients want for 1 ms: see BenchmarkContended. Its floor is harness.Pings.
func BenchmarkNetworkContended(b *testing.B) {
	near := harness.Start(b)
	far := near.Behind(b)
	contend(b, far, near.Client(), harness.Pings(far.Client()))
}

// A lock that is given back while one goroutine of another client waits for it, from the call that gives back to the
// return of the one that takes. The floor is a PUBLISH and a subscriber: one way to the server and one from it.
func BenchmarkNetworkHandover(b *testing.B) {
	far := harness.Start(b).Behind(b)
	ctx := context.Background()
	rdb := far.Client()
	all := []harness.Measured{{Name: "floor", Once: harness.Published(b, far, func(ctx context.Context, channel, message string) error {
		return rdb.Publish(ctx, channel, message).Err()
	})}}
	for _, l := range competitors(10 * time.Millisecond) {
		key := l.name + "-handover"
		two := [2]turn{l.open(b, far, far.Client()), l.open(b, far, far.Client())}
		n := 0
		all = append(all, harness.Measured{Name: l.name, Once: func() time.Duration {
			n++
			return handOver(b, two[n%2], two[1-n%2], ctx, key, time.Duration(n%20)*time.Millisecond)
		}})
	}
	for _, m := range all {
		m.Once() // scripts loaded, subscriptions made
	}
	for i, times := range harness.Turns(b, all...) {
		harness.Report(b, all[i].Name, times)
	}
}

// handOver has one hold key until the other has waited for a while, which shift lengthens
// so that it does not end at the same place between two tries.
func handOver(b *testing.B, one, other turn, ctx context.Context, key string, shift time.Duration) (took time.Duration) {
	held, release := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		redistest.NoError(b, one(ctx, key, func() { close(held); <-release }))
	})
	<-held
	var got time.Time
	all.Go(func() {
		redistest.NoError(b, other(ctx, key, func() { got = time.Now() }))
	})
	time.Sleep(20*time.Millisecond + shift)
	began := time.Now()
	close(release)
	all.Wait()
	return got.Sub(began)
}

// A key that is not cached, and 8 processes of 200 callers each: see BenchmarkStampede.
func BenchmarkNetworkStampede(b *testing.B) {
	harness.NewFleet(b, harness.Start(b).Behind(b), 8, 200, 100*time.Millisecond, 0).
		Compare("leasehold", "gorediscache", "rockscache", "rockscache-10ms", "ping")
}

// A thousand goroutines of four clients wait for one key that a fifth client holds: what does their waiting cost
// the server? "<who>-commands/s" is what the clients send, the holder's renewals among them, and what shows
// whether the server is there. redislock polls each 100 ms, as in its documentation's example.
func BenchmarkIdleWaiters(b *testing.B) {
	const (
		clients, waiters = 4, 1000
		settle           = time.Second     // all have dialled and made their first try
		span             = 3 * time.Second // twice leasehold's sign of life
	)
	// sends is what a client of that library sends. The other commands that the server runs meanwhile are called
	// by the library's scripts, which call none of these; or they open connections. (leasehold's handles also ask
	// for the time, when they begin to wait; here only its scripts do.)
	sends := map[string][]string{
		"mutex":       {"evalsha", "eval", "ping", "subscribe", "unsubscribe"},
		"redislock":   {"evalsha", "eval"},
		"redsync":     {"evalsha", "eval", "set"},
		"rueidislock": {"evalsha", "eval", "ping"},
	}
	all := competitors(100 * time.Millisecond)
	turns := make([][]turn, len(all)) // of each library, by client; the last one's holds
	stats := make([]*redis.Client, len(all))
	for i, l := range all {
		srv := harness.StartOwn(b) // one each: a client that has nothing to do may ping all the same
		stats[i] = srv.Client()
		for range clients + 1 {
			turns[i] = append(turns[i], l.open(b, srv, srv.Client(harness.Pool(waiters/clients))))
		}
	}

	// What is counted is the waiting alone: not the first tries, nor the end.
	sent := make([]float64, len(all))
	var seconds float64
	for b.Loop() {
		for i, l := range all {
			whileTheyWait(b, l.name+"-idle", turns[i][clients], turns[i][:clients], waiters, func() {
				time.Sleep(settle)
				before := redistest.Commandstats(b, stats[i])
				time.Sleep(span)
				after := redistest.Commandstats(b, stats[i])
				for _, command := range sends[l.name] {
					sent[i] += float64(after[command] - before[command])
				}
			})
		}
		seconds += span.Seconds()
	}
	b.ReportMetric(0, "ns/op")
	for i, l := range all {
		b.ReportMetric(sent[i]/seconds, l.name+"-commands/s")
	}
}

// whileTheyWait calls measure while n goroutines, spread over all, wait for key, which holder has
// taken. None of them may get it meanwhile: it would not have been a wait.
func whileTheyWait(b testing.TB, key string, holder turn, all []turn, n int, measure func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	redistest.WantErr(b, holder(ctx, key, func() {
		var waiters sync.WaitGroup
		var granted atomic.Int64
		for i := range n {
			waiters.Go(func() {
				if all[i%len(all)](ctx, key, forNothing) == nil {
					granted.Add(1)
				}
			})
		}
		measure()
		cancel()
		waiters.Wait()
		redistest.Check(b, granted.Load() == 0, "%s: %d waiters got what another held", key, granted.Load())
	}))
}

// openGoRedisCache is go-redis/cache's Once, without its local cache, which nothing invalidates, and with msgpack
// alone: its default compresses with S2, and what is stored would not be the same. It has no lock: a key is
// loaded once in each process.
func openGoRedisCache(rdb *redis.Client, _ time.Duration) (harness.Fetch, func(), error) {
	c := cache.New(&cache.Options{
		Redis:     rdb,
		Marshal:   func(v any) ([]byte, error) { return msgpack.Marshal(v) },
		Unmarshal: func(data []byte, v any) error { return msgpack.Unmarshal(data, v) },
	})
	return func(key string, load func() (harness.User, error)) (harness.User, error) {
		var u harness.User
		err := c.Once(&cache.Item{
			Key:   key,
			Value: &u,
			TTL:   time.Hour,
			Do:    func(*cache.Item) (any, error) { return load() },
		})
		return u, err
	}, func() {}, nil
}

// openRockscache is rockscache with NewDefaultOptions, as its documentation has it, by which who waits asks every
// 100 ms, or as often as sleep says. It stores strings: msgpack around it. Its locks are of whole seconds.
func openRockscache(sleep time.Duration) harness.Cache {
	return func(rdb *redis.Client, lease time.Duration) (harness.Fetch, func(), error) {
		o := rockscache.NewDefaultOptions()
		o.LockSleep = sleep
		if lease > 0 {
			o.LockExpire = lease
		}
		c := rockscache.NewClient(rdb, o)
		return func(key string, load func() (harness.User, error)) (harness.User, error) {
			var u harness.User
			packed, err := c.Fetch(key, time.Hour, func() (string, error) {
				v, err := load()
				if err != nil {
					return "", err
				}
				data, err := msgpack.Marshal(v)
				return string(data), err
			})
			if err != nil {
				return u, err
			}
			err = msgpack.Unmarshal([]byte(packed), &u)
			return u, err
		}, func() {}, nil
	}
}

// caches are the competitors by the names of their metrics. How often rockscache
// asks matters to those that wait only.
var caches = map[string]harness.Cache{
	"leasehold":       harness.Singleflight,
	"gorediscache":    openGoRedisCache,
	"rockscache":      openRockscache(100 * time.Millisecond),
	"rockscache-10ms": openRockscache(10 * time.Millisecond),
}

func init() { harness.RegisterCallers(caches) }

// A cached value, beside a bare GET and decode of the same. All use one client.
func BenchmarkHit(b *testing.B) {
	harness.Hits(b, func(b *testing.B, rdb *redis.Client, v harness.User) []harness.Runner {
		return []harness.Runner{
			{Name: "hit", Pair: hit(b, rdb, v, "leasehold")},
			{Name: "gorediscache", Pair: hit(b, rdb, v, "gorediscache")},
			{Name: "rockscache", Pair: hit(b, rdb, v, "rockscache")},
		}
	})
}

// hit asks for v, which is cached when hit returns.
func hit(b *testing.B, rdb *redis.Client, v harness.User, who string) func() error {
	b.Helper()
	get, stop, err := caches[who](rdb, 0)
	redistest.WantErr(b, err)
	b.Cleanup(stop)
	key := who + "-hit"
	redistest.Must(get(key, func() (harness.User, error) { return v, nil }))(b)
	missed := func() (harness.User, error) { return harness.User{}, errors.New("a miss") }
	return func() error {
		u, err := get(key, missed)
		if err == nil && len(u.Notes) != len(v.Notes) {
			return errors.New("another value")
		}
		return err
	}
}

// See bench.BenchmarkStampede. An op is a cold key for each library.
func BenchmarkStampede(b *testing.B) {
	harness.NewFleet(b, harness.Start(b), 8, 200, 100*time.Millisecond, 0).
		Compare("leasehold", "gorediscache", "rockscache", "rockscache-10ms", "ping")
}

// The same with a load of three times the lease: 4 processes of 20 callers each, a lease of 1 s, which is the
// shortest that rockscache takes, and a load of 3 s. go-redis/cache has no lease, and loads once in each process.
// What is reported is as with BenchmarkStampede.
func BenchmarkLongLoad(b *testing.B) {
	const lease = time.Second
	harness.NewFleet(b, harness.Start(b), 4, 20, 3*lease, lease).
		Compare("leasehold", "gorediscache", "rockscache")
}
