package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// What a pair costs the server, by its own account: the time of EVALSHA, which bounds the fleet's rate.
// Competitors take turns of a pipeline of 64 calls that take and one of 64 that give back, a key each, so that
// the server's caches are as warm as under load; of the turns the medians are reported.
func BenchmarkServerTime(b *testing.B) {
	const n = 64
	ctx := context.Background()
	srv := harness.StartOwn(b)
	rdb, stats := srv.Client(), srv.Client()
	client := redistest.Must(call.NewClient(rdb))(b)
	noop := harness.Noops(b, rdb, n)
	pairs := func(kind keys.Kind) func() error {
		all := make([]*attempt, n)
		for i := range all {
			named := redistest.Must(keys.Family{Kind: kind, Name: "bench"}.Resource(fmt.Sprint("key-", i)))(b)
			all[i] = newAttempt(named, kind == keys.Mutex, i)
		}
		return func() error {
			enter(b, client, all, life.Granted)
			return each(ctx, client, all, func(r *attempt) *call.Call { return r.Leave(0, false) }, func(r *attempt, v []int64) error {
				if r, err := r.ReadLeave(v); err != nil || r.Code != life.Held {
					return fmt.Errorf("a leave was answered %v", v)
				}
				return nil
			})
		}
	}
	var all []harness.Measured
	for _, r := range []harness.Runner{
		{Name: "noop", Pair: func() error { return errors.Join(noop.Pair(ctx, 0), noop.Pair(ctx, 0)) }},
		{Name: "calls", Pair: callsInPipelines(b, rdb, n)},
		{Name: "mutex", Pair: pairs(keys.Mutex)},
		{Name: "semaphore", Pair: pairs(keys.Semaphore)},
	} {
		redistest.Require(b, r.Pair(), nil, "%s: %v", r.Name) // scripts loaded
		all = append(all, harness.Measured{Name: r.Name, Once: func() time.Duration {
			before, _ := harness.ServerMicros(b, stats, "evalsha")
			redistest.Require(b, r.Pair(), nil, "%s: %v", r.Name)
			after, _ := harness.ServerMicros(b, stats, "evalsha")
			return time.Duration(after-before) * time.Microsecond / n
		}})
	}
	harness.Medians(b, "-server-µs", all...)
}

// callsInPipelines is a pipeline of n locks' calls, and one of as many unlocks'.
func callsInPipelines(b *testing.B, rdb *redis.Client, n int) func() error {
	b.Helper()
	ctx := context.Background()
	all := harness.NewCalls(b, rdb, n)
	return func() error {
		for _, do := range []func(*harness.Calls, context.Context, redis.Scripter) *redis.Cmd{(*harness.Calls).Take, (*harness.Calls).Give} {
			if _, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for i := range all {
					do(&all[i], ctx, pipe)
				}
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	}
}

// BenchmarkTotals is what a pair costs the server (EVALSHA, by its own account) in a family with a total, beside
// one without, and how many turns a second the family's one slot carries: of a lone caller, and of 256 goroutines
// of two handles, where all find a permit and where 40 keys wait for a total of 20.
func BenchmarkTotals(b *testing.B) {
	srv := harness.StartOwn(b)
	stats := srv.Client()
	for _, r := range []struct {
		name                     string
		limit, total, goroutines int
	}{
		{"plain-lone", 1000, 0, 1},
		{"total-lone", 1000, 1000, 1},
		{"plain-free", 1000, 0, 256},
		{"total-free", 1000, 1000, 256},
		{"total-40-keys-wait", 10, 20, 256},
	} {
		b.Run(r.name, func(b *testing.B) {
			var handles [2]*semaphore.Semaphore
			for i := range handles {
				handles[i] = permits(b, srv.Client(), r.limit, func(c *semaphore.Config) { c.Name, c.Total = r.name, r.total })
			}
			micros, _ := harness.ServerMicros(b, stats, "evalsha")
			var next atomic.Int64
			var all sync.WaitGroup
			began := time.Now()
			for i := range r.goroutines {
				h, key := handles[i%2], "k"+strconv.Itoa(i%40)
				all.Go(func() {
					for next.Add(1) <= int64(b.N) {
						redistest.NoError(b, permitTurn(context.Background(), h, key, nil))
					}
				})
			}
			all.Wait()
			took := time.Since(began).Seconds()
			after, _ := harness.ServerMicros(b, stats, "evalsha")
			b.ReportMetric(0, "ns/op")
			b.ReportMetric((after-micros)/float64(b.N), "server-µs")
			b.ReportMetric(float64(b.N)/took, "turns/s")
		})
	}
}
