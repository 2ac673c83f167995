package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// pairs are the competitors of a lone caller: two round trips that run an empty script, two that make the calls of
// Redis that a pair consists of, a lock, a permit.
func pairs(b *testing.B, ctx context.Context, rdb *redis.Client) []harness.Runner {
	b.Helper()
	m, s := locks(b, rdb), permits(b, rdb, 10)
	noop, calls := harness.NoopPair(b, rdb), harness.NewCalls(b, rdb, 1)
	return []harness.Runner{
		{Name: "floor", Pair: func() error { return noop(ctx) }},
		{Name: "calls", Pair: func() error { return calls[0].Pair(ctx, rdb) }},
		{Name: "mutex", Pair: func() error { return lockTurn(ctx, m, "k", nil) }},
		{Name: "semaphore", Pair: func() error { return permitTurn(ctx, s, "k", nil) }},
	}
}

// A lone caller takes and gives back. Once under a ctx that cannot end, and once
// under one that can, for which a call runs on a goroutine of its own.
func BenchmarkLonePair(b *testing.B) {
	b.Run("background", func(b *testing.B) {
		harness.Interleave(b, pairs(b, context.Background(), harness.Start(b).Client())...)
	})
	b.Run("cancellable", func(b *testing.B) {
		harness.Interleave(b, pairs(b, b.Context(), harness.Start(b).Client())...)
	})
}

// What a pair allocates.
func BenchmarkLoneAllocs(b *testing.B) {
	m := locks(b, harness.Start(b).Client())
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		l := redistest.Must(m.Lock(ctx, "k"))(b)
		redistest.WantErr(b, l.Unlock())
	}
}

// Many goroutines, a key each, beside the same crowd of pairs of empty scripts:
// each call a round trip of its own, and pipelined by go-redis itself. And beside the calls
// of Redis that a pair consists of, pipelined as well.
func BenchmarkManyKeys(b *testing.B) {
	for _, n := range []int{1, 4, 16, 64, 128, 256} {
		b.Run(fmt.Sprintf("goroutines=%d", n), func(b *testing.B) {
			srv := harness.Start(b)
			plain := srv.Client(harness.Pool(n))
			auto := srv.AutoPipeline()
			m, s := locks(b, srv.Client(harness.Pool(n))), permits(b, srv.Client(harness.Pool(n)), 10)
			floor, piped := harness.NoopPair(b, plain), harness.NoopPair(b, auto)
			calls := harness.NewCalls(b, auto, n)
			keys := make([]string, n)
			for i := range keys {
				keys[i] = fmt.Sprint("key-", i)
			}
			harness.InterleaveCrowds(b, n, 50*time.Millisecond,
				harness.Crowd{Name: "floor", Pair: func(ctx context.Context, _ int) error { return floor(ctx) }},
				harness.Crowd{Name: "piped-floor", Pair: func(ctx context.Context, _ int) error { return piped(ctx) }},
				harness.Crowd{Name: "piped-calls", Pair: func(ctx context.Context, i int) error { return calls[i].Pair(ctx, auto) }},
				harness.Crowd{Name: "mutex", Pair: func(ctx context.Context, i int) error { return lockTurn(ctx, m, keys[i], nil) }},
				harness.Crowd{Name: "semaphore", Pair: func(ctx context.Context, i int) error { return permitTurn(ctx, s, keys[i], nil) }},
			)
		})
	}
}

// One key, 64 goroutines of four clients, each holding it for 1 ms, beside the same loop on a local sync.Mutex, without
// and with a PING between two holds: see harness.Contend. A benchmark's op is a tenth of a second of each.
func BenchmarkContended(b *testing.B) {
	srv := harness.Start(b)
	harness.Contend(b, srv.Client(), clients*goroutines, harness.Local(), harness.Pings(srv.Client()), contenders(b, "mutex", "k", srv))
}

// What a network costs by its round trip: a lone pair, 128 goroutines with a key each, the
// turns of a contended lock, and 2,000 held leases. The floors make as many round trips.
func BenchmarkTrips(b *testing.B) {
	for _, trip := range []time.Duration{0, 2 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
		b.Run(fmt.Sprintf("roundtrip=%v", trip), func(b *testing.B) {
			srv := harness.StartOwn(b)
			far := srv.Distant(b, trip)
			b.Run("lone", func(b *testing.B) {
				harness.Interleave(b, pairs(b, context.Background(), far.Client())[:2]...)
			})
			b.Run("many", func(b *testing.B) { manyPairs(b, far, trip) })
			b.Run("contended", func(b *testing.B) { contendedTurns(b, srv, far, trip) })
			b.Run("held", func(b *testing.B) { harness.Once(b, func() { heldOver(b, far) }) })
		})
	}
}

// manyPairs is 128 goroutines with a key each, beside as many that each make two round trips.
func manyPairs(b *testing.B, far *harness.Server, trip time.Duration) {
	const n = 128
	noop, m := harness.NoopPair(b, far.Client(harness.Pool(n))), locks(b, far.Client(harness.Pool(n)))
	harness.InterleaveCrowds(b, n, max(50*time.Millisecond, 10*trip),
		harness.Crowd{Name: "floor", Pair: func(ctx context.Context, _ int) error { return noop(ctx) }},
		harness.Crowd{Name: "mutex", Pair: func(ctx context.Context, i int) error { return lockTurn(ctx, m, fmt.Sprint("key-", i), nil) }})
}

// contendedTurns is one key that 64 goroutines of four clients want for 1 ms. The floor is a
// local sync.Mutex and a PING between two holds. 25 turns at least are counted.
func contendedTurns(b *testing.B, near, far *harness.Server, trip time.Duration) {
	harness.ContendFor(b, max(time.Duration(b.N)*100*time.Millisecond, 25*trip), near.Client(), clients*goroutines,
		harness.Pings(far.Client()), contenders(b, "mutex", "contended", far))
}

// heldOver holds 2,000 locks for two of their TTLs of 3 s and gives them back at once. "lost"
// counts those of them that were lost, "renewals/trip" the renewals that a round trip carried.
func heldOver(b *testing.B, far *harness.Server) {
	const n, ttl = 2000, 3 * time.Second
	rdb := far.Client()
	counts := countTrips(rdb)
	m := locks(b, rdb, func(c *mutex.Config) { c.TTL = ttl })
	held, lost := make([]*mutex.Lock, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if held[i], lost[i] = m.Lock(context.Background(), fmt.Sprint("held-", i)); lost[i] != nil {
				b.Error(lost[i])
			}
		})
	}
	if all.Wait(); b.Failed() {
		return
	}
	time.Sleep(2 * ttl)
	b.ReportMetric(float64(counts.renewals.Load())/float64(max(1, counts.trips.Load())), "renewals/trip")
	for i := range n {
		all.Go(func() { lost[i] = held[i].Unlock() })
	}
	all.Wait()
	gone := 0
	for _, err := range lost {
		if errors.Is(err, leasehold.ErrLost) {
			gone++
		} else if err != nil {
			b.Error(err)
		}
	}
	b.ReportMetric(float64(gone), "lost")
}

func init() { redistest.RegisterChild("bench-handover", handoverChild) }

// part names a key of Redis that belongs to one key of the benchmarks' family.
func part(b testing.TB, kind keys.Kind, key, part string) string {
	b.Helper()
	r := redistest.Must(keys.Family{Kind: kind, Name: "bench"}.Resource(key))(b)
	return r.Part(part)
}

func waiting(b testing.TB, rdb *redis.Client, kind keys.Kind, key string, n int) {
	b.Helper()
	queue := part(b, kind, key, "queue")
	for began := time.Now(); ; time.Sleep(100 * time.Microsecond) {
		got := redistest.Must(rdb.ZCard(context.Background(), queue).Result())(b)
		if got == int64(n) {
			return
		}
		redistest.CheckNow(b, time.Since(began) <= 30*time.Second, "%d wait for %s; want %d", got, key, n)
	}
}

// publisher is the floor of a hand-over: a script that only tells.
var publisher = redis.NewScript("return redis.call('PUBLISH', ARGV[1], ARGV[2])")

// handoverChild is one of two processes: it does as it is told and prints when
// that was. A message of the floor is as long as one of ours.
func handoverChild(args []string) int {
	ctx := context.Background()
	rdb := harness.Dial(args[0])
	m := harness.Value(mutex.New(rdb, mutex.Config{Name: "bench"}))
	own := fmt.Sprint("floor:", harness.Now())
	inbox := rdb.Subscribe(ctx, own)
	harness.Value(inbox.Receive(ctx))
	harness.Must(publisher.Load(ctx, rdb).Err())
	payload := "123456789012345678901234567890123456789012345678"
	var held *mutex.Lock
	fmt.Println("ready")
	fmt.Println("channel", own)
	return harness.Serve(func(words []string) {
		var err error
		at := harness.Now()
		switch words[0] {
		case "lock":
			held, err = m.Lock(ctx, args[1])
			at = harness.Now()
		case "unlock":
			err = held.Unlock()
		case "listen":
			_, err = inbox.ReceiveMessage(ctx)
			at = harness.Now()
		case "publish":
			err = publisher.EvalSha(ctx, rdb, nil, words[1], payload).Err()
		case "ping":
			err = rdb.Ping(ctx).Err()
			at = harness.Now() - at
		}
		harness.Must(err)
		fmt.Println(words[0], at)
	})
}

// A lock handed over from one process to another that waits for it: from the call of Unlock to the return of the
// next owner's Lock. Beside it, between the same two processes: a script that publishes to a bare subscriber, and a
// PING. The times of the two processes are compared by the machine's clock. An op is 25 rounds of each.
func BenchmarkHandover(b *testing.B) {
	srv := harness.Start(b)
	stats := srv.Client()
	key := fmt.Sprint("handover-", harness.Now()) // the last holder is killed with the benchmark
	two := harness.Children(b, 2, "bench-handover", srv.URL(), key)
	channels := []string{two[0].Expect("channel"), two[1].Expect("channel")}
	at := func(c *redistest.Child, what string) int64 {
		return redistest.Must(strconv.ParseInt(c.Expect(what), 10, 64))(b)
	}
	// The other process is asleep in its read before the clock starts, of a lock as of the floor.
	settle := func() { time.Sleep(time.Millisecond) }
	holder := 0
	two[holder].Send("lock")
	at(two[holder], "lock")
	var handed, published, pinged []time.Duration
	round := func() {
		now, next := two[holder], two[1-holder]
		next.Send("lock")
		waiting(b, stats, keys.Mutex, key, 1)
		settle()
		now.Send("unlock")
		began := at(now, "unlock")
		handed = append(handed, time.Duration(at(next, "lock")-began))

		next.Send("listen")
		settle()
		now.Send("publish " + channels[1-holder])
		began = at(now, "publish")
		published = append(published, time.Duration(at(next, "listen")-began))

		settle()
		now.Send("ping")
		pinged = append(pinged, time.Duration(at(now, "ping")))
		holder = 1 - holder
	}
	for range 10 { // subscriptions made, scripts loaded, connections dialled
		round()
	}
	handed, published, pinged = nil, nil, nil
	for b.Loop() {
		for range 25 {
			round()
		}
	}
	b.ReportMetric(0, "ns/op")
	harness.Report(b, "mutex", handed)
	harness.Report(b, "publish", published)
	harness.Report(b, "ping", pinged)
}
