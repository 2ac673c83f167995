// Package nested tells from a ctx what its caller holds already, so that nobody waits for
// permits that are given back only after the wait.
package nested

import (
	"context"
	"time"
)

type holdKey struct{}

// Calm keeps the methods of a caller's ctx from panicking. Package context and go-redis call them on
// goroutines of their own, if the ctx has a channel of its own: a panic there would end the
// process. So each ctx that is derived from a caller's, and each that go-redis gets, is one of these.
type Calm struct{ context.Context }

func (c Calm) Deadline() (_ time.Time, ok bool) {
	defer calm()
	return c.Context.Deadline()
}

func (c Calm) Value(key any) any {
	defer calm()
	return c.Context.Value(key)
}

func (c Calm) Done() <-chan struct{} {
	defer calm()
	return c.Context.Done()
}

// Err is never nil once Done is closed: package context panics then.
func (c Calm) Err() (err error) {
	defer func() {
		if recover() != nil {
			err = context.Canceled
		}
	}()
	if err = c.Context.Err(); err == nil {
		select {
		case <-c.Context.Done():
			err = context.Canceled
		default:
		}
	}
	return err
}

func calm() { _ = recover() }

// Hold is the parent of the Context of something held. All contexts that descend from it tell
// what is held.
type Hold struct {
	Calm // the ctx of the acquiring call
	By   interface {
		// PermitsOf returns how many permits of the key of a handle it holds now. "": of any key.
		PermitsOf(handle any, key string) int
	}
}

// Value makes the Hold known, besides the values of the acquiring call.
func (h *Hold) Value(key any) any {
	if key == (holdKey{}) {
		return h
	}
	return h.Calm.Value(key)
}

// Above returns what the Context that ctx descends from belongs to, the nearest one; nil: nothing.
func Above(ctx context.Context) any {
	if h, _ := ctx.Value(holdKey{}).(*Hold); h != nil {
		return h.By
	}
	return nil
}

// Permits returns how many permits of the key of a handle ctx descends from; "": of all keys. As long as the caller waits under ctx, they are not given back.
func Permits(ctx context.Context, handle any, key string) (permits int) {
	for {
		h, _ := ctx.Value(holdKey{}).(*Hold)
		if h == nil {
			return permits
		}
		permits += h.By.PermitsOf(handle, key)
		ctx = h.Context
	}
}
