package lease

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/protocol"
)

// nothingSet is what a handle without Observer and Logger does for them in an Acquire and a
// Release, and a renewal.
func nothingSet(m *Manager, a *attempt) {
	began := m.events.Now()
	m.reached(nil, nil)
	a.tellAcquired(context.Background(), began, nil, nil)
	a.tellEnded(nil, true)
	m.reached(nil, nil)
	m.reached(nil, nil)
	m.tellRenewed(time.Time{}, &protocol.Result{Outcome: life.Outcome{Code: life.Granted}})
}

func BenchmarkNothingSet(b *testing.B) {
	m := &Manager{}
	a := &attempt{m: m}
	b.ReportAllocs()
	for b.Loop() {
		nothingSet(m, a)
	}
}

func TestNothingSetAllocatesNothing(t *testing.T) {
	m := &Manager{}
	a := &attempt{m: m}
	if n := testing.AllocsPerRun(100, func() { nothingSet(m, a) }); n != 0 {
		t.Errorf("%v allocations with neither Observer nor Logger", n)
	}
}
