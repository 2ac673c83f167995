package mutex

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// Every subscription is killed each 15 ms while 32 goroutines of four handles
// hand a lock around. A hand-over whose message is lost costs what it takes to
// subscribe anew, some 40 ms; at worst a waiter asks again by itself, after a
// sign-of-life interval. So the lock is never free for long while others wait for
// it. The newest server alone, where no other test has subscriptions.
func TestKilledSubscriptions(t *testing.T) {
	srv := redistest.StartServer(t, redistest.Newest(t))
	s := newSite(t, srv.Client())
	const handles, each = 4, 8
	end := time.Now().Add(4 * time.Second)
	var all sync.WaitGroup
	all.Go(func() {
		for time.Now().Before(end) {
			if err := s.RDB.Do(context.Background(), "CLIENT", "KILL", "TYPE", "pubsub").Err(); err != nil {
				t.Error(err)
			}
			time.Sleep(15 * time.Millisecond)
		}
	})
	var mu sync.Mutex
	var waits []time.Duration
	var last uint64
	var unlocked time.Time
	var longestFree time.Duration // between an Unlock that has returned and the next Lock that has
	for range handles {
		h := s.handle(srv.Client(), mutex.Config{})
		for range each {
			all.Go(func() {
				for time.Now().Before(end) {
					from := time.Now()
					l, err := h.Lock(t.Context(), s.Key)
					if err != nil {
						t.Errorf("lock: %v", err)
						return
					}
					mu.Lock()
					waits = append(waits, time.Since(from))
					if !unlocked.IsZero() {
						longestFree = max(longestFree, time.Since(unlocked))
					}
					if l.Token() <= last {
						t.Errorf("token %d after %d", l.Token(), last)
					}
					last = l.Token()
					mu.Unlock()
					time.Sleep(time.Millisecond)
					if err := l.Unlock(); err != nil {
						t.Errorf("unlock: %v", err)
						return
					}
					mu.Lock()
					unlocked = time.Now()
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	slices.Sort(waits)
	if len(waits) == 0 {
		t.Fatal("nobody had a turn")
	}
	t.Logf("%d turns; the median wait is %v, the longest %v; the lock was free for %v at most",
		len(waits), waits[len(waits)/2], waits[len(waits)-1], longestFree)
	const signOfLife, slack = 1500 * time.Millisecond, 2 * time.Second // slack is what a busy machine may add
	if longestFree > signOfLife+slack {
		t.Errorf("the lock was free for %v while others waited for it", longestFree)
	}
	s.free(10 * time.Second)
}
