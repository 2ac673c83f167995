package call

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// The bounds hold for any number of callers of a server that is stopped, and the
// callers that left leave nothing behind.
func TestCallersOfAStoppedServer(t *testing.T) {
	redistest.NeedServers(t)
	server := redistest.StartServer(t, redistest.Newest(t))
	const readTimeout = time.Second
	for name, wrap := range map[string]func(redis.UniversalClient) redis.UniversalClient{
		"bare":   func(rdb redis.UniversalClient) redis.UniversalClient { return rdb },
		"hidden": func(rdb redis.UniversalClient) redis.UniversalClient { return hidden{rdb} },
	} {
		t.Run(name, func(t *testing.T) {
			rdb := server.Client(func(o *redis.Options) { o.ReadTimeout = readTimeout })
			c := newReady(t, wrap(rdb))
			reply, err := c.Do(t.Context(), echoed("k", 1))
			wantEcho(t, 1, reply, err)
			server.Pause()
			defer server.Resume()
			before := runtime.NumGoroutine()

			const patience = 500 * time.Millisecond
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var left, all sync.WaitGroup
			var unsent atomic.Int32
			began := time.Now()
			const crowd = 20000
			for i := range crowd {
				left.Add(1)
				all.Go(func() {
					defer left.Done()
					_, answered, err := Wait(ctx, func(f func()) { all.Go(f) }, func(ctx context.Context) (int, error) {
						_, err := c.Do(ctx, echoed(fmt.Sprint("k", i), i))
						if errors.Is(err, ErrNotSent) {
							unsent.Add(1)
						}
						return 0, err
					})
					if !answered && errors.Is(err, ErrNotSent) {
						unsent.Add(1) // not even begun
					}
					redistest.Check(t, errors.Is(err, context.DeadlineExceeded) || Classify(err) == Unknown || Classify(err) == NotNow,
						"a caller that left: %v", err)
				})
			}
			left.Wait()
			few := maxHanging * (maxPipelineBytes / 50) // calls that are sent, at most
			redistest.Eventually(t, "most goroutines have ended", func() bool { return runtime.NumGoroutine()-before < few })
			all.Wait()
			redistest.AtMost(t, time.Since(began), patience+Bound+readTimeout+2*time.Second, "the last call of those that left ended after %v")
			n := int(unsent.Load())
			redistest.Check(t, n >= crowd-few, "%d of %d calls were dropped unsent; want at least %d", n, crowd, crowd-few)

			cold := redistest.Must(NewClient(server.Client()))(t) // with go-redis's own timeouts, and no connection yet
			cold.checked.Store(true)
			for by, way := range ways {
				began := time.Now()
				for _, err := range way(cold, 1) {
					redistest.Check(t, err != nil && Classify(err) != Refused, "%s, the first call: %v", by, err)
				}
				redistest.AtMost(t, time.Since(began), Bound+3*time.Second+time.Second, "%s, the first call took %v", by)
			}
			for _, callers := range []int{200, 2000, 20000} {
				var giving sync.WaitGroup
				each := make([]time.Duration, callers)
				for i := range callers {
					giving.Go(func() {
						began := time.Now()
						one := echoed(fmt.Sprint("k", i), i)
						one.Rank = GivesBack
						_, err := c.Do(context.Background(), one)
						redistest.Check(t, err != nil, "a stopped server answered")
						each[i] = time.Since(began)
					})
				}
				giving.Wait()
				redistest.AtMost(t, slices.Max(each), Bound+readTimeout+2*time.Second, "%d calls took %v", callers)
			}
		})
	}
}
