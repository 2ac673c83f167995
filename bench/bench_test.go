// Package bench measures leasehold against floors that no design can beat: the
// same client, the same server, the same run. Figures mean something as ratios
// and differences within one run; absolute times are the machine's. The module
// bench/peers measures other libraries in the same way.
//
// Run it with: make bench
package bench

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func locks(b testing.TB, rdb redis.UniversalClient) *mutex.Mutex {
	b.Helper()
	m := redistest.Must(mutex.New(rdb, mutex.Config{Name: "bench"}))(b)
	b.Cleanup(func() { _ = m.Close(context.Background()) })
	return m
}

func permits(b testing.TB, rdb redis.UniversalClient, limit int) *semaphore.Semaphore {
	b.Helper()
	s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "bench", Limit: limit}))(b)
	b.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func cache[T any](b testing.TB, rdb redis.UniversalClient) *singleflight.Group[T] {
	b.Helper()
	g := redistest.Must(singleflight.New(rdb, singleflight.Config[T]{Name: "bench", TTL: time.Hour}))(b)
	b.Cleanup(func() { _ = g.Close(context.Background()) })
	return g
}
