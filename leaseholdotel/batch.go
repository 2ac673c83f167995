package leaseholdotel

import (
	"fmt"
	"sync"

	"go.opentelemetry.io/otel"

	"github.com/leasehold-go/leasehold"
)

const (
	batchSize = 256           // events
	mostKept  = 8 * batchSize // events
)

// batch keeps the events of acquisitions and holds until there are batchSize of them, or until the metrics are
// collected. If a process takes permits only now and then, the SDK's memory has left the processor's caches. Recording
// each event by itself would then cost the caller several times as much.
type batch struct {
	record func(leasehold.Event)

	recording sync.Mutex // held while events are recorded; taken before mu

	mu    sync.Mutex
	kept  []leasehold.Event
	empty []leasehold.Event // the other one of two buffers
}

// keep keeps an event, and begins to record the batch once it is complete. If events come
// faster than they can be recorded, the caller of keep records them.
func (b *batch) keep(e leasehold.Event) {
	b.mu.Lock()
	b.kept = append(b.kept, e)
	kept := len(b.kept)
	b.mu.Unlock()
	switch {
	case kept == batchSize:
		go b.recordAll()
	case kept >= mostKept:
		b.recordAll()
	}
}

// recordAll records all events that were kept before the call.
func (b *batch) recordAll() {
	b.recording.Lock()
	defer b.recording.Unlock()
	b.mu.Lock()
	events := b.kept
	b.kept, b.empty = b.empty, nil
	b.mu.Unlock()
	for _, e := range events {
		b.try(e)
	}
	b.mu.Lock()
	b.empty = events[:0]
	b.mu.Unlock()
}

// try records an event. Views and filters of the MeterProvider may panic, here on a goroutine of ours.
func (b *batch) try(e leasehold.Event) {
	defer func() {
		if p := recover(); p != nil {
			otel.Handle(fmt.Errorf("leaseholdotel: the MeterProvider panicked: %v", p))
		}
	}()
	b.record(e)
}
