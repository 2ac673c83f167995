package mutex

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// The primary of a lock's key is killed while one holds it and another waits.
// The replica takes over: locking works again, and nobody hangs. The one slow
// test, on the newest version alone.
func TestClusterFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	c := redistest.StartCluster(t, redistest.Newest(t))
	s := newSite(t, c.Client())
	h, h2 := s.handle(c.Client(), mutex.Config{TTL: 8 * time.Second}), s.handle(c.Client(), mutex.Config{TTL: 8 * time.Second})
	l, err := h.Lock(t.Context(), s.Key)
	if err != nil {
		t.Fatal(err)
	}
	waiter := locking(h2, s.Key)
	s.WaitQueued(1)
	node := c.NodeFor(s.Part("holders"))
	if n, err := node.Client().Wait(t.Context(), 1, 5*time.Second).Result(); err != nil || n != 1 {
		t.Fatalf("%d replicas have heard: %v", n, err)
	}
	node.Kill()
	at := time.Now()

	// Another key of the same node.
	for tries := 1; ; tries++ {
		other, err := h.TryLock(t.Context(), s.Key+"x")
		if err == nil {
			err = other.Unlock()
		}
		if err == nil && c.NodeFor(s.Part("holders")) != nil {
			break
		}
		if time.Since(at) > 10*time.Second {
			t.Fatalf("locking doesn't work after %v: %v", time.Since(at), err)
		}
	}
	harness.Until(t, 10*time.Second, func() error {
		got, err := h.TryLock(t.Context(), s.Key)
		if err == nil {
			err = got.Unlock()
		}
		if !errors.Is(err, leasehold.ErrBusy) {
			return err
		}
		return nil
	})
	t.Logf("the key's new primary answers %v after the kill", time.Since(at))

	lost := context.Cause(l.Context())
	t.Logf("the lease after that: %v", lost)
	err = l.Unlock()
	if lost == nil && err != nil {
		t.Errorf("unlock of a lock that is held: %v", err)
	}
	if lost != nil {
		harness.IsErr(t, "unlock", err, leasehold.ErrLost)
	}
	next := within(t, 12*time.Second, waiter)
	t.Logf("the waiter was granted the lock %v after the kill", time.Since(at))
	if next.Token() <= l.Token() {
		t.Errorf("token %d after %d", next.Token(), l.Token())
	}
	if err := next.Unlock(); err != nil {
		t.Errorf("the waiter's unlock: %v", err)
	}
	s.free(10 * time.Second)
	if took := time.Since(at); took > 15*time.Second {
		t.Errorf("all of it took %v", took)
	}
}
