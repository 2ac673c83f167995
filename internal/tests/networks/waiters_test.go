package networks_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// Keys that one process holds and another one waits for, a bystander, and locks of the waiting
// process beside them.
func TestManyWaitersOfManyKeys(t *testing.T) {
	for _, keys := range either([]int{20000, 60000}, []int{2000}) {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			eachSite(t, 0, false, func(s *site) {
				holder := redistest.StartChild(s.T, "networks-holder", s.far().(*redis.Client).Options().Addr, fmt.Sprint(keys))
				holder.Expect("held")
				rdb := s.far()
				m, beside := s.newMutex(rdb, 120*time.Second), s.newMutex(rdb, 6*time.Second)
				own := s.lockMany(beside, "own", either(500, 100))

				var failed failures
				var got sync.WaitGroup
				began, before := time.Now(), heap()
				for i := range keys {
					got.Go(func() {
						l, err := m.Lock(s.Context(), fmt.Sprint("key", i))
						if failed.add(err); err == nil {
							failed.add(l.Unlock())
						}
					})
				}
				s.awaitPlaces(keys, keys)
				s.Logf("%d callers had a place within %v", keys, time.Since(began).Round(time.Millisecond))
				bytes := (heap()-before)/keys - goroutineBytes(keys)
				if s.Logf("a waiter takes %d bytes, besides the goroutine of its caller", bytes); full() && bytes > 2048 {
					s.Errorf("want 2048 at most")
				}
				s.bystander(m, either(15*time.Second, 4*time.Second))
				n := s.places(keys)
				redistest.Check(s, n == keys, "%d of %d waiters have their place", n, keys)
				if failed.report(s, "Lock of a waiter") {
					return
				}
				began = time.Now()
				holder.Send("release")
				got.Wait()
				failed.report(s, "Lock and Unlock of a waiter")
				s.Logf("all waiters had their turn within %v", time.Since(began).Round(time.Millisecond))
				s.unlockMany(own)
			})
		})
	}
}

// heap returns how many bytes are in use, without the stacks of goroutines.
func heap() int {
	runtime.GC()
	runtime.GC() // what pools let go of in the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// goroutineBytes returns what a goroutine takes besides its stack that waits for the first of
// three channels, as the caller of Lock does. n of them are measured.
func goroutineBytes(n int) int {
	before := heap()
	done, never, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			select {
			case <-done:
			case <-never:
			case <-ended:
			}
		})
	}
	time.Sleep(100 * time.Millisecond) // until all wait
	size := (heap() - before) / n
	close(done)
	all.Wait()
	return size
}

// bystander takes and gives back a lock of its own again and again, and reports how long that
// takes beside the others' calls.
func (s *site) bystander(m *mutex.Mutex, span time.Duration) {
	s.Helper()
	var pairs []time.Duration
	for began := time.Now(); time.Since(began) < span; {
		one := time.Now()
		l, err := m.Lock(s.Context(), "bystander")
		if err == nil {
			err = l.Unlock()
		}
		if err != nil {
			s.Errorf("a bystander: %v", err)
			return
		}
		pairs = append(pairs, time.Since(one))
		time.Sleep(10 * time.Millisecond)
	}
	s.Logf("%d pairs of a bystander: p50 %v, p99 %v", len(pairs), percentile(pairs, 50), percentile(pairs, 99))
}

// Close gives up the waits for many keys, and returns soon.
func TestCloseWithManyWaiters(t *testing.T) {
	eachSite(t, 0, false, func(s *site) {
		keys := either(60000, 2000)
		holder := redistest.StartChild(s.T, "networks-holder", s.far().(*redis.Client).Options().Addr, fmt.Sprint(keys))
		holder.Expect("held")
		m := s.newMutex(s.far(), 120*time.Second)
		var all sync.WaitGroup
		var wrong failures
		for i := range keys {
			all.Go(func() {
				if _, err := m.Lock(s.Context(), fmt.Sprint("key", i)); !errors.Is(err, leasehold.ErrClosed) {
					wrong.add(fmt.Errorf("%w; want ErrClosed", err))
				}
			})
		}
		s.awaitPlaces(keys, keys)
		began := time.Now()
		redistest.NoError(s, m.Close(s.Context()))
		s.Logf("Close with %d waiters took %v", keys, time.Since(began).Round(time.Millisecond))
		all.Wait()
		wrong.report(s, "Lock during Close")
		redistest.Expect(s, s.places(keys), 0, "%d places are left")
	})
}

// places returns on how many of the keys that are held somebody has a place in the queue.
func (s *site) places(keys int) (n int) {
	s.Helper()
	const each = 1000
	for from := 0; from < keys; from += each {
		pipe := s.near.Pipeline()
		for i := from; i < min(from+each, keys); i++ {
			pipe.ZCard(s.Context(), fmt.Sprintf("leasehold:mtx:{net:key%d}:queue", i))
		}
		replies := redistest.Must(pipe.Exec(s.Context()))(s)
		for _, r := range replies {
			n += int(r.(*redis.IntCmd).Val())
		}
	}
	return n
}

// awaitPlaces waits until want of the keys have a waiter.
func (s *site) awaitPlaces(keys, want int) {
	s.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		n := s.places(keys)
		switch {
		case n == want:
			return
		case time.Now().After(deadline):
			s.Fatalf("%d places after a minute; want %d", n, want)
		}
	}
}
