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

func hasty(o *redis.Options) { o.MaxRetries, o.DialerRetries, o.ReadTimeout = -1, 1, time.Second }

func TestKilledServerIsGoneAndRestartsEmpty(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		s := StartServer(t, v)
		rdb := s.Client(hasty)
		WantErr(t, rdb.Set(t.Context(), "k", "v", 0).Err())
		s.Kill()
		CheckNow(t, rdb.Ping(t.Context()).Err() != nil, "a killed server answers")
		addr := s.Addr()
		s.Restart()
		CheckNow(t, s.Addr() == addr, "moved from %s to %s", addr, s.Addr())
		WantErr(t, s.Client().Get(t.Context(), "k").Err(), redis.Nil)
	})
}

func TestSharedServerIsOneAndCannotBeKilled(t *testing.T) {
	v := Newest(t)
	a, b := Shared(t, v), Shared(t, v)
	CheckNow(t, a.Addr() == b.Addr(), "two servers: %s, %s", a.Addr(), b.Addr())
	tb := &recorder{TB: t}
	Shared(tb, v).Kill()
	Require(t, tb.errors, 1, "%d errors")
	WantErr(t, a.Client().Ping(t.Context()).Err())
}

type recorder struct {
	testing.TB
	errors int
}

func (r *recorder) Errorf(string, ...any) { r.errors++ }
