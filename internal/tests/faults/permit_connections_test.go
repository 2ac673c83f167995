package faults

import (
	"context"
	"errors"
	"fmt"
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
		s := newSite(t, harness.Permits, srv.Client())
		p := redistest.NewProxy(t, srv.Addr())
		rdb := p.Client(func(o *redis.Options) { o.PoolSize = 1 })
		h := s.semaphore(rdb, semaphore.Config{Limit: 1, TTL: lastingTTL})
		l := redistest.Must(h.Acquire(t.Context(), s.key))(t)
		blocked := make(chan error, 1)
		go func() { blocked <- rdb.BLPop(context.Background(), 0, s.part("list")).Err() }()
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
		redistest.AtMost(t, time.Since(at), 3*time.Second+harness.Slack, "release took %v") // as Release has it
		harness.WaitCount(t, "permits", 0, s.inUse)
		redistest.WantErr(t, s.RDB.RPush(t.Context(), s.part("list"), "x").Err())
		redistest.NoError(t, <-blocked)
		s.empty(1, time.Second)
	})
}

// For a second every connection that carries anything goes silent for good, as behind a firewall that forgets what it
// knew; new ones are well after that. Leases that have as long left to live are renewed on those, whatever still
// waits for an answer on the others. The newest server alone: what is tested is the client.
func TestLeasesOutliveDeadConnections(t *testing.T) {
	srv := redistest.Shared(t, redistest.Newest(t))
	s := newSite(t, harness.Permits, srv.Client())
	p := redistest.NewProxy(t, srv.Addr())
	const ttl = 3 * time.Second
	h := s.semaphore(p.Client(), semaphore.Config{Limit: 1, TTL: ttl})
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
	s := newSite(t, harness.Permits, srv.Client())
	const workers = 4
	step := 1
	if testing.Short() {
		step = 7
	}
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			p := redistest.NewProxy(t, srv.Addr())
			h := s.semaphore(p.Client(func(o *redis.Options) { o.PoolSize = 1 }), semaphore.Config{Limit: 1})
			for dir, length := range map[redistest.Direction]int{redistest.ToServer: 400, redistest.ToClient: 60} {
				for n := w * step; n < length; n += workers * step {
					s := s.on(t, fmt.Sprintf("%d.%d", dir, n))
					if l, err := h.TryAcquire(t.Context(), "warm"+s.key); err != nil || l.Release() != nil {
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
						if held, waiting := s.inUse(), s.queued(); held != 0 || waiting != 0 {
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
	s := newSite(t, harness.Permits, srv.Client())
	h := s.semaphore(srv.Client(), semaphore.Config{Limit: 1})
	first := redistest.Must(h.Acquire(t.Context(), s.key))(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ended []*harness.Call[*semaphore.Lease]
	began := time.Now()
	for len(ended) < waiters {
		for range 500 {
			ended = append(ended, s.acquiring(ctx, h))
		}
		s.waitQueued(len(ended))
	}
	at := time.Now()
	came := at.Sub(began) // the control: to come takes an answer of the server, and to return none
	cancel()
	busy := 0
	for _, c := range ended {
		<-c.Done
		redistest.WantErr(t, c.Err, context.Canceled)
		if errors.Is(c.Err, leasehold.ErrBusy) {
			busy++ // else its place in the queue had not come to its knowledge
		}
	}
	back := time.Since(at)
	redistest.AtMost(t, back, max(came, harness.Slack), "they took %v to return")
	redistest.AtLeast(t, busy, waiters*9/10, "%d were told that they had been queued")
	s.waitQueued(0)
	t.Logf("%d waiters returned within %v, and had left the queue after %v", waiters, back, time.Since(at))
	s.holds(1)
	redistest.Expect(t, first.Release(), nil, "release: %v")
	redistest.WantErr(t, redistest.Must(h.Acquire(t.Context(), s.key))(t).Release())
	s.empty(1, 0)
}
