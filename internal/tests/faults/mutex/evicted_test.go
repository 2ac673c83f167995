package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// A server that evicts keys forgets a holder. The next caller is granted the
// lock with a higher token, and the first holder is told by its next renewal.
func TestEvictedHolderIsToldByItsNextRenewal(t *testing.T) {
	for _, policy := range []string{"allkeys-lru", "volatile-lru", "volatile-ttl"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			srv := redistest.StartServer(t, redistest.Newest(t), "--maxmemory-policy", policy)
			rdb := srv.Client()
			const ttl = 3 * time.Second
			open := func() *mutex.Mutex {
				m, err := mutex.New(srv.Client(), mutex.Config{Name: "evicted", TTL: ttl})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = m.Close(context.Background()) })
				return m
			}
			first, err := open().Lock(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			// The policy takes the oldest keys, or those that expire first: fill the
			// server with younger ones that expire later, as a cache does.
			if err := rdb.ConfigSet(ctx, "maxmemory", "8mb").Err(); err != nil {
				t.Fatal(err)
			}
			value := strings.Repeat("v", 10_000)
			held := func() bool { return rdb.Exists(ctx, "leasehold:mtx:{evicted:k}:holders").Val() == 1 }
			deadline := time.Now().Add(redistest.Soon)
			for n := 0; held(); n++ {
				if time.Now().After(deadline) || first.Context().Err() != nil {
					t.Fatalf("the holder was not evicted; its Context: %v", context.Cause(first.Context()))
				}
				_ = rdb.Set(ctx, fmt.Sprint("cache:", n), value, time.Hour).Err()
			}
			evicted := time.Now()
			if err := rdb.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
				t.Fatal(err)
			}
			second, err := open().TryLock(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			if second.Token() <= first.Token() {
				t.Errorf("token %d after %d", second.Token(), first.Token())
			}
			<-first.Context().Done()
			told := time.Since(evicted)
			t.Logf("told %v after the eviction, TTL %v", told.Round(time.Millisecond), ttl)
			if !errors.Is(context.Cause(first.Context()), leasehold.ErrLost) || told > ttl {
				t.Errorf("told after %v: %v; want ErrLost before the lease of %v ends", told, context.Cause(first.Context()), ttl)
			}
			if err := context.Cause(second.Context()); err != nil {
				t.Errorf("the second holder: %v", err)
			}
		})
	}
}
