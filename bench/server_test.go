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
	counted "github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/protocol"
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

// saturating is how many goroutines keep a server busy.
const saturating = 64

// What one primary can do, measured and predicted as harness.Saturate says:
//
//   - turns: a lock of an own key is taken and given back, by many goroutines
//   - renewals: of 10,000 locks held, in pipelines of a thousand, as handles send them
//   - hits: a cached value is asked for, through go-redis's own pipelining
//   - asks: the signs of life of 250 waiters each, or of one, one each 1.5 s: a primary that did nothing else
//     would carry asks/s × 1.5 s × 250 waiters, or × 1.
func BenchmarkCapacity(b *testing.B) {
	b.Run("turns", turnsCapacity)
	b.Run("renewals", renewalsCapacity)
	b.Run("hits", hitsCapacity)
	for _, waiters := range []int{protocol.MaxAsk, 1} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) { asksCapacity(b, waiters) })
	}
}

func turnsCapacity(b *testing.B) {
	srv := harness.StartOwn(b)
	plain, auto := srv.Client(harness.Pool(saturating)), srv.AutoPipeline()
	m := locks(b, srv.Client())
	pair := func(ctx context.Context, i int) error { return lockTurn(ctx, m, fmt.Sprint("key-", i), nil) }
	harness.Saturate(b, srv.Client(), saturating, harness.Noops(b, plain, 1), harness.Noops(b, auto, 1), harness.Saturation{
		Crowd: harness.Crowd{Name: "turns", Pair: pair}, Command: "evalsha",
	})
}

// A hit is no script: what it is measured beside are GETs of nothing, which have
// half of a script call's words to be read.
func hitsCapacity(b *testing.B) {
	srv := harness.StartOwn(b)
	plain, auto := srv.Client(harness.Pool(saturating)), srv.AutoPipeline()
	g := cache[string](b, auto)
	load := func(context.Context) (string, error) { return "value", nil }
	hit := func(ctx context.Context, i int) error {
		_, err := g.Do(ctx, fmt.Sprint("key-", i), load)
		return err
	}
	nothing := func(rdb redis.Cmdable) harness.Saturation {
		return harness.Saturation{Crowd: harness.Crowd{Name: "GET", Pair: func(ctx context.Context, _ int) error {
			if err := rdb.Get(ctx, "nothing").Err(); !errors.Is(err, redis.Nil) {
				return fmt.Errorf("a GET of nothing: %w", err)
			}
			return nil
		}}, Command: "get"}
	}
	harness.Saturate(b, srv.Client(), saturating, nothing(plain), nothing(auto), harness.Saturation{
		Crowd: harness.Crowd{Name: "hits", Pair: hit}, Command: "get",
	})
}

// The library's own client sends the renewals: a handle would send them only when they are due.
func renewalsCapacity(b *testing.B) {
	const senders, batch = 10, 1000
	ctx := context.Background()
	srv := harness.StartOwn(b)
	rdb := srv.Client()
	client := redistest.Must(call.NewClient(rdb))(b)
	held := make([][]*attempt, senders)
	for i := range held {
		held[i] = make([]*attempt, batch)
		for j := range held[i] {
			held[i][j] = request(b, fmt.Sprintf("key-%d-%d", i, j), 1)
		}
		enter(b, client, held[i], life.Granted)
	}
	renew := func(ctx context.Context, i int) error {
		return each(ctx, client, held[i], func(r *attempt) *call.Call { return r.Renew(protocol.RenewOptions{Term: attemptTTL}) },
			func(r *attempt, v []int64) error {
				if reply, err := r.ReadRenew(v); err != nil || reply.Term <= 0 {
					return fmt.Errorf("a lease was not renewed: %v", v)
				}
				return nil
			})
	}
	redistest.WantErr(b, renew(ctx, 0)) // the script loaded
	harness.Saturate(b, srv.Client(), senders, harness.Noops(b, rdb, 1), harness.Noops(b, rdb, batch), harness.Saturation{
		Crowd: harness.Crowd{Name: "renewals", Pair: renew}, Units: batch, Command: "evalsha",
	})
}

// As many keys as senders, each held, and with the waiters of one handle.
func asksCapacity(b *testing.B, waiters int) {
	const senders, batch = 10, 10 // asks of ten keys in a pipeline
	ctx := context.Background()
	srv := harness.StartOwn(b)
	rdb := srv.Client()
	client := redistest.Must(call.NewClient(rdb))(b)
	queues := make([][][]*attempt, senders)
	for i := range queues {
		queues[i] = make([][]*attempt, batch)
		for j := range queues[i] {
			key := fmt.Sprintf("key-%d-%d", i, j)
			enter(b, client, []*attempt{request(b, key, 0)}, life.Granted)
			for k := range waiters {
				queues[i][j] = append(queues[i][j], request(b, key, k+1))
			}
			enter(b, client, queues[i][j], life.Queued)
		}
	}
	ask := func(ctx context.Context, i int) error {
		first := make([]*attempt, batch)
		for j := range first {
			first[j] = queues[i][j][0]
		}
		next := 0
		return each(ctx, client, first, func(r *attempt) *call.Call {
			next++
			return r.res.Ask(requests(queues[i][next-1]))
		}, func(_ *attempt, v []int64) error {
			if len(v) < 5 || v[4] != int64(waiters) {
				return fmt.Errorf("an ask of %d waiters: %v", waiters, v[:min(len(v), 8)])
			}
			return nil
		})
	}
	redistest.WantErr(b, ask(ctx, 0)) // the script loaded
	rate := harness.Saturate(b, srv.Client(), senders, harness.Noops(b, rdb, 1), harness.Noops(b, rdb, batch), harness.Saturation{
		Crowd: harness.Crowd{Name: "asks", Pair: ask}, Units: batch, Command: "evalsha",
	})
	b.ReportMetric(rate*life.AskEvery.Seconds()*float64(waiters), "waiters")
}

func request(b testing.TB, key string, seq int) *attempt {
	b.Helper()
	return newAttempt(redistest.Must(keys.Family{Kind: keys.Mutex, Name: "bench"}.Resource(key))(b), true, seq)
}

const attemptTTL = time.Hour

type attempt struct {
	protocol.Request
	res *counted.Resource
}

func newAttempt(named keys.Resource, fenced bool, seq int) *attempt {
	res := counted.NewResource(named, fenced, false)
	t := protocol.Terms{Handle: "handle0000000000000000", Seq: uint64(seq) + 1, Permits: 1, TTL: attemptTTL, Limit: 1}
	return &attempt{res.Request(t), res}
}

func requests(all []*attempt) []protocol.Request {
	plain := make([]protocol.Request, len(all))
	for i, a := range all {
		plain[i] = a.Request
	}
	return plain
}

func enter(b testing.TB, client *call.Client, all []*attempt, want life.Code) {
	b.Helper()
	redistest.WantErr(b, each(context.Background(), client, all, func(r *attempt) *call.Call {
		return r.Enter(protocol.EnterOptions{Wait: true})
	}, func(r *attempt, v []int64) error {
		if reply, err := r.ReadEnter(&call.Call{}, v); err != nil || reply.Code != want {
			return fmt.Errorf("an enter was answered %v; want %d", v, want)
		}
		return nil
	}))
}

// each sends a call for each request in one pipeline and has the answers checked.
func each(ctx context.Context, client *call.Client, all []*attempt, prepare func(*attempt) *call.Call, check func(*attempt, []int64) error) (failed error) {
	calls := make([]*call.Call, len(all))
	for i, r := range all {
		calls[i] = prepare(r)
		calls[i].Done = func(v []int64, err error) {
			if err == nil {
				err = check(r, v)
			}
			if err != nil {
				failed = err
			}
		}
	}
	client.Send(ctx, calls)
	return failed
}
