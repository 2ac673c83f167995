package semaphore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// Every reply takes longer than a lease lasts: none is handed out that is over.
func TestReplySlowerThanTheLease(t *testing.T) {
	harness.EachServerAtOnce(t, func(t *testing.T, srv *redistest.Server) {
		s := newSite(t, srv.Client())
		p := redistest.NewProxy(t, srv.Addr())
		h := s.closing(p.Client(), semaphore.Config{Limit: 1, TTL: 150 * time.Millisecond})
		if l, err := h.TryAcquire(t.Context(), "warm"); err != nil || l.Release() != nil {
			t.Fatal(err)
		}
		p.Delay(0, 250*time.Millisecond)
		for name, acquire := range map[string]func(context.Context, string) (*semaphore.Lease, error){
			"acquire": h.Acquire, "try acquire": h.TryAcquire,
		} {
			at := time.Now()
			l, err := acquire(t.Context(), s.Key)
			if err == nil {
				t.Errorf("%s: a lease with a deadline %v ago", name, time.Since(l.Deadline()))
				continue
			}
			harness.IsErr(t, name, err, leasehold.ErrUnavailable)
			t.Logf("%s took %v: %v", name, time.Since(at), err)
			if took := time.Since(at); took > 5*time.Second {
				t.Errorf("%s took %v", name, took)
			}
		}
		p.Delay(0, 0)
		s.empty(1, 2*time.Second)
	})
}

// One reply comes when its lease is over. The call goes on and returns another.
func TestOneReplySlowerThanTheLease(t *testing.T) {
	harness.EachServerAtOnce(t, func(t *testing.T, srv *redistest.Server) {
		s := newSite(t, srv.Client())
		p := redistest.NewProxy(t, srv.Addr())
		h := s.closing(p.Client(), semaphore.Config{Limit: 1, TTL: 600 * time.Millisecond})
		late := p.HoldReply(harness.Does("enter"), 1)
		call := harness.Go(func() (*semaphore.Lease, error) { return h.Acquire(t.Context(), s.Key) })
		late.Wait()
		harness.WaitCount(t, "permits", 1, s.InUse)
		harness.WaitCount(t, "permits of the late one", 0, s.InUse)
		late.Release()
		r := harness.Got(t, 5*time.Second, "an acquisition", call)
		if r.Err != nil {
			t.Fatalf("acquire: %v", r.Err)
		}
		if !r.Value.Deadline().After(r.At) {
			t.Errorf("a lease that was over %v before it was returned", r.At.Sub(r.Value.Deadline()))
		}
		s.holds(1)
		if err := r.Value.Release(); err != nil {
			t.Errorf("release: %v", err)
		}
		s.empty(1, 0)
	})
}

// A grant's message arrives when what it granted was given back long ago.
func TestLateMessageGrantsNothing(t *testing.T) {
	harness.EachServerAtOnce(t, func(t *testing.T, srv *redistest.Server) {
		s := newSite(t, srv.Client())
		p := redistest.NewProxy(t, srv.Addr())
		gate, held := make(chan struct{}), make(chan struct{}, 10)
		asked := make(chan struct{}, 1000)
		p.SetHook(func(ev redistest.Event) redistest.Action {
			if ev.Stage == redistest.OnReply && !ev.Failed() && harness.Script(ev.Cmd) == "ask" {
				asked <- struct{}{}
			}
			if ev.Stage != redistest.OnMessage {
				return redistest.Pass
			}
			held <- struct{}{}
			return redistest.Hold(gate)
		})
		first, err := s.closing(s.RDB, semaphore.Config{Limit: 1}).Acquire(t.Context(), s.Key)
		if err != nil {
			t.Fatal(err)
		}
		h := s.closing(p.Client(), semaphore.Config{Limit: 1})
		waiter := harness.Go(func() (*semaphore.Lease, error) { return h.Acquire(t.Context(), s.Key) })
		redistest.Get(t, "the ask of a subscription that stands", asked)
		if err := first.Release(); err != nil {
			t.Fatal(err)
		}
		redistest.Get(t, "a message", held)
		r := harness.Got(t, 10*time.Second, "an acquisition", waiter)
		if r.Err != nil {
			t.Fatalf("wait: %v", r.Err)
		}
		if err := r.Value.Release(); err != nil {
			t.Errorf("release: %v", err)
		}
		// Another waiter of the handle is there when the message comes.
		first, err = s.closing(s.RDB, semaphore.Config{Limit: 1}).Acquire(t.Context(), s.Key)
		if err != nil {
			t.Fatal(err)
		}
		waiter = harness.Go(func() (*semaphore.Lease, error) { return h.Acquire(t.Context(), s.Key) })
		harness.WaitCount(t, "waiters", 1, s.Queued)
		for len(asked) > 0 {
			<-asked
		}
		close(gate)
		redistest.Get(t, "an ask after the message", asked)
		select {
		case r := <-waiter:
			t.Fatalf("a waiter took a message for its own: %v", r.Err)
		default:
		}
		s.holds(1)
		if err := first.Release(); err != nil {
			t.Errorf("release: %v", err)
		}
		if r := harness.Got(t, 10*time.Second, "an acquisition", waiter); r.Err != nil || r.Value.Release() != nil {
			t.Errorf("wait: %v", r.Err)
		}
		s.empty(1, 0)
	})
}

// Somebody else's blocking command has the client's only connection: leases live
// on, and what cannot be given back at once is given back behind its back.
func TestPoolExhaustedByOthers(t *testing.T) {
	harness.EachServerAtOnce(t, func(t *testing.T, srv *redistest.Server) {
		s := newSite(t, srv.Client())
		p := redistest.NewProxy(t, srv.Addr())
		rdb := p.Client(func(o *redis.Options) { o.PoolSize = 1 })
		h := s.closing(rdb, semaphore.Config{Limit: 1, TTL: lastingTTL})
		l, err := h.Acquire(t.Context(), s.Key)
		if err != nil {
			t.Fatal(err)
		}
		blocked := make(chan error, 1)
		go func() { blocked <- rdb.BLPop(context.Background(), 0, s.Part("list")).Err() }()
		harness.Until(t, 5*time.Second, func() error {
			if p.Count("BLPOP") == 0 {
				return errors.New("BLPOP isn't there")
			}
			return nil
		})
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
		// client has connections of its own. So calls may succeed, and they end in time.
		other, err := h.Acquire(ctx, "other")
		if err != nil {
			harness.IsErr(t, "acquire", err, context.DeadlineExceeded, leasehold.ErrUnavailable)
		} else if err := other.Release(); err != nil {
			harness.IsErr(t, "release of the other one", err, leasehold.ErrUnavailable)
		}
		if took := time.Since(at); took > 3*time.Second+100*time.Millisecond+harness.Slack {
			t.Errorf("acquire and release took %v", took)
		}
		s.holds(1)
		at = time.Now()
		if err := l.Release(); err != nil {
			harness.IsErr(t, "release", err, leasehold.ErrUnavailable)
		}
		if took := time.Since(at); took > 3*time.Second+harness.Slack { // as Release has it
			t.Errorf("release took %v", took)
		}
		harness.WaitCount(t, "permits", 0, s.InUse)
		if err := s.RDB.RPush(t.Context(), s.Part("list"), "x").Err(); err != nil {
			t.Fatal(err)
		}
		if err := <-blocked; err != nil {
			t.Error(err)
		}
		s.empty(1, time.Second)
	})
}
