package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

func localLocks(b testing.TB, rdb redis.UniversalClient, localFor time.Duration) *mutex.Mutex {
	b.Helper()
	m := redistest.Must(mutex.New(rdb, mutex.Config{Name: "bench", LocalFor: localFor}))(b)
	b.Cleanup(func() { _ = m.Close(context.Background()) })
	return m
}

// One key, 64 goroutines of four clients, each holding it for 1 ms, by LocalFor and by
// the round trip to the server: see harness.Contend.
func BenchmarkLocalTurns(b *testing.B) {
	const clients, goroutines = 4, 16
	for _, roundTrip := range []time.Duration{0, 1 * time.Millisecond, 2 * time.Millisecond} {
		b.Run(fmt.Sprintf("roundtrip=%v", roundTrip), func(b *testing.B) {
			srv := harness.StartOwn(b)
			far := srv.Distant(b, roundTrip)
			all := []harness.Contenders{harness.Local()}
			for _, localFor := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
				turn := harness.Spread(clients, func(int) func(context.Context, func()) error {
					m, key := localLocks(b, far.Client(), localFor), localFor.String()
					return func(ctx context.Context, hold func()) error {
						l, err := m.Lock(ctx, key)
						if err != nil {
							return err
						}
						hold()
						return l.Unlock()
					}
				})
				all = append(all, harness.Contenders{Name: fmt.Sprintf("local%v", localFor), Turn: turn, Clients: clients})
			}
			harness.Contend(b, srv.Client(), clients*goroutines, all...)
		})
	}
}

// A semaphore of 8 permits, 200 goroutines of four clients and holds of 5 ms, 2 ms away
// from the server: how much of the cap is used.
func BenchmarkLocalPermits(b *testing.B) {
	const clients, goroutines, limit, hold = 4, 50, 8, 5 * time.Millisecond
	srv := harness.StartOwn(b)
	far := srv.Distant(b, 2*time.Millisecond)
	for _, localFor := range []time.Duration{0, 20 * time.Millisecond} {
		b.Run(fmt.Sprintf("localfor=%v", localFor), func(b *testing.B) {
			turn := harness.Spread(clients, func(int) func(context.Context, func()) error {
				s := redistest.Must(semaphore.New(far.Client(), semaphore.Config{Name: "bench", Limit: limit, LocalFor: localFor}))(b)
				b.Cleanup(func() { _ = s.Close(context.Background()) })
				return func(ctx context.Context, hold func()) error {
					l, err := s.Acquire(ctx, "k")
					if err != nil {
						return err
					}
					hold()
					return l.Release()
				}
			})
			used := harness.UseOfCap(b, clients*goroutines, hold, turn)
			b.ReportMetric(used/limit, "of-cap")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// What LocalFor costs a lone caller; and what of that is its own process's work: there each
// script is answered from memory, with what the server answered the first time.
func BenchmarkLocalLonePair(b *testing.B) {
	for _, memory := range []bool{false, true} {
		b.Run(fmt.Sprintf("memory=%v", memory), func(b *testing.B) {
			srv := harness.Start(b)
			pair := func(localFor time.Duration) func() error {
				rdb := srv.Client()
				if memory {
					rdb.AddHook(firstReplies{})
				}
				m, key, ctx := localLocks(b, rdb, localFor), localFor.String(), context.Background()
				return func() error {
					l, err := m.Lock(ctx, key)
					if err != nil {
						return err
					}
					return l.Unlock()
				}
			}
			harness.Interleave(b,
				harness.Runner{Name: "strict", Pair: pair(0)},
				harness.Runner{Name: "local", Pair: pair(20 * time.Millisecond)})
		})
	}
}

// firstReplies is a hook that remembers the first reply to each script, by its hash.
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
