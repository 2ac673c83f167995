package semaphore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// overtime is the longest that a permit stays free, or with a dead waiter,
// while a live one waits: the 1.5 s between signs of life, and what a busy machine adds.
// Without them the permit would stay free until the dead waiter is dropped, 4.5 s after its
// last sign of life.
const overtime = 4 * time.Second

func init() {
	// waiter waits for a permit, forever: address, family, key.
	redistest.RegisterChild("waiter", func(args []string) int {
		rdb := harness.Dial(args[0])
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
	harness.EachServerAtOnce(t, func(t *testing.T, srv *redistest.Server) {
		s := newSite(t, srv.Client())
		p := redistest.NewProxy(t, srv.Addr())
		p.DropMessages(true)
		first, err := s.closing(s.RDB, semaphore.Config{Limit: 1}).Acquire(t.Context(), s.Key)
		if err != nil {
			t.Fatal(err)
		}
		h := s.closing(p.Client(), semaphore.Config{Limit: 1})
		asked := harness.Answers(p, "ask")
		waiter := harness.Go(func() (*semaphore.Lease, error) { return h.Acquire(t.Context(), s.Key) })
		<-asked // as it does when the subscription stands; by itself it would in 1.5 s again
		s.passedOn(first, waiter)
	})
}

// The head of the queue was killed, and nobody has noticed when the holder
// releases. The next in line hears nothing either.
func TestDeadHeadOfTheQueueIsPassed(t *testing.T) {
	harness.EachServerAtOnce(t, func(t *testing.T, srv *redistest.Server) {
		var both sync.WaitGroup
		defer both.Wait()
		for name, drop := range map[string]bool{"messages lost": true, "messages heard": false} {
			both.Go(func() {
				t.Run(name, func(t *testing.T) {
					s := newSite(t, srv.Client())
					p := redistest.NewProxy(t, srv.Addr())
					p.DropMessages(drop)
					first, err := s.closing(s.RDB, semaphore.Config{Limit: 1}).Acquire(t.Context(), s.Key)
					if err != nil {
						t.Fatal(err)
					}
					child := redistest.StartChild(t, "waiter", srv.Addr(), s.Family, s.Key)
					child.Expect("ready")
					harness.WaitCount(t, "waiters", 1, s.Queued)
					h := s.closing(p.Client(), semaphore.Config{Limit: 1})
					asked := harness.Answers(p, "ask")
					waiter := harness.Go(func() (*semaphore.Lease, error) { return h.Acquire(t.Context(), s.Key) })
					<-asked
					harness.WaitCount(t, "waiters", 2, s.Queued)
					child.Kill()
					s.passedOn(first, waiter)
				})
			})
		}
	})
}

// passedOn releases first and has the waiter be granted in time.
func (s *site) passedOn(first *semaphore.Lease, waiter <-chan result) {
	s.TB.Helper()
	released := time.Now()
	if err := first.Release(); err != nil {
		s.TB.Errorf("release: %v", err)
	}
	next := harness.Got(s.TB, 30*time.Second, "an acquisition", waiter)
	if next.Err != nil {
		s.TB.Fatalf("wait: %v", next.Err)
	}
	took := next.At.Sub(released)
	s.TB.Logf("granted after %v", took)
	if took > overtime {
		s.TB.Errorf("granted after %v; want %v at most", took, overtime)
	}
	s.holds(1)
	if err := next.Value.Release(); err != nil {
		s.TB.Errorf("release: %v", err)
	}
	s.empty(1, 0)
}
