package leaseholdtest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/leaseholdtest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A pipeline reaches the server as a whole, however long it and its replies are.
func TestLongPipeline(t *testing.T) {
	both(t, func(t *testing.T) {
		rdb := leaseholdtest.Client(t)
		for _, c := range []struct{ commands, bytes int }{{11, 400}, {1000, 10}, {1000, 4096}, {3, 2 << 20}} {
			value := strings.Repeat("v", c.bytes)
			sent, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
				for i := range c.commands {
					p.Set(t.Context(), fmt.Sprint("k", i), value, 0)
					p.Get(t.Context(), fmt.Sprint("k", i))
				}
				return nil
			})
			if err != nil {
				t.Errorf("%d commands with %d bytes each: %v", c.commands, c.bytes, err)
				continue
			}
			for i, cmd := range sent {
				get, ok := cmd.(*redis.StringCmd)
				redistest.Check(t, !ok || get.Val() == value, "command %d of %d with %d bytes each: another value", i, c.commands, c.bytes)
			}
		}
	})
}

// Thousands of callers of two processes ask at once. Each of them is served, and each key is loaded once. Outside of a
// bubble they are fewer: there the bounds of the calls count, and a busy machine needs some 20 ms per script.
func TestManyCallersAtOnce(t *testing.T) {
	ask := func(t *testing.T, keys int) {
		var done sync.WaitGroup
		var loads atomic.Int64
		start := make(chan struct{})
		for _, rdb := range leaseholdtest.Clients(t, 2) {
			prices := redistest.Must(singleflight.New(rdb, singleflight.Config[string]{Name: "prices", TTL: time.Minute}))(t)
			defer prices.Close(t.Context())
			for i := range 5 * keys / 2 {
				done.Go(func() {
					<-start
					key := fmt.Sprint("article ", i%keys)
					v, err := prices.Do(t.Context(), key, func(context.Context) (string, error) { loads.Add(1); return key, nil })
					redistest.Check(t, err == nil && v == key, "got %q for %q, %v", v, key, err)
				})
			}
		}
		close(start)
		done.Wait()
		redistest.Expect(t, int(loads.Load()), keys, "%d loads")
	}
	t.Run("outside a bubble", func(t *testing.T) { ask(t, 100) })
	t.Run("inside a bubble", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { ask(t, 1000) }) })
}
