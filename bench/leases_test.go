package bench

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

// trips counts the renewals that a client sends, and the round trips that carry them. A
// holder that begins to listen asks what became of its leases, which is no renewal.
type trips struct{ trips, renewals atomic.Int64 }

func countTrips(rdb *redis.Client) *trips {
	c := new(trips)
	rdb.AddHook(redistest.Around(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		err := send()
		n := 0
		for _, cmd := range cmds {
			if args := cmd.Args(); strings.HasPrefix(cmd.Name(), "eval") && call.ScriptName(args[1].(string)) == "renew" {
				n++
			}
		}
		if n > 0 {
			c.trips.Add(1)
			c.renewals.Add(int64(n))
		}
		return err
	}))
	return c
}

// filling is how many goroutines take what is held at once.
const filling = 64

// fill calls take for 0 to n-1, by many goroutines.
func fill(b testing.TB, n int, take func(i int) error) {
	b.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range filling {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := take(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	if all.Wait(); b.Failed() {
		b.FailNow()
	}
}

// What 10,000 leases cost that one handle holds at the default TTL: goroutines, round trips and CPU over the time
// in which each is renewed once, and memory here. Each has a key of its own ("B/lease") or all are of one key
// ("shared-B/lease"); what the server keeps of a permit is that of one key, too. These have no label.
func BenchmarkHeldLeases(b *testing.B) {
	const n = 10_000
	harness.Once(b, func() {
		memory(b, n)
		renewals(b, n)
	})
}

func memory(b *testing.B, n int) {
	srv := harness.StartOwn(b)
	s := permits(b, srv.Client(harness.Pool(filling)), n, func(c *semaphore.Config) { c.Label = "-" })
	held := make([]*semaphore.Lease, n)
	fill(b, n, func(i int) (err error) { // everything dialled and grown that a handle needs
		held[i], err = s.TryAcquire(context.Background(), "k")
		return err
	})
	fill(b, n, func(i int) error { return held[i].Release() })
	clear(held)
	before := harness.Heap()
	fill(b, n, func(i int) (err error) {
		held[i], err = s.TryAcquire(context.Background(), "k")
		return err
	})
	b.ReportMetric((harness.Heap()-before)/float64(n), "shared-B/lease")
	b.ReportMetric(harness.KeyMemory(b, srv.Client(), part(b, keys.Semaphore, "k", "holders"))/float64(n), "server-B/permit")
	fill(b, n, func(i int) error { return held[i].Release() })
	closed(b, s)
}

func renewals(b *testing.B, n int) {
	ctx := context.Background()
	srv := harness.StartOwn(b)
	rdb := srv.Client(harness.Pool(filling))
	counts := countTrips(rdb)
	m := locks(b, rdb)
	warmRenewals(b, rdb)
	named, held := make([]string, n), make([]*mutex.Lock, n)
	for i := range named {
		named[i] = fmt.Sprint("key-", i)
	}
	// Connections and their buffers, and the maps of a handle.
	fill(b, filling, func(i int) (err error) { held[i], err = m.Lock(ctx, named[i]); return err })
	fill(b, filling, func(i int) error { return held[i].Unlock() })
	clear(held)
	time.Sleep(time.Second) // the handle's goroutine, too, has ended

	heap, goroutines := harness.Heap(), runtime.NumGoroutine()
	fill(b, n, func(i int) (err error) { held[i], err = m.Lock(ctx, named[i]); return err })
	b.ReportMetric((harness.Heap()-heap)/float64(n), "B/lease")

	began, cpu := time.Now(), harness.CPU(b)
	most := 0
	// Other work on the machine slows round trips down, and slow ones carry fewer renewals. So the
	// best of three periods counts.
	best := 0.0
	for period := range 3 {
		from := time.Now()
		sent, renewed := counts.trips.Load(), counts.renewals.Load()
		for counts.renewals.Load()-renewed < int64(n) {
			redistest.CheckNow(b, time.Since(from) <= mutexTTL,
				"%d of %d leases were renewed", counts.renewals.Load()-renewed, n)
			time.Sleep(50 * time.Millisecond)
			if period == 0 {
				most = max(most, runtime.NumGoroutine())
			}
		}
		best = max(best, float64(counts.renewals.Load()-renewed)/float64(counts.trips.Load()-sent))
	}
	b.ReportMetric(100*(harness.CPU(b)-cpu).Seconds()/time.Since(began).Seconds(), "cpu-%")
	b.ReportMetric(best, "renewals/trip")
	b.ReportMetric(float64(most-goroutines), "goroutines")
	fill(b, n, func(i int) error { return held[i].Unlock() })
}

const mutexTTL = 30 * time.Second

func warmRenewals(b *testing.B, rdb *redis.Client) {
	b.Helper()
	m := locks(b, rdb, func(c *mutex.Config) { c.Name, c.TTL = "warm", 100*time.Millisecond })
	l := redistest.Must(m.Lock(context.Background(), "k"))(b)
	time.Sleep(200 * time.Millisecond)
	redistest.WantErr(b, l.Unlock())
	closed(b, m)
}

func closed(b testing.TB, handle interface{ Close(context.Context) error }) {
	b.Helper()
	redistest.WantErr(b, handle.Close(context.Background()))
}

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
