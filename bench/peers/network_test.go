package peers

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

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
	all := []harness.Measured{{Name: "floor", Once: publishTo(b, far)}}
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

func publishTo(b *testing.B, srv *harness.Server) func() time.Duration {
	ctx := context.Background()
	inbox := srv.Client().Subscribe(ctx, "floor")
	b.Cleanup(func() { _ = inbox.Close() })
	redistest.Must(inbox.Receive(ctx))(b)
	rdb := srv.Client()
	return func() time.Duration {
		got := make(chan time.Time, 1)
		go func() {
			redistest.NoError(b, redistest.ErrorOf(inbox.ReceiveMessage(ctx)))
			got <- time.Now()
		}()
		time.Sleep(5 * time.Millisecond)
		began := time.Now()
		redistest.WantErr(b, rdb.Publish(ctx, "floor", "123456789012345678901234567890123456789012345678").Err())
		return (<-got).Sub(began)
	}
}

// A key that is not cached, and 8 processes of 200 callers each: see BenchmarkStampede.
func BenchmarkNetworkStampede(b *testing.B) {
	harness.NewFleet(b, harness.Start(b).Behind(b), 8, 200, 100*time.Millisecond, 0).
		Compare("leasehold", "gorediscache", "rockscache", "rockscache-10ms", "ping")
}
