package quorum

import (
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// Close waits for what calls to a single server still do: for a vote that is not given back yet, and
// until the client has looked at the connections that may be broken.
func TestCloseWaitsForWhatCallsBegan(t *testing.T) {
	for name, held := range map[string][]string{"a leave": nil, "a look at connections": {"time"}} {
		t.Run(name, func(t *testing.T) {
			harness.Bubble(t, "quorum", func(f *harness.Fixture) {
				w := &harness.Wire{}
				one := f.Connect(w).(*redis.Client)
				rdbs := []redis.UniversalClient{one}
				for range 2 {
					_, client := redistest.Bubble(f)
					rdbs = append(rdbs, client())
				}
				m := redistest.Must(mutex.NewQuorum(rdbs, mutex.Config{Name: f.Family}))(f)
				one.AddHook(w)
				l := redistest.Must(m.Lock(f.Context(), "k"))(f)
				if held != nil {
					breakIdle(f, one, w)
				}
				w.Stall(held...)
				redistest.WantErr(f, l.Unlock())
				closed := make(chan error, 1)
				go func() { closed <- m.Close(f.Context()) }()
				synctest.Wait()
				redistest.Check(f, len(closed) == 0, "Close did not wait")
				w.Unstall()
				redistest.WantErr(f, <-closed)
			})
		})
	}
}

// breakIdle breaks two idle connections of the pool: a leave comes to one of them.
func breakIdle(f *harness.Fixture, rdb *redis.Client, w *harness.Wire) {
	f.Helper()
	a, b := rdb.Conn(), rdb.Conn()
	for _, conn := range []*redis.Conn{a, b} {
		redistest.WantErr(f, conn.Ping(f.Context()).Err())
	}
	_, _ = a.Close(), b.Close()
	w.Cut()
	w.Heal()
}
