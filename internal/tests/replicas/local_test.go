package replicas

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// A process whose turns stay in it gives its lease back to a waiter elsewhere, and enters
// again for its own. With the replicas cut off neither has a turn.
func TestNoLocalTurnOnAnUnconfirmedLease(t *testing.T) {
	const localFor = 5 * time.Millisecond
	x := redistest.StartReplicated(t, redistest.Newest(t), 2)
	rdb := x.Primary.Client()
	name := redistest.Name(t)
	open := func() *mutex.Mutex {
		m, err := mutex.New(x.Primary.Client(), mutex.Config{
			Name: name, Replicas: 2, ReplicaWait: 50 * time.Millisecond, LocalFor: localFor,
		})
		redistest.WantErr(t, err)
		t.Cleanup(func() { harness.CloseWithin(t, 30*time.Second, m) })
		return m
	}
	local, other := open(), open()
	var held *mutex.Lock
	redistest.Eventually(t, "a lock", func() bool {
		var err error
		held, err = local.Lock(t.Context(), "k")
		return err == nil
	})
	const waiters = 3
	failed := make(chan error, 2*waiters)
	wait := func(m *mutex.Mutex) {
		for range waiters {
			go func() {
				l, err := m.Lock(t.Context(), "k")
				if err == nil {
					_ = l.Unlock()
				}
				failed <- err
			}()
		}
	}
	wait(other)
	redistest.Eventually(t, "the other process to wait", func() bool {
		return rdb.ZCard(t.Context(), harness.Part("mtx", name, "k", "queue")).Val() == 1
	})
	wait(local)
	x.Cut()
	time.Sleep(2 * localFor) // no turn may begin on this lease any more
	redistest.Expect(t, held.Unlock(), nil, "unlock: %v")
	for range 2 * waiters {
		redistest.WantErr(t, redistest.Get(t, "a waiter", failed), leasehold.ErrUnavailable)
	}
}
