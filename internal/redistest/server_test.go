package redistest

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// eachVersion runs fn beside itself on every installed version.
func eachVersion(t *testing.T, fn func(t *testing.T, v Version)) {
	for _, v := range NeedServers(t) {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			fn(t, v)
		})
	}
}

func hasty(o *redis.Options) {
	o.MaxRetries, o.DialerRetries, o.ReadTimeout = -1, 1, time.Second
}

func TestKilledServerIsGoneAndRestartsEmpty(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		s := StartServer(t, v)
		rdb := s.Client(hasty)
		if err := rdb.Set(t.Context(), "k", "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
		s.Kill()
		if err := rdb.Ping(t.Context()).Err(); err == nil {
			t.Fatal("a killed server answers")
		}
		addr := s.Addr()
		s.Restart()
		if s.Addr() != addr {
			t.Fatalf("moved from %s to %s", addr, s.Addr())
		}
		if err := s.Client().Get(t.Context(), "k").Err(); err != redis.Nil {
			t.Fatalf("the key: %v", err)
		}
	})
}

func TestSharedServerIsOneAndCannotBeKilled(t *testing.T) {
	v := Newest(t)
	a, b := Shared(t, v), Shared(t, v)
	if a.Addr() != b.Addr() {
		t.Fatalf("two servers: %s, %s", a.Addr(), b.Addr())
	}
	tb := &recorder{TB: t}
	Shared(tb, v).Kill()
	if tb.errors != 1 {
		t.Fatalf("%d errors", tb.errors)
	}
	if err := a.Client().Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

type recorder struct {
	testing.TB
	errors int
}

func (r *recorder) Errorf(string, ...any) { r.errors++ }
