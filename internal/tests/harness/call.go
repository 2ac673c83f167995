package harness

import (
	"errors"
	"testing"
	"time"

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
	select {
	case <-c.Done:
	case <-time.After(bound):
		c.tb.Fatalf("%s: nothing within %v", what, bound)
	}
	return c
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
