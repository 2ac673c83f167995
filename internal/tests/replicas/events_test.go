package replicas

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// counter counts events of some kinds.
type counter struct{ unavailable, late, outOfReach atomic.Int64 }

func (c *counter) Observe(e leasehold.Event) {
	switch {
	case e.Kind == leasehold.EventAcquired && e.Outcome == leasehold.OutcomeUnavailable:
		c.unavailable.Add(1)
	case e.Kind == leasehold.EventLateGrant:
		c.late.Add(1)
	case e.Kind == leasehold.EventUnavailable:
		c.outOfReach.Add(1)
	}
}

// A grant that replicas did not confirm is an acquisition that failed. It is no late
// grant, and Redis is not out of reach.
func TestEventsOfUnconfirmedGrants(t *testing.T) {
	x := redistest.StartReplicated(t, redistest.Newest(t), 1)
	x.Cut()
	var events counter
	m := redistest.Must(mutex.New(x.Primary.Client(), mutex.Config{Name: redistest.Name(t), Replicas: 1, ReplicaWait: 20 * time.Millisecond, Observer: &events}))(t)
	for range 3 {
		redistest.WantErr(t, redistest.ErrorOf(m.Lock(t.Context(), "k")), leasehold.ErrUnavailable)
	}
	harness.CloseWithin(t, 10*time.Second, m) // all is given back
	redistest.Expect(t, events.unavailable.Load(), 3, "%d acquisitions failed")
	redistest.Expect(t, events.late.Load(), 0, "%d grants came late")
	redistest.Expect(t, events.outOfReach.Load(), 0, "Redis went out of reach %d times")
}
