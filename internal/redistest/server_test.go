package redistest

import (
	"errors"
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

func TestServerWithAppendOnlyFileKeepsItsData(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		s := StartServer(t, v, "--appendonly", "yes", "--appendfsync", "always")
		if err := s.Client().Set(t.Context(), "k", "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
		s.Kill()
		s.Restart()
		if got, err := s.Client().Get(t.Context(), "k").Result(); err != nil || got != "v" {
			t.Fatalf("the key: %q, %v", got, err)
		}
	})
}

func TestPausedServerKeepsConnectionsAndAnswersNothing(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		s := StartServer(t, v)
		rdb := s.Client(hasty)
		if err := rdb.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		s.Pause()
		if err := rdb.Ping(t.Context()).Err(); err == nil {
			t.Fatal("a stopped server answers")
		}
		s.Resume()
		if err := s.Client().Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestServerRefusesBadArguments(t *testing.T) {
	v := Newest(t)
	if in, err := startInstance(v, "--no-such-option", "x"); err == nil {
		in.stop()
		t.Fatal("it started")
	} else if errors.Is(err, errPortTaken) {
		t.Fatal(err)
	}
}

func TestServerThatFindsItsPortTakenTellsIt(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		s := StartServer(t, v)
		in := &instance{version: v, dir: t.TempDir(), port: s.port}
		if err := in.launch(); !errors.Is(err, errPortTaken) {
			t.Fatalf("error %v", err)
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

func TestCommandstatsCountsCalls(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		rdb := StartServer(t, v).Client()
		for range 3 {
			if err := rdb.Eval(t.Context(), `return redis.call('INCR', KEYS[1])`, []string{"k"}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if calls := Commandstats(t, rdb); calls["eval"] != 3 || calls["incr"] != 3 {
			t.Fatalf("calls: %v", calls)
		}
	})
}
