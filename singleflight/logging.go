package singleflight

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
)

// observer passes events on. A panic of the Observer ends nothing. runtime.Goexit ends the
// goroutine of the event all the same: see Config.Observer.
type observer struct{ to leasehold.Observer }

func (o observer) Observe(e leasehold.Event) {
	defer func() { _ = recover() }()
	o.to.Observe(e)
}

const (
	// lineWithin is how long a line of the log holds up what it is about.
	lineWithin = 100 * time.Millisecond
	// maxLines is how many lines may be on their way. Further lines are dropped.
	maxLines = 64
)

// handler passes lines on to a handler of the caller's, each on a goroutine of its own. Usually
// the line is written when Handle returns, so lines keep their order. Once a line is late, no
// further line is waited for until that one is written.
type handler struct {
	to    slog.Handler
	lines *lines
}

// lines counts the lines that are on their way.
type lines struct{ all, late atomic.Int64 }

func newHandler(to slog.Handler) handler { return handler{to, new(lines)} }

// Enabled is true for all levels: Handle asks.
func (h handler) Enabled(context.Context, slog.Level) bool { return true }

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.to.WithAttrs(attrs), h.lines}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.to.WithGroup(name), h.lines}
}

// Handle writes a line. It returns no error, as nobody reads it.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if h.lines.all.Add(1) > maxLines {
		h.lines.all.Add(-1)
		return nil
	}
	written := make(chan struct{})
	var waits atomic.Bool // Handle waits
	if h.lines.late.Load() > 0 {
		h.lines.late.Add(1)
	} else {
		waits.Store(true)
	}
	var c callersCode
	c.run(func(f func()) { go f() }, func() {
		if h.to.Enabled(ctx, r.Level) {
			_ = h.to.Handle(ctx, r)
		}
	}, func(*raised) {
		h.lines.all.Add(-1)
		if !waits.CompareAndSwap(true, false) {
			h.lines.late.Add(-1)
		}
		close(written)
	})
	if !waits.Load() {
		return nil
	}
	late := time.NewTimer(lineWithin)
	defer late.Stop()
	select {
	case <-written:
	case <-late.C:
		h.lines.late.Add(1)
		if !waits.CompareAndSwap(true, false) {
			h.lines.late.Add(-1) // it has just been written
		}
	}
	return nil
}
