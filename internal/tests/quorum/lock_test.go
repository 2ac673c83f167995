package quorum

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestTryLock(t *testing.T) {
	each(t, 3, func(f *fleet) {
		a, b := f.open(), f.open()
		f.begin(a) // which takes longer than a TryLock waits, on a busy machine
		l := redistest.Must(a.TryLock(f.Context(), "k"))(f)
		var busy *leasehold.BusyError
		_, err := b.TryLock(f.Context(), "k")
		redistest.Check(f, errors.Is(err, leasehold.ErrBusy) && errors.As(err, &busy) && busy.InUse == 1, "a second TryLock: %v", err)
		f.unlock(l)
		again := redistest.Must(b.TryLock(f.Context(), "k"))(f)
		redistest.Check(f, again.Token() > l.Token(), "token %d after %d", again.Token(), l.Token())
		f.unlock(again)
		redistest.WantErr(f, again.Unlock(), leasehold.ErrReleased)
	})
}

// The waiters get the lock in the order in which they came. Nothing is asked in between but signs of
// life, so each hand-over takes a message and a round of calls.
func TestWaitersInTheirOrder(t *testing.T) {
	each(t, 5, func(f *fleet) {
		first := f.lock(f.open(), "k")
		order := make(chan int, 6)
		var all sync.WaitGroup
		old := []*mutex.Mutex{f.open(), f.open(), f.open()}
		time.Sleep(100 * time.Millisecond) // their place does not depend on the age of their handle
		for i := range 6 {
			var m *mutex.Mutex
			if i < len(old) {
				m = old[i]
			} else {
				m = f.open()
			}
			all.Go(func() {
				l, err := m.Lock(context.Background(), "k")
				if err != nil {
					f.Error(err)
					return
				}
				order <- i
				redistest.NoError(f, l.Unlock())
			})
			f.waiting(m, "k", i+1)
		}
		began := time.Now()
		f.unlock(first)
		all.Wait()
		took := time.Since(began)
		for i := range 6 {
			redistest.Expect(f, <-order, i, "turn %d is that of waiter %d", i)
		}
		f.Logf("six hand-overs took %v", took)
		redistest.Check(f, took <= 1400*time.Millisecond, "six hand-overs took %v: some waiter was only told by its sign of life", took)
	})
}

// waiting waits until n requests wait for key.
func (f *fleet) waiting(m *mutex.Mutex, key string, n int) {
	f.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if state, err := m.Inspect(context.Background(), key); err == nil && state.Waiting == n {
			return
		}
	}
	f.Fatalf("there are never %d waiters", n)
}
