package faults

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

// Somebody else's blocking command has the client's only connection: leases live
// on, and what cannot be given back at once is given back behind its back.
func TestPoolExhaustedByOthers(t *testing.T) {
	harness.EachServerAtOnce(t, redistest.Shared, func(t *testing.T, srv *redistest.Server) {
		s := newPermitSite(t, srv.Client())
		p := redistest.NewProxy(t, srv.Addr())
		rdb := p.Client(func(o *redis.Options) { o.PoolSize = 1 })
		h := s.closing(rdb, semaphore.Config{Limit: 1, TTL: lastingTTL})
		l := redistest.Must(h.Acquire(t.Context(), s.Key))(t)
		blocked := make(chan error, 1)
		go func() { blocked <- rdb.BLPop(context.Background(), 0, s.Part("list")).Err() }()
		redistest.Eventually(t, "BLPOP", func() bool { return p.Count("BLPOP") > 0 })
		renewals := harness.Answers(p, "renew")
		for range 3 { // a TTL
			select {
			case <-renewals:
			case <-l.Context().Done():
				t.Fatalf("lost: %v", context.Cause(l.Context()))
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		at := time.Now()
		// A call that waits behind one without a connection goes in a pipeline, for which the
		// client has connections of its own. So calls may succeed, and they end in time. One that is the
		// first in line is never sent, and has ctx's error alone.
		other, err := h.Acquire(ctx, "other")
		if err != nil {
			redistest.WantErr(t, err, context.DeadlineExceeded)
		} else if err := other.Release(); err != nil {
			redistest.WantErr(t, err, leasehold.ErrUnavailable)
		}
		redistest.AtMost(t, time.Since(at), 3*time.Second+100*time.Millisecond+harness.Slack, "acquire and release took %v")
		s.holds(1)
		at = time.Now()
		if err := l.Release(); err != nil {
			redistest.WantErr(t, err, leasehold.ErrUnavailable)
		}
		if took := time.Since(at); took > 3*time.Second+harness.Slack { // as Release has it
			t.Errorf("release took %v", took)
		}
		harness.WaitCount(t, "permits", 0, s.InUse)
		redistest.WantErr(t, s.RDB.RPush(t.Context(), s.Part("list"), "x").Err())
		redistest.NoError(t, <-blocked)
		s.empty(1, time.Second)
	})
}

// For a second every connection that carries anything goes silent for good, as behind a firewall that forgets what it
// knew; new ones are well after that. Leases that have as long left to live are renewed on those, whatever still
// waits for an answer on the others. The newest server alone: what is tested is the client.
func TestLeasesOutliveDeadConnections(t *testing.T) {
	srv := redistest.Shared(t, redistest.Newest(t))
	s := newPermitSite(t, srv.Client())
	p := redistest.NewProxy(t, srv.Addr())
	const ttl = 3 * time.Second
	h := s.closing(p.Client(), semaphore.Config{Limit: 1, TTL: ttl})
	var all []*semaphore.Lease
	for i := range 100 { // renewed at different times
		all = append(all, redistest.Must(h.TryAcquire(t.Context(), fmt.Sprint(i)))(t))
		time.Sleep(ttl / 3 / 100)
	}
	end := time.Now().Add(time.Second)
	p.SetHook(func(ev redistest.Event) redistest.Action {
		if ev.Stage == redistest.OnReply && time.Now().Before(end) {
			return redistest.Vanish
		}
		return redistest.Pass
	})
	lost := 0
	var cause error
	for _, l := range all {
		redistest.Eventually(t, "a renewal since", func() bool {
			if err := context.Cause(l.Context()); err != nil {
				lost, cause = lost+1, err
				return true
			}
			return l.Deadline().After(end.Add(ttl - ttl/40))
		})
	}
	redistest.Check(t, lost <= 0, "%d of 100 leases were lost by a second of silence: %v", lost, cause)
	p.SetHook(nil)
	p.CloseAll()
}

// The connection breaks at each byte, and ctx ends at that moment: the calls that are made anew meet the leave.
func TestCtxEndsWhereTheConnectionBreaks(t *testing.T) {
	srv := redistest.Shared(t, redistest.Newest(t))
	s := newPermitSite(t, srv.Client())
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
					s := &permitSite{s.On(t, fmt.Sprintf("%d.%d", dir, n))}
					if l, err := h.TryAcquire(t.Context(), "warm"+s.Key); err != nil || l.Release() != nil {
						t.Errorf("warm: %v", err)
						return
					}
					ctx, cancel := context.WithCancel(t.Context())
					fault := p.CutAfter(dir, int64(n))
					call := s.acquiring(ctx, h)
					select {
					case <-fault.Fired():
						cancel()
					case <-call.Done: // a shorter exchange than that
						p.CutAfter(dir, 1<<30)
					}
					r := call.Within(harness.Slack, "an acquisition")
					cancel()
					if r.Err == nil {
						redistest.Expect(t, r.Value.Release(), nil, "release: %v")
					} else {
						redistest.WantErr(t, r.Err, context.Canceled)
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
	s := newPermitSite(t, srv.Client())
	h := s.closing(srv.Client(), semaphore.Config{Limit: 1})
	first := redistest.Must(h.Acquire(t.Context(), s.Key))(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	const waitersPerControl = 20 // goroutines that only wait for the end of ctx
	var ended []*harness.Call[*semaphore.Lease]
	controls := make([]time.Time, waiters/waitersPerControl)
	for i := range controls {
		all.Go(func() {
			<-ctx.Done()
			controls[i] = time.Now()
		})
	}
	for len(ended) < waiters {
		for range 500 {
			ended = append(ended, s.acquiring(ctx, h))
		}
		s.WaitQueued(len(ended))
	}
	at := time.Now()
	cancel()
	all.Wait()
	for _, c := range ended {
		<-c.Done
	}
	control := slices.MaxFunc(controls, time.Time.Compare).Sub(at)
	back := slices.MaxFunc(ended, func(a, b *harness.Call[*semaphore.Lease]) int { return a.At.Compare(b.At) }).At.Sub(at)
	busy := 0
	for _, r := range ended {
		redistest.WantErr(t, r.Err, context.Canceled)
		if errors.Is(r.Err, leasehold.ErrBusy) {
			busy++ // else its place in the queue had not come to its knowledge
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
