// Package path takes leases in the usual ways, so that scripts/path.sh can count what runs.
package path

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

func handle(t *testing.T, addr string) *semaphore.Semaphore {
	t.Helper()
	if testing.CoverMode() == "" {
		t.Skip("scripts/path.sh runs this, to count what it runs")
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "n", Limit: 1, TTL: time.Second}))(t)
	return s
}

// turns takes three leases, one after the other, each for half a TTL.
func turns(s *semaphore.Semaphore) (err error) {
	for range 3 {
		l, failed := s.Acquire(context.Background(), "k")
		if failed != nil {
			return failed
		}
		time.Sleep(time.Second / 2)
		if err = l.Release(); err != nil {
			return err
		}
	}
	return nil
}

// Nobody else wants a permit.
func TestLone(t *testing.T) {
	redistest.WantErr(t, turns(handle(t, redistest.Mini(t).Addr())))
}

// Two processes take turns.
func TestContended(t *testing.T) {
	mini := redistest.Mini(t)
	a, b := handle(t, mini.Addr()), handle(t, mini.Addr())
	other := make(chan error, 1)
	go func() { other <- turns(a) }()
	redistest.WantErr(t, turns(b))
	redistest.WantErr(t, <-other)
}
