package harness

import (
	"context"
	"time"
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
