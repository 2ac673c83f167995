package lease

import (
	"context"
	"testing"
	"time"
	"unsafe"

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

// A caller that waits for RetryAfter never spins, however short the holds and high the limit.
func TestRetryAfterIsNeverZero(t *testing.T) {
	var m Manager
	m.holds.add(1)
	if busy := m.BusyError(protocol.State{Limit: 100_000}); busy.RetryAfter <= 0 {
		t.Errorf("RetryAfter is %v", busy.RetryAfter)
	}
}

// An attempt fills a size class of Go's allocator: one field more costs 64 bytes for each lease.
func TestAttemptFillsItsSizeClass(t *testing.T) {
	if size := unsafe.Sizeof(attempt{}); size > 416 {
		t.Errorf("an attempt takes %d bytes, want at most 416", size)
	}
}
