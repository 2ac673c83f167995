package semaphore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// The network stops at each byte of the exchange in turn, and there ctx ends, by
// cancellation or by its deadline, with either setting of the client's that has
// to do with it. The call returns at once, compared with a goroutine that only
// waits for the same ctx; the rest of the exchange takes place after that, and
// nothing is left. The newest server alone: what is tested is the client.
func TestCtxEndsAtEveryByte(t *testing.T) {
	srv := redistest.Shared(t, redistest.Newest(t))
	for _, deadline := range []bool{false, true} {
		for _, enabled := range []bool{false, true} {
			t.Run(fmt.Sprintf("deadline %v, ContextTimeoutEnabled %v", deadline, enabled), func(t *testing.T) {
				x := &ends{site: newSite(t, srv.Client()), srv: srv, deadline: deadline, enabled: enabled}
				x.run()
			})
		}
	}
}

type ends struct {
	*site
	srv               *redistest.Server
	deadline, enabled bool
}

func (x *ends) run() {
	const workers = 8
	step := 1
	if testing.Short() {
		step = 7
	}
	var all sync.WaitGroup
	longest, controls := make([]time.Duration, workers), make([]time.Duration, workers)
	stopped := make([]int, workers)
	for w := range workers {
		all.Go(func() {
			v := new(valve)
			h := x.handle(x.srv.Client(v.install, func(o *redis.Options) {
				o.ContextTimeoutEnabled, o.PoolSize = x.enabled, 2
			}), semaphore.Config{Limit: 1})
			defer harness.CloseWithin(x.TB, closeBound, h)
			for dir, length := range x.lengths(v, h, w) {
				for n := w * step; n < length; n += workers * step {
					// A busy machine may need longer to get to the byte.
					for patience := 30 * time.Millisecond; patience < 2*time.Second; patience *= 2 {
						took, control, hit := x.one(v, h, dir, n, patience)
						longest[w], controls[w] = max(longest[w], took), max(controls[w], control)
						if hit {
							stopped[w]++
							break
						}
					}
				}
			}
		})
	}
	all.Wait()
	total, slowest, control := 0, slices.Max(longest), slices.Max(controls)
	for _, n := range stopped {
		total += n
	}
	x.TB.Logf("ended at %d bytes of the exchange; returned after %v at most, goroutines without a call after %v", total, slowest, control)
	if slowest > 2*control+500*time.Millisecond {
		x.TB.Errorf("an acquire returned %v after its ctx ended, a goroutine without a call %v", slowest, control)
	}
	if !testing.Short() && total < 300 {
		x.TB.Errorf("the exchange has %d bytes only", total)
	}
}

// lengths is how long an enter's request and reply are.
func (x *ends) lengths(v *valve, h *semaphore.Semaphore, w int) [2]int {
	for range 2 { // the first one teaches the script and the clock
		key := fmt.Sprint("warm", w)
		v.arm(key, reads, 1<<30)
		l, err := h.TryAcquire(context.Background(), key)
		if err != nil {
			x.TB.Error(err)
			return [2]int{}
		}
		carried := v.release()
		if err := l.Release(); err != nil {
			x.TB.Error(err)
		}
		if carried[writes] < 600 { // by name, not in full
			return carried
		}
	}
	return [2]int{}
}

// one has ctx end at byte n, where it has a deadline after patience, and returns how long
// the call and a goroutine without a call took then, and whether it had got to the byte.
func (x *ends) one(v *valve, h *semaphore.Semaphore, dir, n int, patience time.Duration) (took, control time.Duration, hit bool) {
	s := &site{x.site.On(x.TB, fmt.Sprintf("%d.%d.%v", dir, n, patience))}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reached := v.arm(s.Key, dir, n)
	var end time.Time
	if x.deadline {
		end = time.Now().Add(patience)
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	call := harness.Go(func() (*semaphore.Lease, error) { return h.Acquire(ctx, s.Key) })
	waits := harness.Go(func() (struct{}, error) { <-ctx.Done(); return struct{}{}, nil })
	select {
	case <-reached:
		hit = true
		if !x.deadline {
			end = time.Now()
			cancel()
		}
	case r := <-call: // on a machine that took longer to get there
		if !x.deadline {
			x.TB.Errorf("byte %d of direction %d never came: %v", n, dir, r.Err)
		}
		call = harness.Go(func() (*semaphore.Lease, error) { return r.Value, r.Err })
	}
	r := harness.Got(x.TB, 10*time.Second, "an acquisition", call)
	if hit { // else it is not measured
		took, control = r.At.Sub(end), redistest.Get(x.TB, "the end of ctx", waits).At.Sub(end)
	}
	if r.Err == nil {
		// The deadline came after all; a machine that dawdles.
		_ = r.Value.Release()
	} else if !errors.Is(r.Err, context.Canceled) && !errors.Is(r.Err, context.DeadlineExceeded) {
		x.TB.Errorf("ctx ended at byte %d of direction %d: %v", n, dir, r.Err)
	} else if hit { // else ctx may have ended before anything was sent
		harness.IsErr(x.TB, "acquire", r.Err, leasehold.ErrUnavailable)
	}
	v.release()
	harness.Until(x.TB, 5*time.Second, func() error {
		if held, waiting := s.InUse(), s.Queued(); held != 0 || waiting != 0 {
			return fmt.Errorf("ctx ended at byte %d of direction %d: %d are held, %d wait", n, dir, held, waiting)
		}
		return nil
	})
	return took, control, hit
}

// The connection breaks at each byte, and ctx ends at that moment: the calls
// that are made anew meet the leave.
func TestCtxEndsWhereTheConnectionBreaks(t *testing.T) {
	srv := redistest.Shared(t, redistest.Newest(t))
	s := newSite(t, srv.Client())
	const workers = 4
	step := 1
	if testing.Short() {
		step = 7
	}
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			p := redistest.NewProxy(t, srv.Addr())
			h := s.closing(p.Client(func(o *redis.Options) { o.PoolSize = 1 }), semaphore.Config{Limit: 1})
			for dir, length := range map[redistest.Direction]int{redistest.ToServer: 400, redistest.ToClient: 60} {
				for n := w * step; n < length; n += workers * step {
					s := &site{s.On(t, fmt.Sprintf("%d.%d", dir, n))}
					if l, err := h.TryAcquire(t.Context(), "warm"+s.Key); err != nil || l.Release() != nil {
						t.Errorf("warm: %v", err)
						return
					}
					ctx, cancel := context.WithCancel(t.Context())
					fault := p.CutAfter(dir, int64(n))
					call := harness.Go(func() (*semaphore.Lease, error) { return h.Acquire(ctx, s.Key) })
					select {
					case <-fault.Fired():
						cancel()
					case r := <-call: // a shorter exchange than that
						call = harness.Go(func() (*semaphore.Lease, error) { return r.Value, r.Err })
						p.CutAfter(dir, 1<<30)
					}
					r := harness.Got(t, harness.Slack, "an acquisition", call)
					cancel()
					if r.Err == nil {
						redistest.Expect(t, r.Value.Release(), nil, "release: %v")
					} else {
						harness.IsErr(t, "acquire", r.Err, context.Canceled)
					}
					harness.Until(t, 5*time.Second, func() error {
						if held, waiting := s.InUse(), s.Queued(); held != 0 || waiting != 0 {
							return fmt.Errorf("cut after byte %d of direction %d: %d are held, %d wait", n, dir, held, waiting)
						}
						return nil
					})
				}
			}
		})
	}
	all.Wait()
}

// Ten thousand waiters on one key are cancelled at once. The newest server
// alone, since its statistics have to be its own.
func TestCancellationStorm(t *testing.T) {
	redistest.NoLeaks(t)
	const waiters = 10_000
	srv := redistest.StartServer(t, redistest.Newest(t))
	s := newSite(t, srv.Client())
	h := s.closing(srv.Client(), semaphore.Config{Limit: 1})
	first := redistest.Must(h.Acquire(t.Context(), s.Key))(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	const waitersPerControl = 20 // goroutines that only wait for the end of ctx
	ended, controls := make([]result, waiters), make([]time.Time, waiters/waitersPerControl)
	for i := range controls {
		all.Go(func() {
			<-ctx.Done()
			controls[i] = time.Now()
		})
	}
	for begun := 0; begun < waiters; {
		for range 500 {
			i := begun
			begun++
			all.Go(func() {
				l, err := h.Acquire(ctx, s.Key)
				ended[i] = result{Value: l, Err: err, At: time.Now()}
			})
		}
		harness.WaitCount(t, "waiters", begun, s.Queued)
	}
	at := time.Now()
	cancel()
	all.Wait()
	control := slices.MaxFunc(controls, time.Time.Compare).Sub(at)
	back := slices.MaxFunc(ended, func(a, b result) int { return a.At.Compare(b.At) }).At.Sub(at)
	busy := 0
	for _, r := range ended {
		harness.IsErr(t, "wait", r.Err, context.Canceled)
		if errors.Is(r.Err, leasehold.ErrBusy) {
			busy++ // else its place in the queue had not come to its knowledge
		}
		if t.Failed() {
			break
		}
	}
	redistest.Check(t, busy >= waiters*9/10, "%d of %d were told that they had been queued", busy, waiters)
	harness.Until(t, redistest.Soon+4*control, func() error {
		if n := s.Queued(); n > 0 {
			return fmt.Errorf("%d waiters after the cancellation", n)
		}
		return nil
	})
	left := time.Since(at)
	t.Logf("%d waiters returned within %v, goroutines without a call within %v, and had left the queue after %v", waiters, back, control, left)
	redistest.Check(t, back <= 2*control+harness.Slack, "they took %v to return, goroutines without a call %v", back, control)
	s.holds(1)
	redistest.Expect(t, first.Release(), nil, "release: %v")
	for range 10 {
		l, err := h.Acquire(t.Context(), s.Key)
		redistest.CheckNow(t, err == nil, "acquire afterwards: %v", err)
		redistest.Expect(t, l.Release(), nil, "release: %v")
	}
	s.empty(1, 0)
}
