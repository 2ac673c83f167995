package mutex

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// hook is a hook of the user's that may treat commands in its own way.
type hook struct {
	on       atomic.Bool
	process  func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error
	pipeline func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error
}

func (h *hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.on.Load() {
			return h.process(ctx, cmd, next)
		}
		return next(ctx, cmd)
	}
}

func (h *hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if h.on.Load() {
			return h.pipeline(ctx, cmds, next)
		}
		return next(ctx, cmds)
	}
}

var errOpen = errors.New("the circuit is open")

// A hook keeps commands from being sent: no guard may take that for the verdict of
// the server, and each caller is told. The first calls hang in the hook, so that the
// others go out in pipelines.
func TestGuardIsFencedByAReplyAlone(t *testing.T) {
	oldest := redistest.NeedServers(t)[0]
	for name, end := range map[string]func() error{
		"returns an error": func() error { return errOpen },
		"returns nil":      func() error { return nil },
		"panics":           func() error { panic("a hook") },
		"calls Goexit":     func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Shared(t, oldest)
			redistest.NoLeaks(t)
			s := newSite(t, srv.Client())
			rdb := srv.Client()
			var pipelined atomic.Int64
			gate := make(chan struct{})
			h := &hook{
				process: func(context.Context, redis.Cmder, redis.ProcessHook) error {
					<-gate
					return end()
				},
				pipeline: func(_ context.Context, cmds []redis.Cmder, _ redis.ProcessPipelineHook) error {
					pipelined.Add(int64(len(cmds)))
					return end()
				},
			}
			rdb.AddHook(h)
			g := redistest.Must(mutex.NewGuard(rdb, mutex.GuardConfig{Name: s.Family}))(t)
			const newest = 7
			redistest.WantErr(t, g.Set(t.Context(), s.Key, newest, "v", time.Minute))
			h.on.Store(true)
			const callers = 200
			results := make(chan error, callers)
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					err := errors.New("the hook ended the caller's goroutine")
					defer func() { results <- err }()
					ctx := context.Background()
					if i%2 == 0 {
						ctx = t.Context() // it can end, so that the call has a goroutine of its own
					}
					err = g.Set(ctx, s.Key, newest, "v", time.Minute)
				})
			}
			redistest.Eventually(t, "calls in pipelines", func() bool { return pipelined.Load() > callers/10 })
			close(gate)
			for range callers {
				err := redistest.Get(t, "the outcome of a guarded write", results)
				redistest.Check(t, err != nil && !errors.Is(err, leasehold.ErrFenced),
					"a write that was not sent: %v; want an error other than ErrFenced", err)
			}
			all.Wait()
			h.on.Store(false)
			redistest.Expect(t, g.Set(t.Context(), s.Key, newest, "w", time.Minute), nil, "after the fault: %v")
		})
	}
}

// A hook that panics or ends its goroutine ends no process, and its caller is told at once: also
// where no script is sent.
func TestHookThatEndsReads(t *testing.T) {
	for name, end := range map[string]func(){"panics": func() { panic("a hook") }, "calls Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			h := &hook{
				process:  func(context.Context, redis.Cmder, redis.ProcessHook) error { end(); return nil },
				pipeline: func(context.Context, []redis.Cmder, redis.ProcessPipelineHook) error { end(); return nil },
			}
			var rdbs []redis.UniversalClient
			for range 3 {
				rdb := redis.NewClient(&redis.Options{Addr: redistest.Mini(t).Addr()})
				defer rdb.Close()
				rdb.AddHook(h)
				rdbs = append(rdbs, rdb)
			}
			one := redistest.Must(mutex.New(rdbs[0], mutex.Config{Name: "one"}))(t)
			three := redistest.Must(mutex.NewQuorum(rdbs, mutex.Config{Name: "three"}))(t)
			for _, m := range []*mutex.Mutex{one, three} {
				l := redistest.Must(m.Lock(t.Context(), "k"))(t)
				h.on.Store(true)
				began := time.Now()
				redistest.WantErr(t, redistest.ErrorOf(m.Inspect(t.Context(), "k")), leasehold.ErrUnavailable)
				redistest.Check(t, time.Since(began) < redistest.Soon/2, "Inspect took %v", time.Since(began))
				redistest.WantErr(t, m.Revoke(t.Context(), "k", l.ID(), "test"), leasehold.ErrUnavailable)
				_, err := m.DoOnce(t.Context(), "l", "slot", time.Minute, func(context.Context, uint64) error { return nil })
				redistest.WantErr(t, err, leasehold.ErrUnavailable)
				h.on.Store(false)
				redistest.NoError(t, l.Unlock())
				harness.Close(t, m)
			}
		})
	}
}

// A hook wraps errors, as go-redis's documentation shows: a fresh server, which
// knows no script, is taught all the same.
func TestHookThatWrapsErrors(t *testing.T) {
	srv := redistest.StartServer(t, redistest.NeedServers(t)[0])
	s := newSite(t, srv.Client())
	wrap := func(err error) error {
		if err != nil {
			err = fmt.Errorf("traced: %w", err)
		}
		return err
	}
	traced := &hook{
		process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := wrap(next(ctx, cmd))
			cmd.SetErr(wrap(cmd.Err()))
			return err
		},
		pipeline: func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			err := wrap(next(ctx, cmds))
			for _, cmd := range cmds {
				cmd.SetErr(wrap(cmd.Err()))
			}
			return err
		},
	}
	traced.on.Store(true)
	rdb := srv.Client()
	rdb.AddHook(traced)
	h := s.handle(rdb, mutex.Config{})
	l, err := h.Lock(t.Context(), s.Key)
	redistest.CheckNow(t, err == nil, "lock on a fresh server: %v", err)
	waiter := locking(h, s.Key)
	s.WaitQueued(1)
	redistest.NoError(t, l.Unlock())
	next := within(t, redistest.Soon, waiter)
	redistest.WantErr(t, s.RDB.ScriptFlush(t.Context()).Err())
	redistest.Expect(t, next.Unlock(), nil, "unlock on a server that forgot its scripts: %v")
	// A refusal is recognised, too: nobody tries for 3 s.
	redistest.WantErr(t, s.RDB.Set(t.Context(), s.Part("holders"), "of another type", time.Minute).Err())
	sent := time.Now()
	_, err = h.Lock(t.Context(), s.Key)
	harness.IsErr(t, "lock of a key of another type", err, leasehold.ErrUnavailable)
	redistest.AtMost(t, time.Since(sent), harness.Slack, "a refusal was told after %v")
	s.RDB.Del(t.Context(), s.Part("holders"))
}

// A hook that panics or ends its goroutine while leases are renewed and waiters ask
// costs that round trip alone: nobody waits for it for ever.
func TestHookThatEndsItsGoroutineCostsOneRoundTrip(t *testing.T) {
	oldest := redistest.NeedServers(t)[0]
	for name, end := range map[string]func(){"panics": func() { panic("a hook") }, "calls Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Shared(t, oldest)
			redistest.NoLeaks(t)
			s := newSite(t, srv.Client())
			rdb := srv.Client()
			var strikes atomic.Int64
			strike := func() {
				if strikes.Add(1)%2 == 1 {
					end()
				}
			}
			h := &hook{
				process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					strike()
					return next(ctx, cmd)
				},
				pipeline: func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
					strike()
					return next(ctx, cmds)
				},
			}
			rdb.AddHook(h)
			m := s.handle(rdb, mutex.Config{TTL: time.Second})
			l := redistest.Must(m.Lock(t.Context(), s.Key))(t)
			waiter := locking(m, s.Key)
			s.WaitQueued(1)
			h.on.Store(true)
			redistest.Eventually(t, "rounds of renewals", func() bool { return strikes.Load() >= 12 })
			h.on.Store(false) // Unlock makes its call on this goroutine
			redistest.Expect(t, context.Cause(l.Context()), nil, "the lock was lost: %v")
			redistest.NoError(t, l.Unlock())
			redistest.NoError(t, within(t, redistest.Soon, waiter).Unlock())
			harness.CloseWithin(t, redistest.Soon, m)
		})
	}
}

// A hook that ends the goroutine of Lock, Unlock or DoOnce, before or after the call, leaves nothing
// behind: others get the lock long before its TTL is over.
func TestHookThatEndsItsCallerLeavesNoLock(t *testing.T) {
	for name, sends := range map[string]bool{"before the call": false, "after the call": true} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Shared(t, redistest.Newest(t))
			redistest.NoLeaks(t)
			s := newSite(t, srv.Client())
			rdb := srv.Client()
			h := &hook{}
			h.process = func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if h.on.Store(false); sends {
					_ = next(ctx, cmd)
				}
				runtime.Goexit()
				return nil
			}
			rdb.AddHook(h)
			m, other := s.handle(rdb, mutex.Config{}), s.handle(srv.Client(), mutex.Config{})
			nothing := func(context.Context, uint64) error { return nil }
			redistest.NoError(t, m.Do(t.Context(), s.Key, nothing))
			ctx := context.Background() // it cannot end, so the calls are made on the caller's goroutine
			for call, f := range map[string]func(){
				"Lock":    func() { h.on.Store(true); _, _ = m.Lock(ctx, s.Key) },
				"TryLock": func() { h.on.Store(true); _, _ = m.TryLock(ctx, s.Key) },
				"Unlock":  func() { l := redistest.Must(m.Lock(ctx, s.Key))(t); h.on.Store(true); _ = l.Unlock() },
				"DoOnce": func() {
					_, _ = m.DoOnce(ctx, s.Key, "slot", time.Minute, func(context.Context, uint64) error { h.on.Store(true); return nil })
				},
			} {
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					f()
					t.Errorf("the goroutine of %s goes on", call)
				}()
				redistest.Get(t, "the end of "+call, ended)
				soon, cancel := context.WithTimeout(t.Context(), redistest.Soon)
				redistest.NoError(t, other.Do(soon, s.Key, nothing))
				cancel()
			}
			harness.CloseWithin(t, redistest.Soon, m)
		})
	}
}
