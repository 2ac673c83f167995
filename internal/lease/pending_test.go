package lease_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// A call that stands in the queue of its server is not made a second time, and a hint that
// comes meanwhile is not forgotten.
func TestOneCallAtATime(t *testing.T) {
	inBubble(t, time.Minute, func(t *testing.T, _ *redis.Client, m *lease.Manager) {
		l := mustTake(t, m, "k")
		first, second := l.DueNow(), l.DueNow()
		redistest.Check(t, first == 1 && second == 0, "%d renewals, then %d; want one", first, second)
		res := redistest.Must(m.Resource("k"))(t)
		h := m.Wait(res, 1<<40)
		if first, second := h.DueNow(), h.DueNow(); first != 1 || second != 0 {
			t.Errorf("%d asks, then %d; want one", first, second)
		}
		now := time.Now()
		at := h.Hint(now)
		redistest.Check(t, !at.After(now), "asks %v after a hint; want an ask as soon as the one under way is answered", at.Sub(now))
		redistest.Check(t, h.DueNow() == 0 && !h.Hint(now.Add(time.Hour)).After(now), "a hint during an ask was forgotten")
		redistest.Expect(t, m.LeavesDue(res), 1, "%d leaves; want one")
		h.Forget()
		redistest.NoError(t, l.Release("unlock"))
	})
}
