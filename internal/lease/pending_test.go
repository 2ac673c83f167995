package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A call that stands in the queue of its server is not made a second time, and a hint that
// comes meanwhile is not forgotten.
func TestOneCallAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		m := newLocks(t, client(), time.Minute)
		l := mustTake(t, m, "k")
		if first, second := l.DueNow(), l.DueNow(); first != 1 || second != 0 {
			t.Errorf("%d renewals, then %d; want one", first, second)
		}
		res, err := m.Resource("k")
		if err != nil {
			t.Fatal(err)
		}
		h := m.Wait(res, 1<<40)
		if first, second := h.DueNow(), h.DueNow(); first != 1 || second != 0 {
			t.Errorf("%d asks, then %d; want one", first, second)
		}
		now := time.Now()
		if at := h.Hint(now); at.After(now) {
			t.Errorf("asks %v after a hint; want an ask as soon as the one under way is answered", at.Sub(now))
		}
		if h.DueNow() != 0 || h.Hint(now.Add(time.Hour)).After(now) {
			t.Error("a hint during an ask was forgotten")
		}
		if n := m.LeavesDue(res); n != 1 {
			t.Errorf("%d leaves; want one", n)
		}
		h.Forget()
		if err := l.Release("unlock"); err != nil {
			t.Error(err)
		}
	})
}
