package call

import (
	"context"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/nested"
)

// Wait runs f on a goroutine that spawn starts, and waits until f returns or ctx ends: go-redis does not interrupt a
// read when ctx ends. answered reports whether v and err come from f. If not, err is ctx's error, and f keeps running;
// f itself must handle a late result. If ctx cannot end, f runs on the caller's goroutine, because Do and Time have
// bounds of their own.
func Wait[T any](ctx context.Context, spawn func(func()), f func(context.Context) (T, error)) (v T, answered bool, err error) {
	if ctx.Done() == nil {
		v, err = f(ctx)
		return v, true, err
	}
	if err := ctx.Err(); err != nil {
		return v, false, NotSent(err)
	}
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	spawn(func() {
		r := result{err: errNoReply}
		defer func() { done <- r }() // runs even if a hook ends this goroutine
		r.v, r.err = f(nested.Calm{Context: ctx})
	})
	select {
	case r := <-done:
		return r.v, true, r.err
	case <-ctx.Done():
		return v, false, nested.Calm{Context: ctx}.Err() // never nil: the zero v is no answer
	}
}

// within runs f on a new goroutine and waits for it no longer than limit. answered is also
// false if a hook ends that goroutine.
func within[T any](limit time.Duration, f func() T) (v T, answered bool) {
	done := make(chan T, 1)
	go func() {
		defer close(done)
		done <- f()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case v, answered = <-done:
		return v, answered
	case <-timer.C:
		return v, false
	}
}

// shared is a question to a server that is asked once at a time. Callers that ask while it is
// under way share the answer.
type shared[T any] struct {
	mu    sync.Mutex
	asked *answer[T] // under way; nil: none; guarded by mu
}

// An answer is the answer, now or later, to a shared question.
type answer[T any] struct {
	done chan struct{} // closed once v and err are set
	v    T
	err  error
}

// Answered returns a channel that is closed when the question has its answer.
func (a *answer[T]) Answered() <-chan struct{} { return a.done }

// Err returns why there is no answer. Call it only after Answered is closed.
func (a *answer[T]) Err() error { return a.err }

// ask runs f on a goroutine that spawn starts, unless a run is under way, and does not wait.
// The answer comes within hardBound.
func (s *shared[T]) ask(spawn func(func()), f func(context.Context) (T, error)) *answer[T] {
	s.mu.Lock()
	a, first := s.asked, s.asked == nil
	if first {
		a = &answer[T]{done: make(chan struct{})}
		s.asked = a
	}
	s.mu.Unlock()
	if first {
		spawn(func() { s.run(a, f) })
	}
	return a
}

func (s *shared[T]) run(a *answer[T], f func(context.Context) (T, error)) {
	type result struct {
		v   T
		err error
	}
	r, answered := within(hardBound, func() (r result) {
		defer func() {
			if p := recover(); p != nil {
				r.err = panicked(p)
			}
		}()
		r.v, r.err = f(context.Background())
		return r
	})
	if a.v, a.err = r.v, r.err; !answered {
		a.err = errNoAnswer
	}
	s.mu.Lock()
	s.asked = nil
	s.mu.Unlock()
	close(a.done)
}

// settled waits for the answer to the question that is under way, if any.
func (s *shared[T]) settled() {
	s.mu.Lock()
	a := s.asked
	s.mu.Unlock()
	if a != nil {
		<-a.done
	}
}

// wait waits for the answer, or until ctx ends.
func (a *answer[T]) wait(ctx context.Context) (v T, err error) {
	select {
	case <-a.done:
		return a.v, a.err
	case <-ctx.Done():
		return v, ctx.Err()
	}
}

// sharedCtx is a ctx that many calls share. A ctx per call would cost a timer and six
// allocations each. It ends by itself, Bound after it was made.
type sharedCtx struct {
	context.Context
	made time.Time
}

// Brief returns a ctx that ends within Bound, but not before three quarters of it. It is for
// several calls that must all end within one bound.
func (c *link) Brief() context.Context { return c.bounded(context.Background(), time.Now()) }

// bounded returns a ctx that ends within Bound, but not before three quarters of it unless ctx's own deadline comes
// earlier. It has ctx's values, which hooks may use. A cancellation of ctx does not end it: see serverQueue.await.
func (c *link) bounded(ctx context.Context, now time.Time) context.Context {
	calm := nested.Calm{Context: ctx}
	if deadline, ok := calm.Deadline(); ok && deadline.Sub(now) <= Bound {
		return calm
	}
	latest := c.sharedCtx.Load()
	if latest == nil || now.Sub(latest.made) >= Bound/4 {
		// Two callers may both make one; either will do.
		end, cancel := context.WithTimeout(context.Background(), Bound)
		_ = cancel // many calls share it, and it ends by itself
		latest = &sharedCtx{end, now}
		c.sharedCtx.Store(latest)
	}
	if ctx == context.Background() {
		return latest.Context
	}
	return &valuesCtx{latest.Context, calm}
}

// valuesCtx ends with its Context and also has the values of another one.
type valuesCtx struct {
	context.Context
	values nested.Calm
}

// Value asks the Context first, because the package context looks up its own parts that way.
func (c *valuesCtx) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

// NeedCtx panics if ctx is nil. Each public method that takes a ctx calls it first, so that the
// mistake is told at the call, and not somewhere below it.
func NeedCtx(ctx context.Context) {
	if ctx == nil {
		panic("leasehold: nil ctx: pass context.Background() or the ctx of the caller")
	}
}
