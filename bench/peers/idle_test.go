package peers

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A thousand goroutines of four clients wait for one key that a fifth client holds: what does their waiting cost
// the server? "<who>-commands/s" is what the clients send, the holder's renewals among them, and what shows
// whether the server is there. redislock polls each 100 ms, as in its documentation's example.
func BenchmarkIdleWaiters(b *testing.B) {
	const (
		clients, waiters = 4, 1000
		settle           = time.Second     // all have dialled and made their first try
		span             = 3 * time.Second // twice leasehold's sign of life
	)
	// sends is what a client of that library sends. The other commands that the server runs meanwhile are called
	// by the library's scripts, which call none of these; or they open connections. (leasehold's handles also ask
	// for the time, when they begin to wait; here only its scripts do.)
	sends := map[string][]string{
		"mutex":       {"evalsha", "eval", "ping", "subscribe", "unsubscribe"},
		"redislock":   {"evalsha", "eval"},
		"redsync":     {"evalsha", "eval", "set"},
		"rueidislock": {"evalsha", "eval", "ping"},
	}
	all := competitors(100 * time.Millisecond)
	turns := make([][]turn, len(all)) // of each library, by client; the last one's holds
	stats := make([]*redis.Client, len(all))
	for i, l := range all {
		srv := harness.StartOwn(b) // one each: a client that has nothing to do may ping all the same
		stats[i] = srv.Client()
		for range clients + 1 {
			turns[i] = append(turns[i], l.open(b, srv, srv.Client(harness.Pool(waiters/clients))))
		}
	}

	// What is counted is the waiting alone: not the first tries, nor the end.
	sent := make([]float64, len(all))
	var seconds float64
	for b.Loop() {
		for i, l := range all {
			whileTheyWait(b, l.name+"-idle", turns[i][clients], turns[i][:clients], waiters, func() {
				time.Sleep(settle)
				before := redistest.Commandstats(b, stats[i])
				time.Sleep(span)
				after := redistest.Commandstats(b, stats[i])
				for _, command := range sends[l.name] {
					sent[i] += float64(after[command] - before[command])
				}
			})
		}
		seconds += span.Seconds()
	}
	b.ReportMetric(0, "ns/op")
	for i, l := range all {
		b.ReportMetric(sent[i]/seconds, l.name+"-commands/s")
	}
}

// whileTheyWait calls measure while n goroutines, spread over all, wait for key, which holder has
// taken. None of them may get it meanwhile: it would not have been a wait.
func whileTheyWait(b testing.TB, key string, holder turn, all []turn, n int, measure func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	redistest.WantErr(b, holder(ctx, key, func() {
		var waiters sync.WaitGroup
		var granted atomic.Int64
		for i := range n {
			waiters.Go(func() {
				if all[i%len(all)](ctx, key, forNothing) == nil {
					granted.Add(1)
				}
			})
		}
		measure()
		cancel()
		waiters.Wait()
		redistest.Check(b, granted.Load() == 0, "%s: %d waiters got what another held", key, granted.Load())
	}))
}
