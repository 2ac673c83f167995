package lease

import (
	"context"
	"testing"
	"time"
)

// BenchmarkNothingSet is what a handle without Observer and Logger pays for them in an
// Acquire and a Release, and a renewal.
func BenchmarkNothingSet(b *testing.B) {
	m, l, w := &Manager{}, &Lease{}, &waiter{}
	b.ReportAllocs()
	for b.Loop() {
		began := m.events.now()
		m.reached(nil, nil)
		m.events.acquired(context.Background(), w, began, nil)
		m.events.released(l, nil)
		m.reached(nil, nil)
		m.reached(nil, nil)
		m.events.renewed(time.Time{}, RenewReply{}, nil)
	}
}

func TestNothingSetAllocatesNothing(t *testing.T) {
	m, l, w := &Manager{}, &Lease{}, &waiter{}
	if n := testing.AllocsPerRun(100, func() {
		m.reached(nil, nil)
		m.events.acquired(context.Background(), w, m.events.now(), nil)
		m.events.released(l, nil)
		m.events.renewed(time.Time{}, RenewReply{}, nil)
	}); n != 0 {
		t.Errorf("%v allocations with neither Observer nor Logger", n)
	}
}
