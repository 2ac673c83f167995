package singleflight

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A process is killed in a load that has the family's only permit. A load of
// another key, in a process that waits for it, begins when the permit's TTL is
// over, and not before.
func TestFaultHolderOfThePermitKilled(t *testing.T) {
	t.Parallel()
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		const leaseTTL = time.Second
		s := newFaultSite(t, target.Client(t))
		f := newFaultFleet(t, crowdSetup{
			Addr: target.Addr(), Family: s.Family, TTL: time.Minute, LeaseTTL: leaseTTL, MaxLoads: 1,
		}, 2)
		holder, other := f.members[0], f.members[1]
		holder.fetch(childOrder{ID: 0, Key: "a", Load: time.Hour})
		f.said("began", 0)
		other.fetch(childOrder{ID: 1, Key: "b", Value: "b"})
		permits := newPermitSite(s)
		permits.WaitQueued(1)
		killed := time.Now()
		holder.Kill()
		left, err := s.RDB.PTTL(t.Context(), permits.Part("holders")).Result()
		if err != nil {
			t.Fatal(err)
		}
		if ev := f.said("got", 1); ev.Value != "b" || ev.Err != "" {
			t.Errorf("the load of the other key got %+v", ev)
		}
		began := time.UnixMicro(f.said("began", 1).At)
		t.Logf("the other load began %v after the kill; the permit's key had %v left", began.Sub(killed), left)
		if began.Sub(killed) > leaseTTL+harness.Slack {
			t.Errorf("the other load began %v after the kill; want %v", began.Sub(killed), leaseTTL)
		}
		if began.Sub(killed) < left-20*time.Millisecond {
			t.Errorf("the other load began %v after the kill, beside a permit that lasts for %v", began.Sub(killed), left)
		}
		if n := len(f.all("began")); n != 2 {
			t.Errorf("%d loads; want 2", n)
		}
	})
}

// The process that has the only permit is cut off. Its load's ctx ends with
// ErrLost, and the other process's load begins when the permit's TTL is over.
func TestFaultHolderOfThePermitCutOff(t *testing.T) {
	t.Parallel()
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		const leaseTTL = time.Second
		s := newFaultSite(t, target.Client(t))
		p := redistest.NewProxy(t, target.Addr())
		mod := func(c *singleflight.Config[string]) { c.LeaseTTL, c.MaxLoads = leaseTTL, 1 }
		cutOff := s.group(p.Client(func(o *redis.Options) { o.ReadTimeout = leaseTTL }), mod)
		other := s.group(target.Client(t), mod)
		warmUp(t, cutOff)
		warmUp(t, other)
		began, ended := make(chan struct{}), make(chan time.Time, 1)
		var why error
		one := startFetch(t.Context(), cutOff, "a", func(ctx context.Context) (string, error) {
			close(began)
			<-ctx.Done()
			why = context.Cause(ctx)
			ended <- time.Now()
			return "", why
		})
		harness.Got(t, 10*time.Second, "the first load", began)
		next := make(chan time.Time, 1)
		two := startFetch(t.Context(), other, "b", func(context.Context) (string, error) {
			next <- time.Now()
			return "b", nil
		})
		newPermitSite(s).WaitQueued(1)
		cut := time.Now()
		p.Cut(true, true)
		over := harness.Got(t, 10*time.Second, "the end of the first load", ended)
		at := harness.Got(t, 10*time.Second, "the other load", next)
		t.Logf("%v after the cut the first load's ctx ended, %v after it the other load began", over.Sub(cut), at.Sub(cut))
		if took := at.Sub(cut); took > leaseTTL+harness.Slack {
			t.Errorf("the other load began %v after the cut; want %v", took, leaseTTL)
		}
		if !errors.Is(why, leasehold.ErrLost) {
			t.Errorf("the first load's ctx ended with %v; want ErrLost", why)
		}
		// Which of the two, is a matter of whether it still asks for another load.
		got := harness.Got(t, 10*time.Second, "the first call", one)
		if !errors.Is(got.err, leasehold.ErrUnavailable) && !errors.Is(got.err, leasehold.ErrLost) {
			t.Errorf("the first call got %v; want ErrUnavailable or ErrLost", got.err)
		}
		if got := harness.Got(t, 10*time.Second, "the other call", two); got.err != nil || got.Value != "b" {
			t.Errorf("the other call got %q, %v", got.Value, got.err)
		}
		p.Heal()
		s.on(t, "a").clean(10 * time.Second)
	})
}

// newPermitSite is the permits of a family's loads, which are a resource of their
// own.
func newPermitSite(s *groupSite) *groupSite {
	return &groupSite{&harness.Site{TB: s.TB, RDB: s.RDB, Kind: harness.Loads, Family: s.Family, Key: ""}}
}
