package singleflight

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

func openFleet(t *testing.T, target redistest.Target, leaseTTL time.Duration, n int) (*groupSite, *loadFleet) {
	t.Helper()
	s := newFaultSite(t, target.Client(t))
	return s, newFaultFleet(t, crowdSetup{Addr: target.Addr(), Family: s.Family, TTL: time.Minute, LeaseTTL: leaseTTL}, n)
}

// A load takes three times as long as its lease lasts without a renewal: nobody
// else begins another one.
func TestFaultLoadLongerThanItsLease(t *testing.T) {
	t.Parallel()
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		const leaseTTL = 2 * time.Second
		s, f := openFleet(t, target, leaseTTL, 4)
		for i, m := range f.members {
			m.fetch(childOrder{ID: i, Key: s.Key, Load: 3 * leaseTTL, Value: "value"})
		}
		for i := range f.members {
			if ev := f.said("got", i); ev.Value != "value" || ev.Err != "" {
				t.Errorf("call %d got %+v", i, ev)
			}
		}
		if n := len(f.all("began")); n != 1 {
			t.Errorf("%d loads; want 1", n)
		}
		if ev := f.all("ended")[0]; ev.Err != "" {
			t.Errorf("the load's ctx had ended: %v", ev.Err)
		}
	})
}

// A process is killed in its load: one of those that wait takes over when the
// lease has ended, and serves the others.
func TestFaultHolderKilled(t *testing.T) {
	t.Parallel()
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		const leaseTTL = time.Second
		s, f := openFleet(t, target, leaseTTL, 4)
		holder, others := f.members[0], f.members[1:]
		holder.fetch(childOrder{ID: 0, Key: s.Key, Load: time.Hour})
		f.said("began", 0)
		for i, m := range others {
			m.fetch(childOrder{ID: i + 1, Key: s.Key, Load: 200 * time.Millisecond, Value: "next"})
		}
		s.WaitQueued(len(others))
		time.Sleep(time.Duration(time.Now().UnixNano()) % (leaseTTL / 3)) // somewhere between two renewals
		killed := time.Now()
		holder.Kill()
		for i := range others {
			if ev := f.said("got", i+1); ev.Value != "next" || ev.Err != "" {
				t.Errorf("call %d got %+v", i+1, ev)
			}
		}
		began := f.all("began")
		if len(began) != 2 {
			t.Fatalf("%d loads; want the killed one and one more", len(began))
		}
		// How soon it begins is shown to the millisecond where time stands still
		// for slow machines: TestCutOffForLongerThanTheLease.
		after := time.UnixMicro(began[1].At).Sub(killed)
		t.Logf("the successor's load began %v after the kill", after)
		if after > leaseTTL+harness.Slack {
			t.Errorf("the successor's load began %v after the kill; want at most %v and %v", after, leaseTTL, harness.Slack)
		}
	})
}

// A process is stopped for longer than its lease. What it loads is then for its
// caller alone: the successor's value stays, and the callers that joined the load
// in that process get it.
func TestFaultHolderStopped(t *testing.T) {
	t.Parallel()
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		const leaseTTL = time.Second
		s, f := openFleet(t, target, leaseTTL, 3)
		holder, others := f.members[0], f.members[1:]
		holder.fetch(childOrder{ID: 0, Key: s.Key, UntilTold: true, Value: "stopped"})
		f.said("began", 0)
		for i := range 3 {
			holder.fetch(childOrder{ID: 10 + i, Key: s.Key, Value: "joiner"})
		}
		// Nothing tells that they have joined. A caller that is stopped before it
		// joins finds the successor's value itself later.
		time.Sleep(100 * time.Millisecond)
		for i, m := range others {
			m.fetch(childOrder{ID: i + 1, Key: s.Key, Value: "next"})
		}
		holder.Pause()
		for i := range others {
			if ev := f.said("got", i+1); ev.Value != "next" || ev.Err != "" {
				t.Errorf("call %d got %+v", i+1, ev)
			}
		}
		before, err := s.RDB.Get(context.Background(), s.Part("value")).Result()
		if err != nil {
			t.Fatal(err)
		}
		holder.Resume()
		holder.fetch(childOrder{ID: 0, Finish: true})
		if ev := f.said("got", 0); ev.Value != "stopped" || ev.Source != "loaded" || ev.Err != "" {
			t.Errorf("the stopped process's caller got %+v; want its own value", ev)
		}
		for i := range 3 {
			if ev := f.said("got", 10+i); ev.Value != "next" || ev.Err != "" {
				t.Errorf("a caller that joined the stopped load got %+v; want the successor's value", ev)
			}
		}
		if n := len(f.all("began")); n != 2 {
			t.Errorf("%d loads; want the stopped one and its successor's", n)
		}
		harness.Until(t, leaseTTL, func() error {
			if after, err := s.RDB.Get(context.Background(), s.Part("value")).Result(); err != nil || after != before {
				return fmt.Errorf("the successor's value is no longer there: %v", err)
			}
			return nil
		})
	})
}

// A process that waits is killed, and the caller whose load it waited for leaves:
// the load doesn't go on for the dead.
func TestFaultWaiterKilled(t *testing.T) {
	harness.OnNewest(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		const leaseTTL, alive = time.Second, 4500 * time.Millisecond // as luascripts/shared/constants.lua has it
		s, f := openFleet(t, target, leaseTTL, 1)
		g := s.group(target.Client(t), func(c *singleflight.Config[string]) { c.LeaseTTL = leaseTTL })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began, ended := make(chan struct{}), make(chan struct{})
		call := startFetch(ctx, g, s.Key, func(ctx context.Context) (string, error) {
			close(began)
			<-ctx.Done()
			close(ended)
			return "", ctx.Err()
		})
		harness.Got(t, 10*time.Second, "the load", began)
		f.members[0].fetch(childOrder{ID: 1, Key: s.Key})
		s.WaitQueued(1)
		f.members[0].Kill()
		cancel()
		harness.Got(t, harness.Slack, "the caller that left", call)
		left := time.Now()
		harness.Got(t, alive+leaseTTL/3+harness.Slack, "the end of the load", ended)
		t.Logf("the load was ended %v after its last caller had left", time.Since(left))
		if n := s.Living("holders"); n != 0 {
			t.Errorf("%d holders are left", n)
		}
	})
}
