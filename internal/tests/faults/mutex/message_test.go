package mutex_test

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
// subscribe anew, some 40 ms, and nobody waits for more than 31 of them. The
// newest server alone, where no other test has subscriptions.
func TestKilledSubscriptions(t *testing.T) {
	srv := redistest.StartServer(t, redistest.Newest(t))
	s := newSite(t, srv.Client())
	const handles, each = 4, 8
	end := time.Now().Add(4 * time.Second)
	var all sync.WaitGroup
	all.Go(func() {
		for time.Now().Before(end) {
			if err := s.rdb.Do(context.Background(), "CLIENT", "KILL", "TYPE", "pubsub").Err(); err != nil {
				t.Error(err)
			}
			time.Sleep(15 * time.Millisecond)
		}
	})
	var mu sync.Mutex
	var waits []time.Duration
	var last uint64
	for range handles {
		h := s.handle(srv.Client(), mutex.Config{})
		for range each {
			all.Go(func() {
				for time.Now().Before(end) {
					from := time.Now()
					l, err := h.Lock(t.Context(), s.key)
					if err != nil {
						t.Errorf("lock: %v", err)
						return
					}
					mu.Lock()
					waits = append(waits, time.Since(from))
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
				}
			})
		}
	}
	all.Wait()
	slices.Sort(waits)
	if len(waits) == 0 {
		t.Fatal("nobody had a turn")
	}
	longest := waits[len(waits)-1]
	t.Logf("%d turns; the median wait is %v, the longest %v", len(waits), waits[len(waits)/2], longest)
	if longest > 1500*time.Millisecond {
		t.Errorf("somebody waited %v", longest)
	}
	s.free(3 * time.Second)
}
