package leaseholdtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// bothWith is both with a thousand keys in a bubble, and with 100 outside. There the bounds of
// the calls count, and with the race detector a busy machine needs some 20 ms per script.
func bothWith(t *testing.T, fn func(t *testing.T, keys int)) {
	t.Run("outside a bubble", func(t *testing.T) { fn(t, 100) })
	t.Run("inside a bubble", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { fn(t, 1000) }) })
}

// All that takes several keys takes a thousand.
func TestManyKeysInOneCall(t *testing.T) {
	bothWith(t, func(t *testing.T, n int) {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprint("article ", i)
		}
		var groups []*singleflight.Group[string]
		for _, rdb := range leaseholdtest.Clients(t, 2) {
			g := redistest.Must(singleflight.New(rdb, singleflight.Config[string]{Name: "prices", TTL: time.Minute}))(t)
			defer g.Close(t.Context())
			groups = append(groups, g)
		}
		loads := 0
		load := func(_ context.Context, missing []string) (map[string]string, error) {
			loads++
			found := map[string]string{}
			for _, key := range missing {
				found[key] = strings.Repeat(key, 10)
			}
			return found, nil
		}
		for _, g := range groups {
			got, err := g.DoMany(t.Context(), keys, load)
			redistest.CheckNow(t, err == nil && len(got) == len(keys) && got["article 99"] == strings.Repeat("article 99", 10),
				"got %d values, %v", len(got), err)
		}
		redistest.Expect(t, loads, 1, "%d loads")
		redistest.WantErr(t, groups[0].Invalidate(t.Context(), keys...))
		_, ok, err := groups[1].Peek(t.Context(), "article 99")
		redistest.Check(t, !ok && err == nil, "after Invalidate: found %v, %v", ok, err)
	})
}

// Thousands of callers ask at once, and each of them is served.
func TestManyCallersAtOnce(t *testing.T) {
	bothWith(t, func(t *testing.T, n int) {
		callers := 5 * n
		prices := redistest.Must(singleflight.New(leaseholdtest.Client(t), singleflight.Config[string]{Name: "prices", TTL: time.Minute}))(t)
		defer prices.Close(t.Context())
		var done sync.WaitGroup
		errs := make([]error, callers)
		start := make(chan struct{})
		for i := range callers {
			done.Go(func() {
				<-start
				key := fmt.Sprint("article ", i%n)
				v, err := prices.Do(t.Context(), key, func(context.Context) (string, error) { return key, nil })
				if err == nil && v != key {
					err = fmt.Errorf("got %q for %q", v, key)
				}
				errs[i] = err
			})
		}
		close(start)
		done.Wait()
		redistest.NoError(t, errors.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil })...))
	})
}
