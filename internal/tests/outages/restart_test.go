package outages

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func clientsOf(srv *redistest.Server) func() redis.UniversalClient {
	return func() redis.UniversalClient { return srv.Client() }
}

// The server is killed three times while all write, and comes back with what it
// had confirmed: nothing that is promised is broken, and leases are kept.
func TestServerKilledThatKeepsEverything(t *testing.T) {
	t.Parallel()
	srv := redistest.StartServer(t, redistest.Newest(t), "--appendonly", "yes", "--appendfsync", "always")
	c := newCrowd(t, clientsOf(srv))
	h := c.hold()
	for range 3 {
		c.work()
		srv.Kill()
		time.Sleep(50 * time.Millisecond)
		srv.Restart()
		c.recovered(time.Now())
	}
	h.keptOrTold()
	c.unharmed()
}

// The server is killed and comes back with nothing. Leases are lost, and their
// holders are told by their next renewal; others may have been granted before.
// Tokens go on rising, so that a holder that is told late can't write.
func TestServerRestartedEmpty(t *testing.T) {
	t.Parallel()
	srv := redistest.StartServer(t, redistest.Newest(t))
	c := newCrowd(t, clientsOf(srv))
	h := c.hold()
	c.work()
	srv.Kill()
	srv.Restart()
	back := time.Now()
	c.recovered(back)
	h.allTold(back)
	h.keptOrTold()
	for range 2 {
		c.work()
		srv.Restart()
		c.recovered(time.Now())
	}
	c.work()
	c.check()
}

// The server answers nothing for longer than leases last, and goes on. Nobody is
// granted what is over.
func TestServerStalls(t *testing.T) {
	t.Parallel()
	srv := redistest.StartServer(t, redistest.Newest(t))
	for name, stall := range map[string]func(time.Duration){
		"stopped": func(d time.Duration) {
			srv.Pause()
			time.Sleep(d)
			srv.Resume()
		},
		"CLIENT PAUSE": func(d time.Duration) {
			if err := srv.Client().Do(t.Context(), "CLIENT", "PAUSE", d.Milliseconds(), "ALL").Err(); err != nil {
				t.Error(err)
			}
			time.Sleep(d)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, clientsOf(srv))
			c.work()
			stall(ttl + ttl/2) // less than a client waits for an answer
			c.recovered(time.Now())
			c.work()
			c.unharmed()
		})
	}
}
