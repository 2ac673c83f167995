package leasehold_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/leaseholdtest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

// What can never be served is told as ErrInvalid by every package, not as an
// outage.
func TestInvalidArgumentsMatchErrInvalid(t *testing.T) {
	rdb, ctx := leaseholdtest.Client(t), t.Context()
	caps, err := semaphore.New(rdb, semaphore.Config{
		Name: "exports", Limit: 3,
		LimitFor: func(key string) int { return map[string]int{"negative": -1}[key] },
	})
	redistest.WantErr(t, err)
	defer caps.Close(ctx)
	locks := redistest.Must(mutex.New(rdb, mutex.Config{Name: "orders"}))(t)
	defer locks.Close(ctx)
	guard := redistest.Must(mutex.NewGuard(rdb, mutex.GuardConfig{Name: "orders"}))(t)
	users := redistest.Must(singleflight.New(rdb, singleflight.Config[string]{Name: "users", TTL: time.Minute}))(t)
	defer users.Close(ctx)
	lease, err := caps.Acquire(ctx, "acme")
	redistest.WantErr(t, err)
	defer lease.Release()

	long := strings.Repeat("k", 513)
	load := func(context.Context) (string, error) { return "v", nil }
	acquire := func(key string, n int) error { _, err := caps.AcquireN(ctx, key, n); return err }
	for what, call := range map[string]func() error{
		"no permits":         func() error { return acquire("acme", 0) },
		"beyond the limit":   func() error { return acquire("acme", 4) },
		"bad limit":          func() error { return acquire("negative", 1) },
		"semaphore: no key":  func() error { return acquire("", 1) },
		"mutex: long key":    func() error { _, err := locks.TryLock(ctx, long); return err },
		"extend: no ttl":     func() error { return lease.Extend(ctx, 0) },
		"guard: no token":    func() error { return guard.Set(ctx, "7", 0, "v", 0) },
		"guard: no key":      func() error { _, _, err := guard.Get(ctx, ""); return err },
		"load: no key":       func() error { _, err := users.Do(ctx, "", load); return err },
		"invalidate: no key": func() error { return users.Invalidate(ctx, "") },
		"config": func() error {
			_, err := singleflight.New(rdb, singleflight.Config[string]{Name: "users", TTL: -1})
			return err
		},
	} {
		err := call()
		redistest.Check(t, errors.Is(err, leasehold.ErrInvalid) && !errors.Is(err, leasehold.ErrUnavailable),
			"%s: %v; want ErrInvalid alone", what, err)
	}
}
