package multi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/multi"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/singleflight"
)

// If a method of a ctx panics or ends its goroutine, whichever and whenever, so may the call. No process ends, nothing
// stays held, and the next caller is served at once.
func TestCtxWhoseMethodsPanic(t *testing.T) {
	for how, breaks := range map[string]func(method string){"panics": func(method string) { panic(method) }, "exits": func(string) { runtime.Goexit() }} {
		t.Run(how, func(t *testing.T) { bubble(t, func(f *fixture) { ctxThatBreaks(f, breaks) }) })
	}
}

func ctxThatBreaks(f *fixture, breaks func(method string)) {
	plain := f.open()
	turns := func(c *mutex.Config) { c.LocalFor, c.Name = 20*time.Millisecond, f.Family+"l" }
	local, other := f.open(turns), f.open(turns)
	keeps := f.open(func(c *mutex.Config) { c.KeepFor, c.Name = 100*time.Millisecond, f.Family+"k" })
	items := func(c *mutex.Config) { c.Name = f.Family + "i" }
	several, keepsSome, holder := f.open(items), f.open(items, func(c *mutex.Config) { c.KeepFor = time.Second }), f.open(items)
	lock := func(p *process, key string) *mutex.Lock {
		return harness.Start(f, func() (*mutex.Lock, error) { return p.locks.Lock(f.Context(), key) }).Got()
	}
	holds := func(p *process, key string) { // for a while
		held := lock(p, key)
		time.AfterFunc(50*time.Millisecond, func() { redistest.WantErr(f, held.Unlock()) })
	}
	waits := func(p *process, busy string) func(context.Context) error {
		return func(ctx context.Context) error {
			holds(holder, busy)
			if p == keepsSome { // x goes back first
				redistest.NoError(f, lock(p, "x").Unlock())
			}
			return multi.Do(ctx, func(context.Context, *multi.Lease) error { return nil }, p.lockItems("x", "y")...)
		}
	}
	g := redistest.Must(singleflight.New(f.RDB, singleflight.Config[string]{Name: f.Family, TTL: time.Second, LeaseTTL: 3 * time.Second, NearFor: time.Second}))(f)
	defer func() { redistest.WantErr(f, g.Close(f.Context())) }()
	bounded := singleflight.Config[string]{Name: f.Family + "b", TTL: time.Minute, MaxLoads: 1}
	one, two := redistest.Must(singleflight.New(f.RDB, bounded))(f), redistest.Must(singleflight.New(f.RDB, bounded))(f)
	defer func() { redistest.WantErr(f, errors.Join(one.Close(f.Context()), two.Close(f.Context()))) }()
	slow := func(context.Context) (string, error) { time.Sleep(50 * time.Millisecond); return "v", nil }
	loads := 0
	locked := func(p *process) func(context.Context) error {
		return func(ctx context.Context) error {
			l, err := p.locks.Lock(ctx, "x")
			if err != nil {
				return err
			}
			defer l.Unlock()
			return l.Context().Err()
		}
	}
	calls := map[string]func(context.Context) error{
		"Lock": locked(plain), "Lock with LocalFor": locked(local), "Lock with KeepFor": locked(keeps),
		"Lock with LocalFor that waits": func(ctx context.Context) error {
			holds(other, "x")
			return locked(local)(ctx)
		},
		"AcquireN": func(ctx context.Context) error {
			return plain.caps.DoN(ctx, "x", 2, func(ctx context.Context) error { return ctx.Err() })
		},
		"multi.Do": func(ctx context.Context) error {
			return multi.Do(ctx, func(ctx context.Context, _ *multi.Lease) error { return ctx.Err() }, plain.lockItems("x", "y")...)
		},
		"multi.Do that waits for the first": waits(several, "x"), "multi.Do that waits for the second": waits(keepsSome, "y"),
		"singleflight.Do": func(ctx context.Context) error {
			_, err := g.Do(ctx, "x", func(context.Context) (string, error) { return "v", nil })
			return err
		},
		"singleflight.Do that waits for a permit, and is joined": func(ctx context.Context) error {
			loads++
			first := harness.Start(f, func() (string, error) { return two.Do(f.Context(), fmt.Sprint("first", loads), slow) })
			time.Sleep(time.Millisecond)
			joins := harness.Start(f, func() (string, error) {
				time.Sleep(time.Millisecond)
				return one.Do(f.Context(), fmt.Sprint(loads), slow)
			})
			defer func() { first.Got(); joins.Got() }()
			_, err := one.Do(ctx, fmt.Sprint(loads), slow)
			return err
		},
		"Extend": func(ctx context.Context) error {
			l, err := plain.locks.Lock(f.Context(), "e")
			if err != nil {
				return err
			}
			defer l.Unlock()
			return l.Extend(ctx, 10*time.Second)
		},
		"Invalidate": func(ctx context.Context) error { return g.Invalidate(ctx, "x") },
	}
	for name, do := range calls {
		for _, method := range []string{"Deadline", "Done", "Err", "Value"} {
			for first := 1; ; first++ {
				var n atomic.Int32
				ctx, cancel := context.WithTimeout(f.Context(), 10*time.Second)
				<-harness.Begin(f, func() error {
					defer func() {
						raised := recover()
						redistest.Check(f, raised == nil || raised == method, "%s: its caller gets %v", name, raised)
					}()
					return do(harness.BrokenCtx{Context: ctx, Before: func(m string) {
						if m == method && int(n.Add(1)) >= first {
							breaks(m)
						}
					}})
				}).Done
				cancel()
				if int(n.Load()) < first {
					break // it is not called so often
				}
				bounded, cancel := context.WithTimeout(f.Context(), time.Second) // less than a TTL
				redistest.Expect(f, do(bounded), nil, "%s after %s broke at call %d: %v", name, method, first)
				cancel()
			}
		}
	}
}

// If a ctx ends while Redis is silent, and its Err then panics, exits or gives no error, no process ends.
func TestCtxThatEndsBadly(t *testing.T) {
	for how, err := range map[string]func() error{
		"panics": func() error { panic("Err") },
		"exits":  func() error { runtime.Goexit(); return nil },
		"nil":    func() error { return nil },
	} {
		for _, bound := range []time.Duration{time.Second, time.Minute} {
			t.Run(fmt.Sprint(how, bound), func(t *testing.T) {
				bubble(t, func(f *fixture) {
					p := f.open()
					g := redistest.Must(singleflight.New(p.rdb, singleflight.Config[string]{Name: f.Family, TTL: time.Second}))(f)
					defer func() { redistest.WantErr(f, g.Close(f.Context())) }()
					guard := redistest.Must(mutex.NewGuard(p.rdb, mutex.GuardConfig{Name: f.Family}))(f)
					load := func(context.Context) (string, error) { return "v", nil }
					redistest.CheckNow(f, redistest.ErrorOf(g.Do(f.Context(), "x", load)) == nil, "the server is not known yet")
					for name, call := range map[string]func(context.Context) error{
						"Lock": func(ctx context.Context) error { return redistest.ErrorOf(p.locks.Lock(ctx, "x")) },
						"multi.Acquire": func(ctx context.Context) error {
							return redistest.ErrorOf(multi.Acquire(ctx, p.lockItems("x", "y")...))
						},
						"Inspect":   func(ctx context.Context) error { return redistest.ErrorOf(p.caps.Inspect(ctx, "x")) },
						"SetLimit":  func(ctx context.Context) error { return p.caps.SetLimit(ctx, "x", 3) },
						"Do":        func(ctx context.Context) error { return redistest.ErrorOf(g.Do(ctx, "x", load)) },
						"Peek":      func(ctx context.Context) error { _, _, err := g.Peek(ctx, "x"); return err },
						"Put":       func(ctx context.Context) error { return g.Put(ctx, "x", "v") },
						"Guard.Get": func(ctx context.Context) error { _, _, err := guard.Get(ctx, "x"); return err },
					} {
						p.wire.Stall()
						parent, cancel := context.WithTimeout(f.Context(), bound)
						ctx := harness.EndedBadly{Context: parent, Ended: make(chan struct{}), How: err}
						ends := harness.Begin(f, func() error {
							defer func() { _ = recover() }()
							return call(ctx)
						})
						time.Sleep(50 * time.Millisecond)
						close(ctx.Ended)
						time.Sleep(time.Millisecond)
						p.wire.Heal()
						ends.Within(redistest.Soon, name)
						cancel()
					}
				})
			})
		}
	}
}

// If the Value of a ctx waits for another call of its lease, it does not wait for ever.
func TestCtxThatAsksItsLease(t *testing.T) {
	each(t, func(f *fixture) {
		for name, p := range map[string]*process{
			"LocalFor": f.open(func(c *mutex.Config) { c.LocalFor = 20 * time.Millisecond }),
			"KeepFor":  f.open(func(c *mutex.Config) { c.KeepFor, c.Name = 100*time.Millisecond, f.Family+"k" }),
		} {
			var held atomic.Pointer[mutex.Lock]
			var hung atomic.Bool
			asks := func(string) {
				l := held.Load()
				if l == nil || hung.Load() {
					return
				}
				select {
				case <-harness.Begin(f, func() error { l.Deadline(); return nil }).Done:
				case <-time.After(5 * time.Second):
					hung.Store(true)
				}
			}
			for range 3 {
				l := redistest.Must(p.locks.Lock(harness.BrokenCtx{Context: f.Context(), Before: asks}, "x"))(f)
				held.Store(l)
				ctx := l.Context()
				redistest.WantErr(f, l.Unlock())
				redistest.Check(f, ctx.Err() != nil, "%s: the Context outlives its lease", name)
			}
			redistest.Check(f, !hung.Load(), "%s: a method of the caller's ctx waits for a lock of its lease", name)
		}
	})
}

// If the Value of a ctx hangs when its leases end, it holds up no other lease of the handle, however many they are.
func TestCtxThatHangsHoldsUpNoOtherLease(t *testing.T) {
	bubble(t, func(f *fixture) {
		const most = 5 * time.Second // of which TTL is 3
		p := f.open(func(c *mutex.Config) { c.MaxHold = most })
		gate := make(chan struct{})
		var hangs atomic.Bool
		theirs := harness.BrokenCtx{Context: f.Context(), Before: func(string) {
			if hangs.Load() {
				<-gate
			}
		}}
		first := make([]*mutex.Lock, 100)
		for i := range first {
			first[i] = redistest.Must(p.locks.Lock(theirs, strconv.Itoa(i)))(f)
			first[i].Context()
		}
		hangs.Store(true)
		time.Sleep(most * 4 / 5)
		second := redistest.Must(p.locks.Lock(f.Context(), "y"))(f)
		time.Sleep(most * 9 / 10)
		redistest.Expect(f, second.Unlock(), nil, "the other lease: %v")
		for _, l := range first {
			redistest.Check(f, l.Context().Err() != nil, "a Context outlives MaxHold")
		}
		close(gate)
		for _, l := range first {
			redistest.WantErr(f, l.Unlock(), leasehold.ErrMaxHold)
		}
	})
}
