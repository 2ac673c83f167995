package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

func withLocalFor(localFor time.Duration) func(*mutex.Config) {
	return func(c *mutex.Config) { c.LocalFor = localFor }
}

// One key, 64 goroutines of four clients, each holding it for 1 ms, by LocalFor and by
// the round trip to the server: see harness.Contend.
func BenchmarkLocalTurns(b *testing.B) {
	for _, roundTrip := range []time.Duration{0, 1 * time.Millisecond, 2 * time.Millisecond} {
		b.Run(fmt.Sprintf("roundtrip=%v", roundTrip), func(b *testing.B) {
			srv := harness.StartOwn(b)
			far := srv.Distant(b, roundTrip)
			all := []harness.Contenders{harness.Local()}
			for _, localFor := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
				all = append(all, contenders(b, fmt.Sprint("local", localFor), localFor.String(), far, withLocalFor(localFor)))
			}
			harness.Contend(b, srv.Client(), clients*goroutines, all...)
		})
	}
}

// A semaphore of 8 permits, 200 goroutines of four clients and holds of 5 ms, 2 ms away
// from the server: "permits-held" is how much of "permits-limit" is used.
func BenchmarkLocalPermits(b *testing.B) {
	const goroutines, limit, hold = 50, 8, 5 * time.Millisecond
	srv := harness.StartOwn(b)
	far := srv.Distant(b, 2*time.Millisecond)
	for _, localFor := range []time.Duration{0, 20 * time.Millisecond} {
		b.Run(fmt.Sprintf("localfor=%v", localFor), func(b *testing.B) {
			turn := harness.Spread(clients, func(int) func(context.Context, func()) error {
				s := permits(b, far.Client(), limit, func(c *semaphore.Config) { c.LocalFor = localFor })
				return func(ctx context.Context, hold func()) error { return permitTurn(ctx, s, "k", hold) }
			})
			harness.Contend(b, srv.Client(), clients*goroutines, harness.Contenders{Name: "permits", Turn: turn, Hold: hold})
			b.ReportMetric(limit, "permits-limit")
		})
	}
}

// What LocalFor costs a lone caller; and what of that is its own process's work: there each
// script is answered from memory, with what the server answered the first time.
func BenchmarkLocalLonePair(b *testing.B) {
	for _, memory := range []bool{false, true} {
		b.Run(fmt.Sprintf("memory=%v", memory), func(b *testing.B) {
			srv := harness.Start(b)
			pair := func(localFor time.Duration) func() error {
				rdb := srv.Client()
				if memory {
					rdb.AddHook(redistest.FirstReplies())
				}
				m, key, ctx := locks(b, rdb, withLocalFor(localFor)), localFor.String(), context.Background()
				return func() error { return lockTurn(ctx, m, key, nil) }
			}
			harness.Interleave(b,
				harness.Runner{Name: "strict", Pair: pair(0)},
				harness.Runner{Name: "local", Pair: pair(20 * time.Millisecond)})
		})
	}
}

func keeper(b testing.TB, rdb redis.UniversalClient, limit int, keepFor time.Duration) *semaphore.Semaphore {
	b.Helper()
	return permits(b, rdb, limit, func(c *semaphore.Config) { c.TTL, c.KeepFor = 5*time.Second, keepFor })
}

var kept = []struct {
	name string
	long time.Duration
}{{"strict", 0}, {"kept", time.Second}}

// A lone caller that takes and gives back one permit. "kept" follows ten pairs without KeepFor, so with a long
// round trip its code is no longer in the caches of the processor; "warm" are the pairs after it.
func BenchmarkKeepLonePair(b *testing.B) {
	for _, roundTrip := range []time.Duration{0, 2 * time.Millisecond} {
		b.Run(fmt.Sprintf("roundtrip=%v", roundTrip), func(b *testing.B) {
			srv := harness.StartOwn(b).Distant(b, roundTrip)
			var all []harness.Runner
			for _, k := range kept {
				s := keeper(b, srv.Client(), 5, k.long)
				all = append(all, harness.Runner{Name: k.name, Pair: func() error { return permitTurn(context.Background(), s, k.name, nil) }})
			}
			again := all[len(all)-1]
			again.Name = "warm"
			harness.Interleave(b, append(all, again)...)
		})
	}
}

// 64 goroutines of one client on one key, below its cap.
func BenchmarkKeepManyGoroutines(b *testing.B) {
	srv := harness.StartOwn(b)
	var all []harness.Crowd
	for _, k := range kept {
		s := keeper(b, srv.Client(), 100, k.long)
		all = append(all, harness.Crowd{Name: k.name, Pair: func(context.Context, int) error { return permitTurn(context.Background(), s, k.name, nil) }})
	}
	harness.InterleaveCrowds(b, 64, 200*time.Millisecond, all...)
}

// Lasting contention: 64 goroutines of four clients want 8 permits, each for 1 ms.
func BenchmarkKeepContention(b *testing.B) {
	srv := harness.StartOwn(b)
	var all []harness.Contenders
	for _, k := range kept {
		turn := harness.Spread(clients, func(int) func(context.Context, func()) error {
			s := keeper(b, srv.Client(), 8, k.long)
			return func(ctx context.Context, hold func()) error { return permitTurn(ctx, s, k.name, hold) }
		})
		all = append(all, harness.Contenders{Name: k.name, Turn: turn, Clients: clients})
	}
	harness.Contend(b, srv.Client(), clients*goroutines, all...)
}

// Two processes that take turns on one key, with gaps of 1 ms: keeping never pays.
func BenchmarkKeepInTurn(b *testing.B) {
	srv := harness.StartOwn(b)
	times := make([][]time.Duration, len(kept))
	var pairs [][2]*semaphore.Semaphore
	for _, k := range kept {
		pairs = append(pairs, [2]*semaphore.Semaphore{keeper(b, srv.Client(), 1, k.long), keeper(b, srv.Client(), 1, k.long)})
	}
	for b.Loop() {
		for i, k := range kept {
			for range 20 {
				for _, s := range pairs[i] {
					time.Sleep(time.Millisecond)
					began := time.Now()
					l := redistest.Must(s.Acquire(context.Background(), k.name))(b)
					times[i] = append(times[i], time.Since(began))
					redistest.WantErr(b, l.Release())
				}
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, k := range kept {
		harness.Report(b, k.name, times[i])
	}
}

// A gateway: 8 clients serve the requests of 100 tenants. Their shares follow Zipf's law. Each
// tenant may have 20 requests at a time, and the hottest one offers so much that it uses 30, 70 or
// 95 % of that on the average. Requests come at random times and last for 20 ms. An op is a second.
func BenchmarkKeepGateway(b *testing.B) {
	for _, roundTrip := range []time.Duration{0, 2 * time.Millisecond} {
		for _, load := range []int{30, 70, 95} {
			for _, k := range kept {
				b.Run(fmt.Sprintf("roundtrip=%v/load=%d/%s", roundTrip, load, k.name), func(b *testing.B) {
					gateway(b, roundTrip, float64(load)/100, k.long)
				})
			}
		}
	}
}

func gateway(b *testing.B, roundTrip time.Duration, load float64, keepFor time.Duration) {
	const clients, tenants, limit, hold = 8, 100, 20, 20 * time.Millisecond
	srv := harness.StartOwn(b)
	far := srv.Distant(b, roundTrip)
	var handles []*semaphore.Semaphore
	for range clients {
		handles = append(handles, keeper(b, far.Client(), limit, keepFor))
	}
	shares, whole := make([]float64, tenants), 0.0
	for i := range shares {
		whole += 1 / float64(i+1)
		shares[i] = whole
	}
	gap := float64(hold) / (load * limit * whole) // between two requests, on the average
	var mu sync.Mutex
	var took []time.Duration
	failed := 0
	request := func(s *semaphore.Semaphore, key string, measured bool) {
		began := time.Now()
		l, err := s.Acquire(context.Background(), key)
		d := time.Since(began)
		if err == nil {
			time.Sleep(hold)
			err = l.Release()
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case errors.Is(err, leasehold.ErrUnavailable), errors.Is(err, leasehold.ErrLost): // the machine stood still
			failed++
		case err != nil:
			b.Error(err)
		}
		if measured {
			took = append(took, d)
		}
	}
	dice := rand.New(rand.NewPCG(1, 2))
	run := func(span time.Duration, measured bool) {
		var all sync.WaitGroup
		at, end := time.Now(), time.Now().Add(span)
		for at.Before(end) {
			at = at.Add(time.Duration(dice.ExpFloat64() * gap))
			time.Sleep(time.Until(at))
			pick, i := dice.Float64()*whole, 0
			for shares[i] < pick {
				i++
			}
			s, key := handles[dice.IntN(clients)], fmt.Sprint("tenant", i)
			all.Go(func() { request(s, key, measured) })
		}
		all.Wait()
	}
	run(2*time.Second, false)
	failed = 0
	stats := srv.Client()
	before := harness.Scripts(b, stats)
	run(time.Duration(b.N)*time.Second, true)
	n := float64(max(1, len(took)))
	b.ReportMetric(0, "ns/op")
	b.ReportMetric((harness.Scripts(b, stats)-before)/n, "calls/request")
	b.ReportMetric(n/float64(b.N), "requests/s")
	harness.Report(b, "", took)
	b.ReportMetric(100*float64(failed)/n, "failed-%")
}
