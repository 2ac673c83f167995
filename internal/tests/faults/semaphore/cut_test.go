package semaphore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// Holders are told that they were cut off before the server lets go of what
// they held: 200 of 200, by a network that is cut both ways or one way, at
// whatever moment of their renewals. The server's clock is this machine's, and
// what it says of a lease at the moment of the cut is the soonest that it can
// let go. The newest server alone: the server does nothing here.
func TestCutOffHolderIsToldBeforeTheServerLetsGo(t *testing.T) {
	srv := redistest.Shared(t, redistest.Newest(t))
	for _, way := range []struct {
		name               string
		toServer, toClient bool
	}{{"both ways", true, true}, {"to the server", true, false}, {"to the client", false, true}} {
		t.Run(way.name, func(t *testing.T) {
			// Where this process was not running in the time between the end of
			// a holder's belief and the end of the lease, no timer could help,
			// and the run tells nothing of that lease. Then there is another.
			for try := 1; try <= 4; try++ {
				run := newCutOff(t, srv)
				if run.cut(way.toServer, way.toClient) || t.Failed() {
					return
				}
			}
			t.Log("unclear four times, on a machine that let this process wait")
		})
	}
}

// cutOff is 200 leases of 20 handles.
type cutOff struct {
	*site
	p       *redistest.Proxy
	random  *rand.Rand
	handles []*semaphore.Semaphore
	held    []*cutOffLease
	told    sync.WaitGroup
}

type cutOffLease struct {
	*semaphore.Lease
	ended time.Time // when its Context did
	lasts time.Time // by the server
}

func newCutOff(t *testing.T, srv *redistest.Server) *cutOff {
	_, random := harness.Seeded(t)
	x := &cutOff{site: newSite(t, srv.Client()), p: redistest.NewProxy(t, srv.Addr()), random: random}
	for range 20 {
		ttl := 700*time.Millisecond + time.Duration(x.random.Int64N(int64(800*time.Millisecond)))
		h := x.handle(x.p.Client(func(o *redis.Options) { o.ReadTimeout = time.Second }), semaphore.Config{Limit: 1, TTL: ttl})
		x.handles = append(x.handles, h)
		for range 10 {
			l, err := h.TryAcquire(t.Context(), fmt.Sprint(len(x.held)))
			if err != nil {
				t.Fatal(err)
			}
			c := &cutOffLease{Lease: l}
			x.held = append(x.held, c)
			ctx := l.Context()
			x.told.Go(func() {
				<-ctx.Done()
				c.ended = time.Now()
			})
		}
	}
	return x
}

// cut cuts the network, and reports whether all 200 were seen to be told in
// time. One that could have been, and was not, fails the test.
func (x *cutOff) cut(toServer, toClient bool) (clear bool) {
	t := x.TB
	beats := newHeartbeat()
	time.Sleep(time.Duration(x.random.Int64N(int64(300 * time.Millisecond)))) // some moment of the renewals
	x.p.Cut(toServer, toClient)
	time.Sleep(20 * time.Millisecond) // for what the server was doing
	x.askServer()
	x.told.Wait()
	beats.stop()

	least, most := time.Hour, time.Duration(0)
	late, early := 0, 0
	for _, c := range x.held {
		harness.IsErr(t, "the Context's cause", context.Cause(c.Context()), leasehold.ErrLost)
		harness.IsErr(t, "release", c.Release(), leasehold.ErrLost)
		if c.lasts.IsZero() {
			early++ // on a machine that let a whole TTL pass
			continue
		}
		if before := c.lasts.Sub(c.Deadline()); before < 10*time.Millisecond {
			t.Errorf("the deadline is %v before the server lets go; want 10ms", before)
		}
		left := c.lasts.Sub(c.ended)
		least, most = min(least, left), max(most, left)
		if left > 0 {
			continue
		}
		late++
		// Of the beats of each millisecond, many were missed, or some in a row, where the
		// process stood still.
		margin := c.lasts.Sub(c.Deadline())
		n, gap := beats.between(c.Deadline(), c.lasts)
		if n >= int(margin/time.Millisecond)*3/4 && gap <= margin/4 {
			t.Errorf("told %v after the server let go, while timers of this process ran %d times, at most %v apart, in the %v from deadline to end",
				-left, n, gap, margin)
		}
	}
	t.Logf("told between %v and %v before the server lets go; %d late, %d lost before the cut", least, most, late, early)
	x.p.Heal()
	for _, h := range x.handles {
		harness.CloseWithin(t, closeBound, h)
	}
	return late == 0 && early == 0
}

// askServer asks how long each lease lasts.
func (x *cutOff) askServer() {
	ends := make([]*redis.ZSliceCmd, len(x.held))
	if _, err := x.RDB.Pipelined(context.Background(), func(pipe redis.Pipeliner) error {
		for i, c := range x.held {
			x.Key = c.Key()
			ends[i] = pipe.ZRangeWithScores(context.Background(), x.Part("holders"), 0, -1)
		}
		return nil
	}); err != nil {
		x.TB.Fatal(err)
	}
	for i, c := range x.held {
		if z := ends[i].Val(); len(z) == 1 {
			c.lasts = time.UnixMilli(int64(z[0].Score))
		} else if c.Context().Err() == nil && time.Now().Before(c.Deadline()) {
			x.TB.Errorf("lease %d is held by %d on the server", i, len(z))
		}
	}
}

// heartbeat is a timer that notes when it ran: each millisecond, or as often as
// the machine lets this process run.
type heartbeat struct {
	beats     []time.Time
	end, done chan struct{}
}

func newHeartbeat() *heartbeat {
	h := &heartbeat{end: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(h.done)
		for {
			select {
			case <-h.end:
				return
			case <-time.After(time.Millisecond):
				h.beats = append(h.beats, time.Now())
			}
		}
	}()
	return h
}

func (h *heartbeat) stop() {
	close(h.end)
	<-h.done
}

// between is how often it ran in that time, and the longest time from beat to beat.
func (h *heartbeat) between(from, to time.Time) (n int, gap time.Duration) {
	last := from
	for _, b := range h.beats {
		if !b.After(from) {
			continue
		}
		if !b.Before(to) {
			break
		}
		n, gap, last = n+1, max(gap, b.Sub(last)), b
	}
	return n, max(gap, to.Sub(last))
}
