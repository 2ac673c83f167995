package bench

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

func init() { redistest.RegisterChild("bench-waiters", waitersChild) }

// waitersChild is a process with many waiters for one lock.
func waitersChild(args []string) int {
	m := harness.Value(mutex.New(harness.Dial(args[0]), mutex.Config{Name: "bench"}))
	for range harness.Value(strconv.Atoi(args[1])) {
		go func() { harness.Value(m.Lock(context.Background(), "k")) }()
	}
	fmt.Println("ready")
	return harness.Serve(func([]string) {})
}

// A thousand that wait for one lock, and nothing happens: the commands that each
// process sends per second, where they are spread over four processes and where
// all are of one. The holder's lease is too long to be renewed meanwhile.
func BenchmarkIdleWaiters(b *testing.B) {
	const waiters = 1000
	// Six signs of life and three PINGs of a quiet subscription.
	const window = 9 * time.Second
	settings := []struct {
		name      string
		processes int
	}{{"four", 4}, {"one", 1}}
	stats := make([]*redis.Client, len(settings))
	for i, s := range settings {
		srv := harness.StartOwn(b)
		stats[i] = srv.Client()
		m := locks(b, stats[i], func(c *mutex.Config) { c.TTL = time.Hour })
		redistest.Must(m.Lock(context.Background(), "k"))(b)
		harness.Children(b, s.processes, "bench-waiters", srv.URL(), strconv.Itoa(waiters/s.processes))
		waiting(b, stats[i], keys.Mutex, "k", waiters)
	}
	time.Sleep(2 * time.Second) // subscriptions made, and asked once since
	harness.Once(b, func() {
		before := make([]float64, len(settings))
		for i := range settings {
			before[i] = commands(b, stats[i])
		}
		time.Sleep(window)
		for i, s := range settings {
			sent := commands(b, stats[i]) - before[i]
			waiting(b, stats[i], keys.Mutex, "k", waiters) // all still there
			b.ReportMetric(sent/window.Seconds()/float64(s.processes), s.name+"-commands/s")
		}
	})
}
