package semaphore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// foreign puts a key of another type where the library keeps one of its own,
// and returns what must be there afterwards.
func (s *site) foreign(part string) (stays func()) {
	s.TB.Helper()
	key, ctx := s.Part(part), context.Background()
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
		redistest.Check(s.TB, err == nil && strings.Join(got, " ") == "not ours", "the foreign key %s holds %q, %v", key, got, err)
		if ttl, err := s.RDB.PTTL(ctx, key).Result(); err != nil || ttl != -1 {
			s.TB.Errorf("the foreign key %s was given an expiry: %v, %v", key, ttl, err)
		}
	}
}

func isWrongType(tb testing.TB, what string, err error, want error) {
	redistest.Check(tb, err != nil && strings.Contains(err.Error(), "WRONGTYPE"), "%s: error %v; want WRONGTYPE", what, err)
	redistest.Check(tb, want == nil || strings.Contains(fmt.Sprint(err), want.Error()), "%s: error %v; want %v", what, err, want)
}

var semaphoreParts = []string{"holders", "queue", "alive", "limit"}

// The key turns foreign, or is deleted, under a lease: the holder is told within a renewal.
func TestHolderIsToldThatItsKeyIsGone(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		rdb := target.Client(t)
		hold := func(t *testing.T) (*site, *semaphore.Lease) {
			s := newSite(t, rdb)
			l := redistest.Must(s.closing(rdb, semaphore.Config{Limit: 1, TTL: lastingTTL}).TryAcquire(t.Context(), s.Key))(t)
			return s, l
		}
		for _, what := range []string{"foreign", "deleted", "deleted and taken"} {
			t.Run(what, func(t *testing.T) {
				s, l := hold(t)
				stays, release := func() {}, func() {}
				if what == "foreign" {
					stays = s.foreign("holders")
				} else {
					redistest.WantErr(t, s.RDB.Del(t.Context(), s.Part("holders")).Err())
				}
				if what == "deleted and taken" {
					next := redistest.Must(s.closing(rdb, semaphore.Config{Limit: 1}).TryAcquire(t.Context(), s.Key))(t)
					release = func() { s.holds(1); redistest.Expect(t, next.Release(), nil, "the successor's release: %v") }
				}
				deadline := l.Deadline()
				redistest.Get(t, "the end of a lease whose key is gone", l.Context().Done())
				redistest.AtMost(t, time.Since(deadline), 0, "told %v after the deadline; a renewal comes long before")
				redistest.WantErr(t, context.Cause(l.Context()), leasehold.ErrLost)
				redistest.WantErr(t, l.Release(), leasehold.ErrLost)
				release()
				if stays(); what == "foreign" {
					isWrongType(t, "cause", context.Cause(l.Context()), leasehold.ErrLost)
					s.RDB.Del(context.Background(), s.Part("holders"))
				}
				s.empty(1, 0)
			})
		}
	})
}

// The other keys turn foreign while a lease is held: that is no reason to lose
// it, and nothing foreign is touched when it is given back.
func TestForeignKeyBesideALeaseHarmsNeither(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		rdb := target.Client(t)
		for _, part := range semaphoreParts[1:] {
			t.Run(part, func(t *testing.T) {
				s := newSite(t, rdb)
				h := s.closing(rdb, semaphore.Config{Limit: 1, TTL: lastingTTL})
				l := redistest.Must(h.TryAcquire(t.Context(), s.Key))(t)
				stays := s.foreign(part)
				renewed(t, l, l.Deadline())
				if err := l.Release(); err != nil {
					redistest.WantErr(t, err, leasehold.ErrUnavailable)
					isWrongType(t, "release", err, nil)
				}
				s.holds(0)
				stays()
				s.RDB.Del(context.Background(), s.Part(part))
			})
		}
	})
}
