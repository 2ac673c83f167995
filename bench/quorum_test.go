package bench

import (
	"context"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
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
	m, err := mutex.NewQuorum(rdbs, mutex.Config{Name: name})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.Close(context.Background()) })
	return m
}

// A lone caller takes and gives back a lock of one server, of three and of five, on the loopback and
// over 1 ms each way. The servers are asked at the same time, but share the machine here.
func BenchmarkQuorumLonePair(b *testing.B) {
	for name, roundTrip := range map[string]time.Duration{"near": 0, "far": 2 * time.Millisecond} {
		b.Run(name, func(b *testing.B) {
			_, clients := voters(b, roundTrip)
			pair := func(name string, m *mutex.Mutex) harness.Runner {
				return harness.Runner{Name: name, Pair: func() error {
					l, err := m.Lock(context.Background(), "k")
					if err != nil {
						return err
					}
					return l.Unlock()
				}}
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
		l, err := m.Lock(b.Context(), "begin")
		if err == nil {
			err = l.Unlock()
		}
		if err != nil {
			b.Fatal(err)
		}
		handles = append(handles, m)
	}
	var spent time.Duration
	var calls, inOrder, rounds int
	for b.Loop() {
		l, err := first.Lock(b.Context(), "k")
		if err != nil {
			b.Fatal(err)
		}
		turns := make(chan int, len(handles))
		var all sync.WaitGroup
		for i, m := range handles {
			all.Go(func() {
				l, err := m.Lock(context.Background(), "k")
				if err != nil {
					b.Error(err)
					return
				}
				turns <- i
				if err := l.Unlock(); err != nil {
					b.Error(err)
				}
			})
			for waiting := 0; waiting <= i; {
				state, err := first.Inspect(b.Context(), "k")
				if err != nil {
					b.Fatal(err)
				}
				waiting = state.Waiting
			}
		}
		before, began := scriptCalls(b, near), time.Now()
		if err := l.Unlock(); err != nil {
			b.Fatal(err)
		}
		all.Wait()
		spent += time.Since(began)
		calls += scriptCalls(b, near) - before
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
	b.ReportMetric(float64(calls)/turns/float64(len(near)), "calls/turn")
	b.ReportMetric(float64(inOrder)/float64(rounds), "in-order/round")
}

var evalCalls = regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`)

// scriptCalls returns how many scripts the servers have run.
func scriptCalls(b *testing.B, servers []*redis.Client) (n int) {
	b.Helper()
	for _, s := range servers {
		info, err := s.Info(b.Context(), "commandstats").Result()
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range evalCalls.FindAllStringSubmatch(info, -1) {
			calls, _ := strconv.Atoi(m[1])
			n += calls
		}
	}
	return n
}
