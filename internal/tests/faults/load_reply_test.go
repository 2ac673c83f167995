package faults

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// replyLoser is a site at which one reply is lost.
type replyLoser struct {
	*groupSite
	*harness.Loser
	loads atomic.Int32
}

// lastingLease is for a process that loses no replies: it keeps its lease on a busy machine, too.
func lastingLease(c *singleflight.Config[string]) { c.LeaseTTL = 10 * time.Second }

func shortLease(c *singleflight.Config[string]) { c.LeaseTTL = 1500 * time.Millisecond }

// open makes a group whose replies are lost.
func (x *replyLoser) open() *singleflight.Group[string] { return x.group(x.Client(), shortLease) }

// fetch calls Fetch. A time-out while it opens a connection is the one failure
// that go-redis doesn't try again by itself: then the caller does.
func (x *replyLoser) fetch(ctx context.Context, g *singleflight.Group[string], load loaderFunc) *fetching {
	return harness.Start(x.TB, func() (singleflight.Result[string], error) {
		r, err := g.Fetch(ctx, x.Key, load)
		if errors.Is(err, leasehold.ErrUnavailable) && x.Silent && (x.Lost() == "HELLO" || x.Lost() == "CLIENT") {
			r, err = g.Fetch(ctx, x.Key, load)
		}
		return r, err
	})
}

// gives is a loader that returns v when gate is closed.
func (x *replyLoser) gives(v string, gate <-chan struct{}) loaderFunc {
	return func(context.Context) (string, error) {
		x.loads.Add(1)
		<-gate
		return v, nil
	}
}

// wants fails the test unless a call got one of the values, in time.
func (x *replyLoser) wants(what string, done *fetching, within time.Duration, values ...string) {
	x.TB.Helper()
	r := done.Within(within+harness.Slack, what)
	for _, v := range values {
		if r.Err == nil && r.Value.Value == v {
			return
		}
	}
	x.TB.Errorf("%s got %.10q (%v), %v; want one of %.10q", what, r.Value.Value, r.Value.Source, r.Err, values)
}

// groupLives are uses of a key from the first command to the last; most loads of
// each is what it may come to wherever in it a reply is lost.
var groupLives = []struct {
	name  string
	run   func(x *replyLoser)
	loads int32
}{
	{"loads", lifeThatLoads, 2},
	{"fails", lifeThatFails, 1},
	{"waits", lifeThatWaits, 2},
	{"gives up", lifeThatGivesUp, 1},
}

// A reply is lost at each command of a life in turn: the value comes all the same, and nothing is left.
func TestFaultLostReplyAtEveryCommand(t *testing.T) {
	var all []harness.Life
	for _, l := range groupLives {
		all = append(all, harness.Life{Name: l.name, Run: func(lost *harness.Loser) {
			x := &replyLoser{groupSite: &groupSite{lost.Site}, Loser: lost}
			l.run(x)
			x.clean(8 * time.Second)
			n := x.loads.Load()
			redistest.Check(x.TB, n <= l.loads, "%d loads; want at most %d", n, l.loads)
		}})
	}
	lost := harness.LoseEach(t, redistest.Shared(t, redistest.Newest(t)), harness.Loads, "load ask", all)
	harness.WantLost(t, lost, "time", "GET", "load enter", "load renew", "load publish", "load invalidate", "SUBSCRIBE")
}

// lifeThatLoads loads, for so long that the lease is renewed, hits, invalidates and looks again.
func lifeThatLoads(x *replyLoser) {
	g := x.open()
	gate := make(chan struct{})
	time.AfterFunc(800*time.Millisecond, func() { close(gate) })
	x.wants("the loading caller", x.fetch(context.Background(), g, x.gives("one", gate)), 3*time.Second, "one")
	x.wants("the hit", x.fetch(context.Background(), g, x.gives("two", gate)), 2*time.Second, "one")
	redistest.Expect(x.TB, g.Invalidate(context.Background(), x.Key), nil, "invalidate: %v")
	x.wants("the caller that loads anew", x.fetch(context.Background(), g, x.gives("three", gate)), 3*time.Second, "three")
}

// lifeThatFails has a loader that fails, which leaves nothing in the cache: a
// publication that is sent twice must not count as lost.
func lifeThatFails(x *replyLoser) {
	g := x.open()
	r := x.fetch(context.Background(), g, func(context.Context) (string, error) {
		x.loads.Add(1)
		return "", errors.New("code 4711")
	}).Within(3*time.Second+harness.Slack, "the failing caller")
	if r.Err == nil || !strings.Contains(r.Err.Error(), "code 4711") {
		x.TB.Errorf("the caller with the failing loader got %q, %v", r.Value.Value, r.Err)
	}
}

// lifeThatWaits waits for what another process loads.
func lifeThatWaits(x *replyLoser) {
	g, other := x.open(), x.group(x.RDB, lastingLease)
	gate, long := make(chan struct{}), strings.Repeat("one", 2000)
	leads := x.fetch(context.Background(), other, x.gives(long, gate))
	redistest.Eventually(x.TB, "a load", func() bool { return x.loads.Load() > 0 })
	follows := x.fetch(context.Background(), g, x.gives("two", gate))
	x.AwaitSubscription()
	close(gate)
	x.wants("the loading caller", leads, 3*time.Second, long)
	x.wants("the waiting caller", follows, 4*time.Second, long)
}

// lifeThatGivesUp leaves a load that another process goes on with.
func lifeThatGivesUp(x *replyLoser) {
	g, other := x.open(), x.group(x.RDB, lastingLease)
	gate := make(chan struct{})
	leads := x.fetch(context.Background(), other, x.gives("one", gate))
	redistest.Eventually(x.TB, "a load", func() bool { return x.loads.Load() > 0 })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	follows := x.fetch(ctx, g, x.gives("two", gate))
	x.WaitQueued(1)
	cancel()
	r := follows.Within(harness.Slack, "the caller that gave up")
	redistest.Check(x.TB, errors.Is(r.Err, context.Canceled), "the caller that gave up got %q, %v", r.Value.Value, r.Err)
	x.WaitQueued(0)
	close(gate)
	x.wants("the loading caller", leads, 3*time.Second, "one")
}
