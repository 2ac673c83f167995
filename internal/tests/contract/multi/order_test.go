package multi

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/multi"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

// 60 callers of two processes want the same thing again and again, for half a minute. Each wait takes longer than a sign of
// life lasts, and newcomers queue all the time. No caller waits for more than all others have had a turn.
func TestEveryCallerIsServedInItsTurn(t *testing.T) {
	type take = func(ctx context.Context, hold func(context.Context) error) error
	permits := func(mod func(*semaphore.Config)) func(*fixture, redis.UniversalClient) take {
		return func(f *fixture, rdb redis.UniversalClient) take {
			cfg := semaphore.Config{Name: f.Family, Limit: 1}
			mod(&cfg)
			s := redistest.Must(semaphore.New(rdb, cfg))(f)
			f.Cleanup(func() { harness.Close(f.T, s) })
			return func(ctx context.Context, hold func(context.Context) error) error { return s.Do(ctx, "k", hold) }
		}
	}
	for name, open := range map[string]func(*fixture, redis.UniversalClient) take{
		"permits":            permits(func(*semaphore.Config) {}),
		"with a TTL of 1 s":  permits(func(c *semaphore.Config) { c.TTL = time.Second }),
		"with KeepFor":       permits(func(c *semaphore.Config) { c.KeepFor = 300 * time.Millisecond }),
		"with LocalFor":      permits(func(c *semaphore.Config) { c.LocalFor = 300 * time.Millisecond }),
		"of a total":         permits(func(c *semaphore.Config) { c.Total = 1 }),
		"permits for a load": loads,
		"two locks": func(f *fixture, rdb redis.UniversalClient) take {
			m := redistest.Must(mutex.New(rdb, mutex.Config{Name: f.Family}))(f)
			f.Cleanup(func() { harness.Close(f.T, m) })
			return func(ctx context.Context, hold func(context.Context) error) error {
				return multi.Do(ctx, func(ctx context.Context, _ *multi.Lease) error { return hold(ctx) }, multi.Lock(m, "a"), multi.Lock(m, "b"))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				const hold = 100 * time.Millisecond
				callers := redistest.Full(60, 20)
				turn := time.Duration(callers) * hold // of all
				lasts := 5 * turn
				end := time.Now().Add(lasts)
				var all sync.WaitGroup
				var mu sync.Mutex
				var longest time.Duration
				fewest := math.MaxInt
				for process := range 2 {
					call := open(f, f.Connect(&harness.Wire{}))
					for caller := range callers / 2 {
						random := rand.New(rand.NewPCG(uint64(process), uint64(caller)))
						all.Go(func() {
							turns, most := 0, time.Duration(0)
							for time.Now().Before(end) {
								time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
								began := time.Now()
								redistest.WantErr(f, call(f.Context(), func(ctx context.Context) error {
									turns, most = turns+1, max(most, time.Since(began))
									time.Sleep(hold)
									return ctx.Err()
								}))
							}
							mu.Lock()
							defer mu.Unlock()
							longest, fewest = max(longest, most), min(fewest, turns)
						})
					}
				}
				all.Wait()
				redistest.AtMost(f, longest, turn+time.Second, "a caller waited %v")
				redistest.Check(f, fewest >= int(lasts/turn), "a caller had %d turns", fewest)
			})
		})
	}
}

// loads opens a cache in which one key at a time is loaded.
func loads(f *fixture, rdb redis.UniversalClient) func(context.Context, func(context.Context) error) error {
	g := redistest.Must(singleflight.New(rdb, singleflight.Config[string]{Name: f.Family, TTL: time.Hour, MaxLoads: 1}))(f)
	f.Cleanup(func() { harness.Close(f.T, g) })
	return func(ctx context.Context, hold func(context.Context) error) error {
		_, err := g.Do(ctx, fmt.Sprint(rand.Uint64()), func(ctx context.Context) (string, error) { return "", hold(ctx) })
		return err
	}
}
