package harness

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Call is a call in another goroutine.
type Call[T any] struct {
	Done  chan struct{}
	Value T
	Err   error
	At    time.Time // when it returned

	tb testing.TB
}

// ErrExited is the error of a call that ended its goroutine.
var ErrExited = errors.New("the call ended its goroutine")

// Start starts a call.
func Start[T any](tb testing.TB, call func() (T, error)) *Call[T] {
	c := &Call[T]{Done: make(chan struct{}), tb: tb}
	go func() {
		defer close(c.Done)
		c.Err = ErrExited
		c.Value, c.Err = call()
		c.At = time.Now()
	}()
	return c
}

// Begin starts a call that returns an error alone.
func Begin(tb testing.TB, call func() error) *Call[struct{}] {
	return Start(tb, func() (struct{}, error) { return struct{}{}, call() })
}

// StartQueued starts a call that has to queue for key, and returns when it does, or has ended already.
func StartQueued[T any](f *Fixture, key string, call func() (T, error)) *Call[T] {
	f.Helper()
	before := f.Queued(key)
	c := Start(f.T, call)
	redistest.Eventually(f, "a waiter in the queue", func() bool {
		return c.Ended() || f.Queued(key) > before // ended, where the machine stood still for a TTL
	})
	return c
}

// Ended reports whether the call has returned.
func (c *Call[T]) Ended() bool {
	select {
	case <-c.Done:
		return true
	default:
		return false
	}
}

// Within waits until the call has returned, and fails the test where that takes longer.
func (c *Call[T]) Within(bound time.Duration, what string) *Call[T] {
	c.tb.Helper()
	for began := time.Now(); ; {
		select {
		case <-c.Done:
			return c
		case <-time.After(bound):
			redistest.CheckNow(c.tb, !redistest.Over(began, bound), "%s: nothing within %v", what, bound)
		}
	}
}

// Got is what the call returns, soon.
func (c *Call[T]) Got() T {
	c.tb.Helper()
	if c.Within(redistest.Soon, "a grant"); c.Err != nil {
		c.tb.Fatalf("the waiter ended with %v", c.Err)
	}
	return c.Value
}

// Failed is the error that the call returns, soon.
func (c *Call[T]) Failed() error {
	c.tb.Helper()
	if c.Within(redistest.Soon, "an error"); c.Err == nil {
		c.tb.Fatal("the waiter was granted")
	}
	return c.Err
}

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

// Ended is a child of ctx that has ended.
func Ended(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// Busy is the BusyError in err.
func Busy(tb testing.TB, err error) *leasehold.BusyError {
	tb.Helper()
	busy, ok := errors.AsType[*leasehold.BusyError](err)
	redistest.CheckNow(tb, ok, "%v; want a BusyError", err)
	return busy
}
