package life

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// The life of an idle lease: it serves nobody after its deadline, and is given back at once when it
// is lost, because no holder needs time to stop.
func TestLifeOfAnIdleLease(t *testing.T) {
	granted := func() *Life {
		a := New(Options{TTL: time.Second})
		a.Send()
		a.OnEnter(&Outcome{Code: Granted, Term: time.Second}, 1, 1)
		a.Look(1)
		a.Take(1)
		return &a
	}
	a := granted()
	redistest.CheckNow(t, a.Rest(2) && a.Resume(a.Deadline-1) && !a.Idle, "a lease that is held does not rest, or serves no other turn")
	redistest.CheckNow(t, a.Rest(a.Deadline-1), "a lease that is held does not rest")
	redistest.Check(t, !a.Resume(a.Deadline), "an idle lease serves a turn at its deadline")
	fx := a.notice(a.Deadline)
	redistest.Check(t, a.State == Leaving && a.Released && fx&HoldEnded != 0, "at its deadline an idle lease is %v; want that it is given back", a.State)
	if a = granted(); a.Rest(a.Deadline) {
		t.Error("a lease rests at its deadline")
	}
	a = granted()
	a.notice(a.Deadline)
	redistest.Check(t, a.State == Lost, "at its deadline a lease in use is %v; want that it is lost", a.State)
}
