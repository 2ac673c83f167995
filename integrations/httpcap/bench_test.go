package httpcap_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/integrations/httpcap"
	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// The cost of the middleware over that of the semaphore. The replies of the server come out of
// memory, so that the way to it does not hide the difference: a round trip of the loopback
// varies by more than that. Both are measured in turns, and of both the fastest tenth counts,
// so that other programs do not.
func BenchmarkCost(b *testing.B) {
	caps := captest.New(b, echoing(b), semaphore.Config{Limit: 1000, TTL: time.Hour})
	ctx := b.Context()
	bare := func() {
		lease := redistest.Must(caps.TryAcquire(ctx, tenant))(b)
		redistest.WantErr(b, lease.Release())
	}
	h := capped(b, caps, httpcap.Config{}, func(http.ResponseWriter, *http.Request) {})
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	through := func() { h.ServeHTTP(nil, r) } // an answer other than the handler's would fail
	var of [2][]time.Duration
	for b.Loop() {
		for i, fn := range []func(){bare, through} {
			began := time.Now()
			for range 100 {
				fn()
			}
			of[i] = append(of[i], time.Since(began)/100)
		}
	}
	for i := range of {
		slices.Sort(of[i])
	}
	tenth := len(of[0]) / 10
	b.ReportMetric(float64(of[0][tenth].Nanoseconds()), "ns/bare")
	b.ReportMetric(float64((of[1][tenth] - of[0][tenth]).Nanoseconds()), "ns/over")
	b.ReportMetric(testing.AllocsPerRun(100, through)-testing.AllocsPerRun(100, bare), "allocs/over")
	b.ReportMetric(0, "ns/op")
}

// echoing returns a client of an embedded server, which answers each script once. After that
// a hook gives the same reply from memory.
func echoing(t testing.TB) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Mini(t).Addr()})
	rdb.AddHook(firstReplies{})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// firstReplies has the first reply to each script, by its hash. One call at a time is made.
type firstReplies map[any][]int64

func (firstReplies) DialHook(next redis.DialHook) redis.DialHook { return next }

func (firstReplies) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (known firstReplies) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		script, ok := cmd.(interface {
			Val() []int64
			SetVal(reply []int64)
		})
		if !ok || cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		hash := cmd.Args()[1]
		if reply, ok := known[hash]; ok {
			script.SetVal(reply)
			return nil
		}
		err := next(ctx, cmd)
		if err == nil {
			known[hash] = script.Val()
		}
		return err
	}
}
