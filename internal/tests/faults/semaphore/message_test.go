package semaphore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// overtime is the longest that a permit stays free, or with a dead waiter,
// while a live one waits: one and a half times the 1.5 s between signs of life.
const overtime = 2250 * time.Millisecond

func init() {
	// waiter waits for a permit, forever: address, family, key.
	redistest.RegisterChild("waiter", func(args []string) int {
		rdb := dial(args[0])
		h, err := semaphore.New(rdb, semaphore.Config{Name: args[1], Limit: 1})
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		fmt.Println("ready")
		_, err = h.Acquire(context.Background(), args[2])
		fmt.Println("granted", err)
		select {}
	})
}

// Every message to subscribers is lost.
func TestWaiterNeedsNoMessage(t *testing.T) {
	eachServerAtOnce(t, func(t *testing.T, srv *redistest.Server) {
		s := newSite(t, srv.Client())
		p := redistest.NewProxy(t, srv.Addr())
		p.DropMessages(true)
		first, err := s.closing(s.rdb, semaphore.Config{Limit: 1}).Acquire(t.Context(), s.key)
		if err != nil {
			t.Fatal(err)
		}
		h := s.closing(p.Client(), semaphore.Config{Limit: 1})
		asked := answers(p, "ask")
		waiter := acquiring(func() (*semaphore.Lease, error) { return h.Acquire(t.Context(), s.key) })
		<-asked // as it does when the subscription stands; by itself it would in 1.5 s again
		s.passedOn(first, waiter)
	})
}

// The head of the queue was killed, and nobody has noticed when the holder
// releases. The next in line hears nothing either.
func TestDeadHeadOfTheQueueIsPassed(t *testing.T) {
	eachServerAtOnce(t, func(t *testing.T, srv *redistest.Server) {
		var both sync.WaitGroup
		defer both.Wait()
		for name, drop := range map[string]bool{"messages lost": true, "messages heard": false} {
			both.Go(func() {
				t.Run(name, func(t *testing.T) {
					s := newSite(t, srv.Client())
					p := redistest.NewProxy(t, srv.Addr())
					p.DropMessages(drop)
					first, err := s.closing(s.rdb, semaphore.Config{Limit: 1}).Acquire(t.Context(), s.key)
					if err != nil {
						t.Fatal(err)
					}
					child := redistest.StartChild(t, "waiter", srv.Addr(), s.family, s.key)
					child.Expect("ready")
					count(t, "waiters", 1, s.queued)
					h := s.closing(p.Client(), semaphore.Config{Limit: 1})
					asked := answers(p, "ask")
					waiter := acquiring(func() (*semaphore.Lease, error) { return h.Acquire(t.Context(), s.key) })
					<-asked
					count(t, "waiters", 2, s.queued)
					child.Kill()
					s.passedOn(first, waiter)
				})
			})
		}
	})
}

// passedOn releases first and has the waiter be granted in time.
func (s *site) passedOn(first *semaphore.Lease, waiter <-chan result) {
	s.tb.Helper()
	released := time.Now()
	if err := first.Release(); err != nil {
		s.tb.Errorf("release: %v", err)
	}
	next := within(s.tb, 30*time.Second, waiter)
	if next.err != nil {
		s.tb.Fatalf("wait: %v", next.err)
	}
	took := next.at.Sub(released)
	s.tb.Logf("granted after %v", took)
	if took > overtime {
		s.tb.Errorf("granted after %v; want %v at most", took, overtime)
	}
	s.holds(1)
	if err := next.lease.Release(); err != nil {
		s.tb.Errorf("release: %v", err)
	}
	s.empty(1, 0)
}
