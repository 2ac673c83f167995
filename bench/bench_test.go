// Package bench measures leasehold against floors that no design can beat: the same client, the same server, the
// same run. Figures mean something as ratios and differences within one run; absolute times are the machine's.
// The module bench/peers measures other libraries in the same way.
//
// Run it with: make bench
package bench

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// closes has a handle closed with the benchmark: closes(mutex.New(rdb, cfg))(b).
func closes[H interface{ Close(context.Context) error }](handle H, err error) func(testing.TB) H {
	return func(b testing.TB) H {
		b.Helper()
		redistest.WantErr(b, err)
		b.Cleanup(func() { _ = handle.Close(context.Background()) })
		return handle
	}
}

func locks(b testing.TB, rdb redis.UniversalClient, mod ...func(*mutex.Config)) *mutex.Mutex {
	b.Helper()
	cfg := mutex.Config{Name: "bench"}
	for _, m := range mod {
		m(&cfg)
	}
	return closes(mutex.New(rdb, cfg))(b)
}

func permits(b testing.TB, rdb redis.UniversalClient, limit int, mod ...func(*semaphore.Config)) *semaphore.Semaphore {
	b.Helper()
	cfg := semaphore.Config{Name: "bench", Limit: limit}
	for _, m := range mod {
		m(&cfg)
	}
	return closes(semaphore.New(rdb, cfg))(b)
}

func cache[T any](b testing.TB, rdb redis.UniversalClient, mod ...func(*singleflight.Config[T])) *singleflight.Group[T] {
	b.Helper()
	cfg := singleflight.Config[T]{Name: "bench", TTL: time.Hour}
	for _, m := range mod {
		m(&cfg)
	}
	return closes(singleflight.New(rdb, cfg))(b)
}

// contenders are goroutines of four clients of srv that want the lock of key.
func contenders(b testing.TB, name, key string, srv *harness.Server, mod ...func(*mutex.Config)) harness.Contenders {
	b.Helper()
	return harness.Contenders{Name: name, Clients: clients, Turn: harness.Spread(clients, func(int) func(context.Context, func()) error {
		m := locks(b, srv.Client(), mod...)
		return func(ctx context.Context, hold func()) error { return lockTurn(ctx, m, key, hold) }
	})}
}

// Contenders are so many clients, and goroutines of each.
const clients, goroutines = 4, 16

// lockTurn is a pair: it takes a lock, holds it for hold, if that is not nil, and gives it back.
func lockTurn(ctx context.Context, m *mutex.Mutex, key string, hold func()) error {
	l, err := m.Lock(ctx, key)
	if err != nil {
		return err
	}
	if hold != nil {
		hold()
	}
	return l.Unlock()
}

func permitTurn(ctx context.Context, s *semaphore.Semaphore, key string, hold func()) error {
	l, err := s.Acquire(ctx, key)
	if err != nil {
		return err
	}
	if hold != nil {
		hold()
	}
	return l.Release()
}
