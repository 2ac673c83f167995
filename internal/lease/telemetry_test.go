package lease

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A TTL that the network is too slow for is logged, once.
func TestTTLThatIsTooShortIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	events := newTelemetry(Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for _, took := range []time.Duration{time.Second, time.Second + 1, 2 * time.Second} {
		events.roundTrip(3*time.Second, took)
		events.end()
		want := min(1, int(took-time.Second))
		if n := strings.Count(log.String(), "round_trip="); n != want {
			t.Errorf("%d lines after a round trip of %v; want %d:\n%s", n, took, want, &log)
		}
	}
}

// BenchmarkNothingSet is what a handle without Observer and Logger pays for them in an
// Acquire and a Release, and a renewal.
func BenchmarkNothingSet(b *testing.B) {
	m, l, w := &Manager{}, &attempt{}, &attempt{}
	b.ReportAllocs()
	for b.Loop() {
		began := m.events.now()
		m.reached(nil, nil)
		m.events.acquired(context.Background(), w, began, nil, nil)
		m.events.released(l, nil)
		m.reached(nil, nil)
		m.reached(nil, nil)
		m.events.renewed(time.Time{}, &Result{Code: Granted})
	}
}

func TestNothingSetAllocatesNothing(t *testing.T) {
	m, l, w := &Manager{}, &attempt{}, &attempt{}
	if n := testing.AllocsPerRun(100, func() {
		m.reached(nil, nil)
		m.events.acquired(context.Background(), w, m.events.now(), nil, nil)
		m.events.released(l, nil)
		m.events.renewed(time.Time{}, &Result{Code: Granted})
	}); n != 0 {
		t.Errorf("%v allocations with neither Observer nor Logger", n)
	}
}
