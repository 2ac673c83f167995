package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
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
				m, one, w := aQuorum(f)
				l := redistest.Must(m.Lock(f.Context(), "k"))(f)
				if held != nil {
					f.BreakIdle(one, w, 2) // a leave comes to one of them
				}
				w.Stall(held...)
				redistest.WantErr(f, l.Unlock())
				closed := make(chan error, 2)
				for range cap(closed) { // the second one does no harm
					go func() { closed <- m.Close(f.Context()) }()
				}
				synctest.Wait()
				redistest.Check(f, len(closed) == 0, "Close did not wait")
				w.Unstall()
				for range cap(closed) {
					redistest.WantErr(f, <-closed)
				}
			})
		})
	}
}

// What waits to be given back to a server that is away ends by itself. Close does not wait for that.
func TestCloseDropsWhatWaitsForAServerThatIsAway(t *testing.T) {
	harness.Bubble(t, "quorum", func(f *harness.Fixture) {
		m, _, w := aQuorum(f)
		l := redistest.Must(m.Lock(f.Context(), "k"))(f)
		w.Refuse()
		redistest.WantErr(f, l.Unlock())
		began := time.Now()
		redistest.WantErr(f, m.Close(f.Context()))
		redistest.AtMost(f, time.Since(began), 5*time.Second, "Close took %v")
	})
}

// A lock that a majority no longer renews says how many servers still do.
func TestALossSaysHowManyServersAnswer(t *testing.T) {
	harness.Bubble(t, "quorum", func(f *harness.Fixture) {
		var rdbs []redis.UniversalClient
		for range 3 {
			_, client := redistest.Bubble(f)
			rdbs = append(rdbs, client())
		}
		m := redistest.Must(mutex.NewQuorum(rdbs, mutex.Config{Name: f.Family}))(f)
		l := redistest.Must(m.Lock(f.Context(), "k"))(f)
		for _, rdb := range rdbs[1:] {
			redistest.WantErr(f, rdb.Close())
		}
		<-l.Context().Done()
		redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrLost, redistest.Says("1 servers can be counted, of the 2 that are needed"))
		redistest.WantErr(f, m.Close(f.Context()))
	})
}

// aQuorum makes a handle on three servers. The way to the first one is a wire.
func aQuorum(f *harness.Fixture) (*mutex.Mutex, *redis.Client, *harness.Wire) {
	f.Helper()
	w := &harness.Wire{}
	one := f.Connect(w).(*redis.Client)
	rdbs := []redis.UniversalClient{one}
	for range 2 {
		_, client := redistest.Bubble(f)
		rdbs = append(rdbs, client())
	}
	m := redistest.Must(mutex.NewQuorum(rdbs, mutex.Config{Name: f.Family}))(f)
	one.AddHook(w)
	return m, one, w
}
