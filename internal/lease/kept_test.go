package lease

import (
	"testing"
	"time"
)

// The life of an idle lease: it serves nobody after its deadline, and is given back at once when it
// is lost, because no holder needs time to stop.
func TestLifeOfAnIdleLease(t *testing.T) {
	granted := func() *life {
		a := &life{ttl: time.Second, attached: true}
		a.send()
		a.onEnter(&Result{Code: Granted, Term: time.Second}, 1, 1)
		a.look(1)
		a.take(1)
		return a
	}
	a := granted()
	if !a.rest(2) || !a.resume(a.deadline-1) || a.idle {
		t.Fatal("a lease that is held does not rest, or serves no other turn")
	}
	if !a.rest(a.deadline - 1) {
		t.Fatal("a lease that is held does not rest")
	}
	if a.resume(a.deadline) {
		t.Error("an idle lease serves a turn at its deadline")
	}
	if fx := a.notice(a.deadline); a.state != leaving || !a.released || fx&ended == 0 {
		t.Errorf("at its deadline an idle lease is %v; want that it is given back", a.state)
	}
	if a = granted(); a.rest(a.deadline) {
		t.Error("a lease rests at its deadline")
	}
	a = granted()
	a.notice(a.deadline)
	if a.state != lost {
		t.Errorf("at its deadline a lease in use is %v; want that it is lost", a.state)
	}
}
