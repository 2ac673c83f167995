package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

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
	var spent time.Duration
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
		before, began := calls(), time.Now()
		redistest.WantErr(b, l.Unlock())
		all.Wait()
		spent += time.Since(began)
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
	b.ReportMetric(harness.Micros(spent)/turns, "handover-µs")
	b.ReportMetric(ran/turns/float64(len(near)), "calls/turn")
	b.ReportMetric(float64(inOrder)/float64(rounds), "in-order/round")
}
