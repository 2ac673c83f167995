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
