package networks_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// Keys that one process holds and another one waits for, and locks of the waiting process beside them.
func TestManyWaitersOfManyKeys(t *testing.T) {
	harness.StrictOnly(t, harness.Locks)
	for _, keys := range either([]int{20000, 60000}, []int{2000}) {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			eachSite(t, 0, false, func(s *site) {
				holder := redistest.StartChild(s.T, "networks-holder", s.network.Addr(), fmt.Sprint(keys))
				holder.Expect("held")
				rdb := s.far()
				m, beside := s.newMutex(rdb, 120*time.Second), s.newMutex(rdb, 6*time.Second)
				own := s.lockMany(beside, "own", either(500, 100))

				var failed failures
				var got sync.WaitGroup
				all := make(chan struct{})
				for i := range keys { // the goroutines, all at once, and the connections are there before the heap is measured
					got.Go(func() {
						<-all
						failed.add(pair(s.Context(), beside, fmt.Sprint("free", i)))
					})
				}
				close(all)
				got.Wait()
				failed.report(s, "Lock and Unlock of a free key")
				began, empty := time.Now(), heap()
				for i := range keys {
					got.Go(func() { failed.add(pair(s.Context(), m, fmt.Sprint("key", i))) })
				}
				s.awaitPlaces(keys)
				s.Logf("%d callers had a place within %v", keys, time.Since(began).Round(time.Millisecond))
				time.Sleep(either(15*time.Second, 4*time.Second))
				redistest.Expect(s, s.places(keys), keys, "%d waiters have their place")
				each := (heap() - empty) / keys
				redistest.AtMost(s, each, 2560, "a waiter takes %d bytes of the heap")
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

// Locks that one process is granted at once, over a long way: it has two seconds to renew them.
func TestManyGrantedAtOnce(t *testing.T) {
	eachSite(t, 200*time.Millisecond, false, func(s *site) {
		keys := either(20000, 2000)
		held := s.lockMany(s.newMutex(s.near, time.Minute), "key", keys)
		m, granted := s.newMutex(s.far(), time.Minute), make(chan []*mutex.Lock)
		go func() {
			defer close(granted)
			granted <- s.lockMany(m, "key", keys)
		}()
		s.awaitPlaces(keys)
		s.unlockMany(held)
		waited := <-granted
		time.Sleep(3 * time.Second)
		s.unlockMany(waited)
	})
}

// heap returns how many bytes of the heap are in use besides those of commands under way: the least
// of ten readings. The stacks of goroutines are not in it.
func heap() int {
	least := math.MaxInt
	for range 10 {
		runtime.GC()
		runtime.GC() // what pools let go of in the first
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		least = min(least, int(m.HeapAlloc))
		time.Sleep(100 * time.Millisecond)
	}
	return least
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

// awaitPlaces waits until all keys have a waiter.
func (s *site) awaitPlaces(keys int) {
	s.Helper()
	for deadline := time.Now().Add(time.Minute); s.places(keys) < keys; time.Sleep(200 * time.Millisecond) {
		redistest.CheckNow(s, time.Now().Before(deadline), "not %d places after a minute", keys)
	}
}

func init() { redistest.RegisterChild("networks-holder", holder) }

// holder is a process that holds many keys until it reads a line. Its arguments are the address
// of the server and the number of keys.
func holder(args []string) int {
	n, err1 := strconv.Atoi(args[1])
	rdb := redis.NewClient(&redis.Options{Addr: args[0], PoolSize: 20})
	m, err2 := mutex.New(rdb, mutex.Config{Name: "net", TTL: 120 * time.Second})
	if err := errors.Join(err1, err2); err != nil {
		fmt.Println(err)
		return 1
	}
	var all sync.WaitGroup
	var failed failures
	for i := range n {
		all.Go(func() {
			_, err := m.Lock(context.Background(), fmt.Sprint("key", i))
			failed.add(err)
		})
	}
	all.Wait()
	if failed.n.Load() > 0 {
		fmt.Println(*failed.first.Load())
		return 1
	}
	fmt.Println("held")
	bufio.NewScanner(os.Stdin).Scan() // or the end of the test
	_ = m.Close(context.Background())
	return 0
}
