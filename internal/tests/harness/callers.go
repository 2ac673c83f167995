package harness

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// BrokenCtx breaks its contract: Before is called with the name of each method that is called.
type BrokenCtx struct {
	context.Context
	Before func(method string)
}

func (c BrokenCtx) Deadline() (time.Time, bool) { c.Before("Deadline"); return c.Context.Deadline() }
func (c BrokenCtx) Done() <-chan struct{}       { c.Before("Done"); return c.Context.Done() }
func (c BrokenCtx) Err() error                  { c.Before("Err"); return c.Context.Err() }
func (c BrokenCtx) Value(key any) any           { c.Before("Value"); return c.Context.Value(key) }

// EndedBadly is a ctx with a channel of its own, so that package context asks for its error on a goroutine of its own.
// Once Ended is closed, How says what that error is.
type EndedBadly struct {
	context.Context
	Ended chan struct{}
	How   func() error
}

func (c EndedBadly) Done() <-chan struct{} { return c.Ended }

func (c EndedBadly) Err() error {
	select {
	case <-c.Ended:
		return c.How()
	default:
		return nil
	}
}

// Told is an Observer that keeps what it is told.
type Told struct {
	mu  sync.Mutex
	all []leasehold.Event
}

func (o *Told) Observe(e leasehold.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, e)
}

// Events are those of these kinds, all where there are none.
func (o *Told) Events(kinds ...leasehold.EventKind) []leasehold.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(o.all), func(e leasehold.Event) bool {
		return len(kinds) > 0 && !slices.Contains(kinds, e.Kind)
	})
}

// Count is how many events of a kind it was told, with this outcome, or with any where it is "".
func (o *Told) Count(kind leasehold.EventKind, outcome string) (n int) {
	for _, e := range o.Events(kind) {
		if outcome == "" || e.Outcome == outcome {
			n++
		}
	}
	return n
}

// ObserverFunc is a function that is an Observer.
type ObserverFunc func(leasehold.Event)

func (fn ObserverFunc) Observe(e leasehold.Event) { fn(e) }
