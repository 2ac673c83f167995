package singleflight

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// holdPoint is the point at which a call is held up, of the leader or of a follower.
type holdPoint struct {
	name   string
	leads  bool
	silent bool // the follower gets no messages
	hold   func(p *redistest.Proxy) *redistest.Fault
}

func holdPoints() []holdPoint {
	var steps []holdPoint
	request := func(match func([]string) bool, k int) func(p *redistest.Proxy) *redistest.Fault {
		return func(p *redistest.Proxy) *redistest.Fault { return p.HoldRequest(match, k) }
	}
	reply := func(match func([]string) bool, k int) func(p *redistest.Proxy) *redistest.Fault {
		return func(p *redistest.Proxy) *redistest.Fault { return p.HoldReply(match, k) }
	}
	for _, script := range []string{"load enter", "load publish"} {
		steps = append(steps,
			holdPoint{"leader, request of " + script, true, false, request(harness.Does(script), 1)},
			holdPoint{"leader, reply of " + script, true, false, reply(harness.Does(script), 1)})
	}
	get := redistest.Named("GET")
	return append(steps,
		holdPoint{"follower, reply of load enter", false, false, reply(harness.Does("load enter"), 1)},
		holdPoint{"follower, message", false, false, nil},
		holdPoint{"follower, request of the GET that confirms", false, false, request(get, 2)},
		holdPoint{"follower, reply of the GET that confirms", false, false, reply(get, 2)},
		holdPoint{"follower, request of load ask", false, true, request(harness.Does("load ask"), 1)},
		holdPoint{"follower, reply of load ask", false, true, reply(harness.Does("load ask"), 1)})
}

// Each step of a publication and of a wake-up in turn is held up, while another
// process invalidates and new readers come. No caller that came after the Invalidate
// gets what was loaded before it, nobody hangs, and nobody meets more than two
// loads.
func TestFaultHeldStep(t *testing.T) {
	rounds := harness.Rounds(t, 5)
	harness.OnNewest(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		for _, step := range holdPoints() {
			t.Run(step.name, func(t *testing.T) {
				t.Parallel()
				_, rng := harness.Seeded(t)
				x := newFaultHeld(t, target)
				rounds := rounds
				if step.silent {
					rounds = max(1, rounds/3) // a sign of life takes a second and a half
				}
				for i := range rounds {
					x.round(fmt.Sprint(i), step, rng)
				}
				t.Logf("%d rounds; in %d of them it was held", rounds, x.held)
				if x.held == 0 && rounds > 1 {
					t.Error("nothing was held")
				}
			})
		}
	})
}

// heldUp is a process that leads, one that follows, and another one.
type heldUp struct {
	*testing.T
	site                  *groupSite
	leads, follows, other *singleflight.Group[string]
	pl, pf                *redistest.Proxy
	held                  int
}

func newFaultHeld(t *testing.T, target redistest.Target) *heldUp {
	s := newFaultSite(t, target.Client(t))
	x := &heldUp{T: t, site: s, pl: redistest.NewProxy(t, target.Addr()), pf: redistest.NewProxy(t, target.Addr())}
	unstored := func(c *singleflight.Config[string]) {
		c.TTLFor = func(_, v string) time.Duration { return time.Duration(-strings.Count(v, "!")) }
	}
	x.leads, x.follows, x.other = s.group(x.pl.Client(), unstored), s.group(x.pf.Client(), unstored), s.group(target.Client(t), unstored)
	for _, g := range []*singleflight.Group[string]{x.leads, x.follows, x.other} {
		warmUp(t, g)
	}
	return x
}

// callLog is what happens to one key: loads, and the calls that met them.
type callLog struct {
	*testing.T
	key  string
	tail string

	mu    sync.Mutex
	loads []callSpan
	all   sync.WaitGroup
	calls []callSpan
}

type callSpan struct {
	name       string
	began, end time.Time
	got        fetchResult
}

// fetch calls Fetch. Its loader takes so long, and returns its number.
func (c *callLog) fetch(name string, g *singleflight.Group[string], span time.Duration) {
	c.all.Go(func() {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		r, err := g.Fetch(ctx, c.key, func(context.Context) (string, error) {
			c.mu.Lock()
			n := len(c.loads)
			c.loads = append(c.loads, callSpan{name: name, began: time.Now()})
			c.mu.Unlock()
			time.Sleep(span)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.loads[n].end = time.Now()
			return fmt.Sprint(n) + c.tail, nil
		})
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls = append(c.calls, callSpan{name, began, time.Now(), fetchResult{r, err, time.Now()}})
	})
}

// check waits for all calls. Those that began after an Invalidate from called to
// done must have a later load's value.
func (c *callLog) check(what string, most int, called, done time.Time) {
	c.all.Wait()
	for _, call := range c.calls {
		if call.got.err != nil {
			c.Errorf("%s: %s got %v", what, call.name, call.got.err)
			continue
		}
		var n int
		if _, err := fmt.Sscan(strings.TrimRight(call.got.Value, ".!"), &n); err != nil || n >= len(c.loads) {
			c.Errorf("%s: %s got %.10q", what, call.name, call.got.Value)
			continue
		}
		if load := c.loads[n]; call.began.After(done) && load.began.Before(called) {
			c.Errorf("%s: %s came %v after the Invalidate and got (%v) a load begun %v before it",
				what, call.name, call.began.Sub(done), call.got.Source, called.Sub(load.began))
		}
		met := 0
		for _, load := range c.loads {
			if load.began.Before(call.end) && (load.end.IsZero() || load.end.After(call.began)) {
				met++
			}
		}
		if met > most {
			c.Errorf("%s: %s met %d loads; want at most %d: %+v", what, call.name, met, most, c.loads)
		}
	}
}

func (x *heldUp) round(key string, step holdPoint, rng *rand.Rand) {
	x.Helper()
	ms := func(most int) time.Duration { return time.Duration(rng.IntN(1000*most)) * time.Microsecond }
	c := &callLog{T: x.T, key: key}
	if rng.IntN(2) == 0 || strings.Contains(step.name, "GET") {
		c.tail = strings.Repeat(".", 6000) // too long to ride on a message
	}
	most := 2
	if rng.IntN(3) == 0 {
		c.tail += "!" // not to be stored
		most = 5      // a reader may be too late for all others' loads; each caller loads at most once
	}
	p := x.pf
	if step.leads {
		p = x.pl
	}
	x.pf.DropMessages(step.silent)
	var fired <-chan struct{}
	var release func()
	if step.hold != nil {
		fault := step.hold(p)
		fired, release = fault.Fired(), fault.Release
	} else {
		gate, met := make(chan struct{}), make(chan struct{})
		var once sync.Once
		p.SetHook(func(ev redistest.Event) redistest.Action {
			if ev.Stage != redistest.OnMessage {
				return redistest.Pass
			}
			once.Do(func() { close(met) })
			return redistest.Hold(gate)
		})
		fired, release = met, func() { p.SetHook(nil); close(gate) }
	}
	load := 20*time.Millisecond + ms(20)
	c.fetch("the leading caller", x.leads, load)
	time.Sleep(3*time.Millisecond + ms(5))
	c.fetch("the following caller", x.follows, load)
	select {
	case <-fired:
		x.held++
	case <-time.After(3 * time.Second):
	}
	time.Sleep(ms(5) * time.Duration(rng.IntN(2)))
	called := time.Now()
	if err := x.other.Invalidate(context.Background(), key); err != nil {
		x.Errorf("invalidate: %v", err)
	}
	done := time.Now()
	c.fetch("a following reader", x.follows, ms(20))
	if rng.IntN(2) == 0 {
		c.fetch("a leading reader", x.leads, ms(20))
	}
	if rng.IntN(2) == 0 {
		c.fetch("another reader", x.other, ms(20))
	}
	time.Sleep(ms(20))
	release()
	c.check(fmt.Sprintf("round %s, %s", key, step.name), most, called, done)
}
