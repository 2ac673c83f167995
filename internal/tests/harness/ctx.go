package harness

import "context"

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
