package singleflight

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// faultLoser has a proxy lose the k-th reply of all, whatever it answers.
type faultLoser struct {
	*faultSite
	p     *redistest.Proxy
	k     int // 0 = none
	act   redistest.Action
	loads atomic.Int32

	mu         sync.Mutex
	seen       int
	lost       string // what the lost reply answered
	subscribed chan struct{}
	asked      chan struct{}
}

func (x *faultLoser) hook(ev redistest.Event) redistest.Action {
	if ev.Stage != redistest.OnReply {
		return redistest.Pass
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	switch harness.Script(ev.Cmd) {
	case "SUBSCRIBE":
		faultCloseOnce(x.subscribed)
	case "load ask":
		if !ev.Failed() {
			faultCloseOnce(x.asked)
		}
	}
	if x.seen++; x.seen != x.k {
		return redistest.Pass
	}
	x.lost = harness.Script(ev.Cmd)
	return x.act
}

func faultCloseOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

func faultLosing(c *singleflight.Config[string]) { c.LeaseTTL = 1500 * time.Millisecond }

// open makes a group whose replies are lost.
func (x *faultLoser) open() *singleflight.Group[string] {
	return x.group(x.p.Client(func(o *redis.Options) {
		if x.act == redistest.Vanish {
			o.ReadTimeout = 400 * time.Millisecond // else 3 s
		}
	}), faultLosing)
}

// fetch calls Fetch. A time-out while it opens a connection is the one failure
// that go-redis doesn't try again by itself: then the caller does.
func (x *faultLoser) fetch(ctx context.Context, g *singleflight.Group[string], load faultLoader) <-chan faultFetched {
	done := make(chan faultFetched, 1)
	go func() {
		r, err := g.Fetch(ctx, x.Key, load)
		if errors.Is(err, leasehold.ErrUnavailable) && x.act == redistest.Vanish && x.opening() {
			r, err = g.Fetch(ctx, x.Key, load)
		}
		done <- faultFetched{r, err, time.Now()}
	}()
	return done
}

// opening reports whether what was lost is of the opening of a connection.
func (x *faultLoser) opening() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lost == "HELLO" || x.lost == "CLIENT"
}

// gives is a loader that returns v when gate is closed.
func (x *faultLoser) gives(v string, gate <-chan struct{}) faultLoader {
	return func(context.Context) (string, error) {
		x.loads.Add(1)
		<-gate
		return v, nil
	}
}

// wants fails the test unless a call got one of the values, in time.
func (x *faultLoser) wants(what string, done <-chan faultFetched, within time.Duration, values ...string) {
	x.TB.Helper()
	r := harness.Got(x.TB, within+harness.Slack, what, done)
	for _, v := range values {
		if r.err == nil && r.Value == v {
			return
		}
	}
	x.TB.Errorf("%s got %.10q (%v), %v; want one of %.10q", what, r.Value, r.Source, r.err, values)
}

// waitsFor waits for the subscription of who waits, and, where nothing is lost,
// for the sign of life.
func (x *faultLoser) waitsFor() {
	last := x.subscribed
	if x.k == 0 {
		last = x.asked
	}
	harness.Got(x.TB, 10*time.Second, "a subscription", last)
}

// faultLives are uses of a key from the first command to the last; most loads of
// each is what it may come to wherever in it a reply is lost.
var faultLives = []struct {
	name  string
	run   func(x *faultLoser)
	loads int32
}{
	{"loads", faultLiveLoads, 2},
	{"fails", faultLiveFails, 1},
	{"waits", faultLiveWaits, 2},
	{"gives up", faultLiveGivesUp, 1},
}

// A reply is lost at each command of a life in turn, once with the connection
// and once with the connection left open and silent: the value comes all the
// same, and nothing is left.
func TestFaultLostReplyAtEveryCommand(t *testing.T) {
	srv := redistest.Shared(t, redistest.Newest(t))
	var lost sync.Map // which replies were
	var all sync.WaitGroup
	places := make(chan struct{}, 24) // what two processors carry without being late
	for _, l := range faultLives {
		for how, act := range map[string]redistest.Action{"closed": redistest.Close, "silent": redistest.Vanish} {
			live := func(t *testing.T, k int) int {
				places <- struct{}{}
				defer func() { <-places }()
				p := redistest.NewProxy(t, srv.Addr())
				x := &faultLoser{
					faultSite: newFaultSite(t, srv.Client()), p: p, k: k, act: act,
					subscribed: make(chan struct{}), asked: make(chan struct{}),
				}
				p.SetHook(x.hook)
				l.run(x)
				x.clean(8 * time.Second)
				if n := x.loads.Load(); n > l.loads {
					t.Errorf("%d loads; want at most %d", n, l.loads)
				}
				x.mu.Lock()
				defer x.mu.Unlock()
				if k > 0 {
					t.Logf("lost the reply to %q", x.lost)
					lost.Store(x.lost, true)
				}
				return x.seen
			}
			all.Go(func() {
				t.Run(l.name+", "+how, func(t *testing.T) {
					var all sync.WaitGroup
					for k := range live(t, 0) + 4 { // some have more connections to open
						all.Go(func() { t.Run(fmt.Sprint(k+1), func(t *testing.T) { live(t, k+1) }) })
					}
					all.Wait()
				})
			})
		}
	}
	all.Wait()
	for _, name := range []string{
		"time", "GET", "load enter", "load renew", "load publish", "load invalidate", "SUBSCRIBE",
	} {
		if _, ok := lost.Load(name); !ok {
			t.Errorf("no reply to %s was lost", name)
		}
	}
}

// faultLiveLoads loads, for so long that the lease is renewed, hits, invalidates
// and looks again.
func faultLiveLoads(x *faultLoser) {
	g := x.open()
	gate := make(chan struct{})
	time.AfterFunc(800*time.Millisecond, func() { close(gate) })
	x.wants("who loads", x.fetch(context.Background(), g, x.gives("one", gate)), 3*time.Second, "one")
	x.wants("the hit", x.fetch(context.Background(), g, x.gives("two", gate)), 2*time.Second, "one")
	if err := g.Invalidate(context.Background(), x.Key); err != nil {
		x.TB.Errorf("invalidate: %v", err)
	}
	x.wants("who loads anew", x.fetch(context.Background(), g, x.gives("three", gate)), 3*time.Second, "three")
}

// faultLiveFails has a loader that fails, which leaves nothing in the cache: a
// publication that is sent twice must not count as lost.
func faultLiveFails(x *faultLoser) {
	g := x.open()
	r := harness.Got(x.TB, 3*time.Second+harness.Slack, "who fails", x.fetch(context.Background(), g, func(context.Context) (string, error) {
		x.loads.Add(1)
		return "", errors.New("code 4711")
	}))
	if r.err == nil || !strings.Contains(r.err.Error(), "code 4711") {
		x.TB.Errorf("whose loader fails got %q, %v", r.Value, r.err)
	}
}

// faultLiveWaits waits for what another process loads.
func faultLiveWaits(x *faultLoser) {
	g, other := x.open(), x.group(x.RDB, faultLosing)
	gate, long := make(chan struct{}), strings.Repeat("one", 2000)
	leads := x.fetch(context.Background(), other, x.gives(long, gate))
	harness.Until(x.TB, 10*time.Second, func() error {
		if x.loads.Load() == 0 {
			return errors.New("no load")
		}
		return nil
	})
	follows := x.fetch(context.Background(), g, x.gives("two", gate))
	x.waitsFor()
	close(gate)
	x.wants("who loads", leads, 3*time.Second, long)
	x.wants("who waits", follows, 4*time.Second, long)
}

// faultLiveGivesUp leaves a load that another process goes on with.
func faultLiveGivesUp(x *faultLoser) {
	g, other := x.open(), x.group(x.RDB, faultLosing)
	gate := make(chan struct{})
	leads := x.fetch(context.Background(), other, x.gives("one", gate))
	harness.Until(x.TB, 10*time.Second, func() error {
		if x.loads.Load() == 0 {
			return errors.New("no load")
		}
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	follows := x.fetch(ctx, g, x.gives("two", gate))
	x.WaitQueued(1)
	cancel()
	if r := harness.Got(x.TB, faultLate, "who gave up", follows); !errors.Is(r.err, context.Canceled) {
		x.TB.Errorf("who gave up got %q, %v", r.Value, r.err)
	}
	x.WaitQueued(0)
	close(gate)
	x.wants("who loads", leads, 3*time.Second, "one")
}
