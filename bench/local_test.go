package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

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
