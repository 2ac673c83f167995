package schedule

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
)

// confirming is a task whose calls replicas confirm, or not.
type confirming struct {
	Entry
	confirm *call.Confirm
	refused int // calls that found no room
}

func (c *confirming) Due(now time.Time, calls []*call.Call) ([]*call.Call, time.Time, time.Duration) {
	one := call.New(script, 1, "node")
	one.Confirm = c.confirm
	one.Done = func(_ []int64, err error) {
		if err != nil {
			c.refused++
		}
	}
	return append(calls, one), time.Time{}, 0
}

// replicasHang answers calls at once, but those that replicas confirm never.
type replicasHang struct {
	mu               sync.Mutex
	plain, confirmed int // pipelines
	mixed            bool
	hang             chan struct{}
}

func (r *replicasHang) Node(key string) string                              { return key }
func (r *replicasHang) SendInParts(ctx context.Context, calls []*call.Call) { r.Send(ctx, calls) }

func (r *replicasHang) Send(_ context.Context, calls []*call.Call) {
	r.mu.Lock()
	wait := calls[0].Confirm != nil
	for _, c := range calls {
		r.mixed = r.mixed || (c.Confirm != nil) != wait
	}
	if wait {
		r.confirmed++
	} else {
		r.plain++
	}
	r.mu.Unlock()
	if wait {
		<-r.hang
	}
}

// Calls that wait for replicas go in pipelines of their own, of which few are under way;
// others are sent as if there were none.
func TestReplicasHoldUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &replicasHang{hang: make(chan struct{})}
		l := New(r)
		confirm := &call.Confirm{Replicas: 1, Wait: 10 * time.Second}
		const rounds = 12
		var plain, waiting [rounds]confirming
		for i := range rounds {
			waiting[i].confirm = confirm
			l.Put(&waiting[i].Entry, &waiting[i], time.Now(), 0)
			l.Put(&plain[i].Entry, &plain[i], time.Now(), 0)
			time.Sleep(time.Second) // an ordinary pipeline would be old by then
		}
		refused := 0
		for i := range rounds {
			if plain[i].refused > 0 {
				t.Errorf("call %d, which replicas do not confirm, found no room", i)
			}
			refused += waiting[i].refused
		}
		r.mu.Lock()
		if r.mixed {
			t.Error("calls shared a pipeline with others that replicas confirm")
		}
		if r.plain != rounds {
			t.Errorf("%d pipelines without WAIT; want %d", r.plain, rounds)
		}
		if r.confirmed != maxYoung+1 || refused != rounds-r.confirmed {
			t.Errorf("%d pipelines with WAIT, and %d calls found no room; want %d, since one is no longer young", r.confirmed, refused, maxYoung+1)
		}
		r.mu.Unlock()
		close(r.hang)
		l.Close()
	})
}
