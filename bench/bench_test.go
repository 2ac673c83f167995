// Package bench measures leasehold against floors that no design can beat: the same client, the same server, the
// same run. Figures mean something as ratios and differences within one run; absolute times are the machine's.
// The module bench/peers measures other libraries in the same way.
//
// Run it with: make bench
package bench

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/multi"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// closes has a handle closed with the benchmark: closes(mutex.New(rdb, cfg))(b).
func closes[H interface{ Close(context.Context) error }](handle H, err error) func(testing.TB) H {
	return func(b testing.TB) H {
		b.Helper()
		redistest.WantErr(b, err)
		b.Cleanup(func() { _ = handle.Close(context.Background()) })
		return handle
	}
}

func locks(b testing.TB, rdb redis.UniversalClient, mod ...func(*mutex.Config)) *mutex.Mutex {
	b.Helper()
	cfg := mutex.Config{Name: "bench"}
	for _, m := range mod {
		m(&cfg)
	}
	return closes(mutex.New(rdb, cfg))(b)
}

func permits(b testing.TB, rdb redis.UniversalClient, limit int, mod ...func(*semaphore.Config)) *semaphore.Semaphore {
	b.Helper()
	cfg := semaphore.Config{Name: "bench", Limit: limit}
	for _, m := range mod {
		m(&cfg)
	}
	return closes(semaphore.New(rdb, cfg))(b)
}

func cache[T any](b testing.TB, rdb redis.UniversalClient, mod ...func(*singleflight.Config[T])) *singleflight.Group[T] {
	b.Helper()
	cfg := singleflight.Config[T]{Name: "bench", TTL: time.Hour}
	for _, m := range mod {
		m(&cfg)
	}
	return closes(singleflight.New(rdb, cfg))(b)
}

// contenders are goroutines of four clients of srv that want the lock of key.
func contenders(b testing.TB, name, key string, srv *harness.Server, mod ...func(*mutex.Config)) harness.Contenders {
	b.Helper()
	return harness.Contenders{Name: name, Clients: clients, Turn: harness.Spread(clients, func(int) func(context.Context, func()) error {
		m := locks(b, srv.Client(), mod...)
		return func(ctx context.Context, hold func()) error { return lockTurn(ctx, m, key, hold) }
	})}
}

// Contenders are so many clients, and goroutines of each.
const clients, goroutines = 4, 16

// lockTurn is a pair: it takes a lock, holds it for hold, if that is not nil, and gives it back.
func lockTurn(ctx context.Context, m *mutex.Mutex, key string, hold func()) error {
	l, err := m.Lock(ctx, key)
	if err != nil {
		return err
	}
	if hold != nil {
		hold()
	}
	return l.Unlock()
}

func permitTurn(ctx context.Context, s *semaphore.Semaphore, key string, hold func()) error {
	l, err := s.Acquire(ctx, key)
	if err != nil {
		return err
	}
	if hold != nil {
		hold()
	}
	return l.Release()
}

// 64 goroutines of four clients want two to four of eight locks each: with multi, which takes any order, and with
// locks that are taken one after the other in the right order.
func BenchmarkSeveral(b *testing.B) {
	srv := harness.StartOwn(b)
	var handles []*mutex.Mutex
	for range clients {
		handles = append(handles, locks(b, srv.Client()))
	}
	crowd := func(name string, turn func(ctx context.Context, m *mutex.Mutex, keys []string) error) harness.Crowd {
		return harness.Crowd{Name: name, Pair: func(ctx context.Context, i int) error {
			var keys []string
			for _, n := range rand.Perm(8)[:2+rand.IntN(3)] {
				keys = append(keys, strconv.Itoa(n))
			}
			return turn(ctx, handles[i%clients], keys)
		}}
	}
	var nested func(ctx context.Context, m *mutex.Mutex, keys []string) error
	nested = func(ctx context.Context, m *mutex.Mutex, keys []string) error {
		if len(keys) == 0 {
			return nil
		}
		return lockTurn(ctx, m, keys[0], func() { redistest.NoError(b, nested(ctx, m, keys[1:])) })
	}
	harness.InterleaveCrowds(b, clients*goroutines, 500*time.Millisecond,
		crowd("multi", func(ctx context.Context, m *mutex.Mutex, keys []string) error {
			var items []multi.Item
			for _, key := range keys {
				items = append(items, multi.Lock(m, key))
			}
			l, err := multi.Acquire(ctx, items...)
			if err != nil {
				return err
			}
			return l.Release()
		}),
		crowd("nested", func(ctx context.Context, m *mutex.Mutex, keys []string) error {
			return nested(ctx, m, slices.Sorted(slices.Values(keys)))
		}))
}

// voters starts five servers behind a network with a round trip, and returns a function that makes a
// client for each of the first n.
func voters(b *testing.B, roundTrip time.Duration) (near []*redis.Client, clients func(n int) []redis.UniversalClient) {
	b.Helper()
	var far []*harness.Server
	for range 5 {
		s := harness.StartOwn(b)
		near = append(near, s.Client())
		far = append(far, s.Distant(b, roundTrip))
	}
	return near, func(n int) (all []redis.UniversalClient) {
		for _, s := range far[:n] {
			all = append(all, s.Client())
		}
		return all
	}
}

func quorum(b *testing.B, rdbs []redis.UniversalClient, name string) *mutex.Mutex {
	b.Helper()
	return closes(mutex.NewQuorum(rdbs, mutex.Config{Name: name}))(b)
}

// A lone caller takes and gives back a lock of one server, of three and of five, on the loopback and
// over 1 ms each way. The servers are asked at the same time, but share the machine here.
func BenchmarkQuorumLonePair(b *testing.B) {
	for name, roundTrip := range map[string]time.Duration{"near": 0, "far": 2 * time.Millisecond} {
		b.Run(name, func(b *testing.B) {
			_, clients := voters(b, roundTrip)
			pair := func(name string, m *mutex.Mutex) harness.Runner {
				return harness.Runner{Name: name, Pair: func() error { return lockTurn(context.Background(), m, "k", nil) }}
			}
			harness.Interleave(b,
				pair("one", locks(b, clients(1)[0])),
				pair("three", quorum(b, clients(3), "three")),
				pair("five", quorum(b, clients(5), "five")))
		})
	}
}

// Six waiters of six handles get the lock of five servers one after the other. Their order, and the
// calls of scripts on all servers for each hand-over: none of them polls.
func BenchmarkQuorumHandover(b *testing.B) {
	near, clients := voters(b, 0)
	first := quorum(b, clients(5), "handover")
	var handles []*mutex.Mutex
	for range 6 {
		m := quorum(b, clients(5), "handover")
		redistest.WantErr(b, lockTurn(b.Context(), m, "begin", nil))
		handles = append(handles, m)
	}
	calls := func() (n float64) { // scripts that the servers have run
		for _, s := range near {
			n += harness.Scripts(b, s)
		}
		return n
	}
	var ran float64
	var inOrder, rounds int
	for b.Loop() {
		l := redistest.Must(first.Lock(b.Context(), "k"))(b)
		turns := make(chan int, len(handles))
		var all sync.WaitGroup
		for i, m := range handles {
			all.Go(func() {
				redistest.NoError(b, lockTurn(context.Background(), m, "k", func() { turns <- i }))
			})
			for waiting := 0; waiting <= i; {
				waiting = redistest.Must(first.Inspect(b.Context(), "k"))(b).Waiting
			}
		}
		before := calls()
		redistest.WantErr(b, l.Unlock())
		all.Wait()
		ran += calls() - before
		rounds++
		right := 1
		for i := range handles {
			if <-turns != i {
				right = 0
			}
		}
		inOrder += right
	}
	turns := float64(rounds * (len(handles) + 1))
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ran/turns/float64(len(near)), "calls/turn")
	b.ReportMetric(float64(inOrder)/float64(rounds), "in-order/round")
}
