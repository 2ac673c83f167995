package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// site is one key of a family as it stands on its server: what the tests of
// faults compare the library's word with. Its client goes around every fault.
type site struct {
	tb          testing.TB
	rdb         redis.UniversalClient
	family, key string
}

func newSite(tb testing.TB, rdb redis.UniversalClient) *site {
	return &site{tb: tb, rdb: rdb, family: redistest.Name(tb), key: "k"}
}

// part is a Redis key of the site, by the names that the contract gives.
func (s *site) part(part string) string {
	return "leasehold:mtx:{" + s.family + ":" + s.key + "}:" + part
}

// guarded is a Redis key of a guard of the same name.
func (s *site) guarded(part string) string {
	return "leasehold:grd:{" + s.family + ":" + s.key + "}:" + part
}

// handle makes a handle that is closed at the end of the test.
func (s *site) handle(rdb redis.UniversalClient, cfg mutex.Config) *mutex.Mutex {
	s.tb.Helper()
	cfg.Name = s.family
	h, err := mutex.New(rdb, cfg)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			s.tb.Errorf("close: %v", err)
		}
	})
	return h
}

// free waits until the lock is free, takes it and gives it back.
func (s *site) free(within time.Duration) {
	s.tb.Helper()
	h := s.handle(s.rdb, mutex.Config{})
	until(s.tb, within, func() error {
		l, err := h.TryLock(context.Background(), s.key)
		if err != nil {
			return err
		}
		return l.Unlock()
	})
	if n, err := s.rdb.ZCard(context.Background(), s.part("queue")).Result(); err != nil || n != 0 {
		s.tb.Errorf("%d wait: %v", n, err)
	}
}

// waiters waits until so many wait.
func (s *site) waiters(want int64) {
	s.tb.Helper()
	until(s.tb, 10*time.Second, func() error {
		n, err := s.rdb.ZCard(context.Background(), s.part("queue")).Result()
		if err == nil && n != want {
			err = fmt.Errorf("%d wait; want %d", n, want)
		}
		return err
	})
}

// until waits until ok returns nil.
func until(tb testing.TB, within time.Duration, ok func() error) {
	tb.Helper()
	var err error
	for deadline := time.Now().Add(within); ; time.Sleep(2 * time.Millisecond) {
		if err = ok(); err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("not within %v: %v", within, err)
		}
	}
}

func isErr(tb testing.TB, what string, err error, wants ...error) {
	tb.Helper()
	for _, want := range wants {
		if !errors.Is(err, want) {
			tb.Errorf("%s: error %v; want one that matches %v", what, err, want)
		}
	}
}

// result is what a call in another goroutine returned, and when.
type result struct {
	lock *mutex.Lock
	err  error
	at   time.Time
}

// locking waits for a lock in another goroutine.
func locking(h *mutex.Mutex, key string) <-chan result {
	done := make(chan result, 1)
	go func() {
		l, err := h.Lock(context.Background(), key)
		done <- result{l, err, time.Now()}
	}()
	return done
}

// within takes the result, and fails the test where none comes in time.
func within(tb testing.TB, d time.Duration, done <-chan result) *mutex.Lock {
	tb.Helper()
	select {
	case r := <-done:
		if r.err != nil {
			tb.Fatalf("lock: %v", r.err)
		}
		return r.lock
	case <-time.After(d):
		tb.Fatalf("the lock is not granted within %v", d)
		return nil
	}
}

// dial is for children, which have no test to close a client with.
func dial(addr string) *redis.Client { return redis.NewClient(&redis.Options{Addr: addr}) }
