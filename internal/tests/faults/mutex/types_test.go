package mutex

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// foreign puts a list where the library keeps something else, and returns what
// must be there afterwards.
func (s *site) foreign(key string) (stays func()) {
	s.TB.Helper()
	ctx := context.Background()
	if _, err := s.RDB.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Del(ctx, key)
		pipe.RPush(ctx, key, "not", "ours")
		return nil
	}); err != nil {
		s.TB.Fatal(err)
	}
	return func() {
		s.TB.Helper()
		got, err := s.RDB.LRange(ctx, key, 0, -1).Result()
		if err != nil || strings.Join(got, " ") != "not ours" {
			s.TB.Errorf("the foreign key %s holds %q, %v", key, got, err)
		}
		if ttl, err := s.RDB.PTTL(ctx, key).Result(); err != nil || ttl != -1 {
			s.TB.Errorf("the foreign key %s was given an expiry: %v, %v", key, ttl, err)
		}
	}
}

func isWrongType(tb testing.TB, what string, err error) {
	tb.Helper()
	harness.IsErr(tb, what, err, leasehold.ErrUnavailable)
	if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		tb.Errorf("%s: error %v; want WRONGTYPE", what, err)
	}
}

var lockParts = []string{"holders", "queue", "alive", "fence"}

// A key of another type stands in the place of each of ours.
func TestLockFindsAForeignKey(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, target redistest.Target) {
		rdb := target.Client(t)
		for _, part := range lockParts {
			t.Run(part, func(t *testing.T) {
				s := newSite(t, rdb)
				h := s.handle(rdb, mutex.Config{})
				stays := s.foreign(s.Part(part))
				for name, lock := range map[string]func(context.Context, string) (*mutex.Lock, error){
					"lock": h.Lock, "try lock": h.TryLock,
				} {
					_, err := lock(t.Context(), s.Key)
					isWrongType(t, name, err)
					stays()
					for _, other := range lockParts {
						if n, err := s.RDB.Exists(t.Context(), s.Part(other)).Result(); other != part && (err != nil || n != 0) {
							t.Errorf("%s was written beside a foreign %s", other, part)
						}
					}
				}
				s.RDB.Del(t.Context(), s.Part(part))
			})
		}
	})
}

// The fence turns foreign under a lock and its waiter. The holder holds on; the
// a caller that would get a token is told that there is none.
func TestFenceTurnsForeign(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, target redistest.Target) {
		rdb := target.Client(t)
		s := newSite(t, rdb)
		h := s.handle(rdb, mutex.Config{TTL: 3 * time.Second})
		l, err := h.Lock(t.Context(), s.Key)
		if err != nil {
			t.Fatal(err)
		}
		waiter := locking(s.handle(target.Client(t), mutex.Config{}), s.Key)
		s.WaitQueued(1)
		stays := s.foreign(s.Part("fence"))
		if err := l.Unlock(); err != nil {
			isWrongType(t, "unlock", err)
		}
		select {
		case r := <-waiter:
			isWrongType(t, "the waiter", r.Err)
		case <-time.After(5 * time.Second):
			t.Fatal("the waiter is told nothing")
		}
		stays()
		s.RDB.Del(t.Context(), s.Part("fence"))
		s.free(6 * time.Second)
	})
}

// Both keys of a guard.
func TestGuardFindsAForeignKey(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, target redistest.Target) {
		rdb := target.Client(t)
		for part, other := range map[string]string{"value": "seen", "seen": "value"} {
			t.Run(part, func(t *testing.T) {
				s := newSite(t, rdb)
				g, err := mutex.NewGuard(rdb, mutex.GuardConfig{Name: s.Family})
				if err != nil {
					t.Fatal(err)
				}
				stays := s.foreign(s.Of(harness.Guards).Part(part))
				isWrongType(t, "set", g.Set(t.Context(), s.Key, 7, "v", time.Minute))
				stays()
				if n, err := s.RDB.Exists(t.Context(), s.Of(harness.Guards).Part(other)).Result(); err != nil || n != 0 {
					t.Errorf("%s was written beside a foreign %s", other, part)
				}
				if part == "value" {
					if _, _, err := g.Get(t.Context(), s.Key); !errors.Is(err, leasehold.ErrUnavailable) || !strings.Contains(err.Error(), "WRONGTYPE") {
						t.Errorf("get: error %v; want WRONGTYPE", err)
					}
				}
			})
		}
	})
}
