package quorum

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// A Run has faults strike a minority of the servers, one after the other.
type Run struct {
	Servers int
	Seed    uint64
	For     time.Duration
	Clocks  bool // the clocks of the servers differ by up to 3 s, and jump
}

// RunTTL is the TTL of the locks of a Run.
const RunTTL = 1500 * time.Millisecond

// Random does a Run on the newest installed version while four handles of one family compete. It needs real servers.
func Random(t *testing.T, r Run, compete func(ctx context.Context, dice *rand.Rand, handles []*mutex.Mutex)) {
	newestWith(t, r.Servers, r.Clocks, func(f *fleet) {
		in := newInjector(f, r)
		for i := range f.clocks {
			f.jump(i, in.dice)
		}
		var handles []*mutex.Mutex
		for range 4 {
			handles = append(handles, f.open(ttl(RunTTL)))
		}
		f.begin(handles[0])
		dice := rand.New(rand.NewPCG(r.Seed, 0))
		in.run(r.For, func(ctx context.Context) { compete(ctx, dice, handles) })
	})
}

// Faults has the faults of a Run strike while compete runs, for whatever library. Each call of clients
// makes a client for each server.
func Faults(t *testing.T, r Run, compete func(ctx context.Context, clients func() []redis.UniversalClient)) {
	newest(t, r.Servers, func(f *fleet) {
		in := newInjector(f, r)
		in.plain = true
		in.run(r.For, func(ctx context.Context) { compete(ctx, f.clients) })
	})
}

// run has faults strike for so long while compete runs, until all servers have recovered.
func (in *injector) run(span time.Duration, compete func(ctx context.Context)) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { compete(ctx) })
	for end := time.Now().Add(span); time.Now().Before(end) && !in.f.Failed(); {
		in.strike()
	}
	in.mend()
	stop()
	all.Wait()
	in.f.Logf("faults: %v", in.done)
}

// An injector keeps a minority of servers in trouble. A server that has forgotten its votes is in
// trouble until it votes again, and one whose clock has jumped for a TTL.
type injector struct {
	f    *fleet
	dice *rand.Rand
	sick map[int]func() // what mends a server
	done map[string]int
	// plain says that the servers have no family of this module, of which one votes again or not.
	plain bool
}

var faults = []string{"kill", "restart empty", "old snapshot", "flush", "hang", "cut", "deaf", "mute", "reset", "lose", "slow", "no messages"}

func newInjector(f *fleet, r Run) *injector {
	return &injector{f: f, dice: rand.New(rand.NewPCG(r.Seed, uint64(r.Servers))), sick: map[int]func(){}, done: map[string]int{}}
}

// strike has one more server fall sick, or one recover.
func (in *injector) strike() {
	n := in.f.size()
	i := in.dice.IntN(n)
	if mend := in.sick[i]; mend != nil {
		in.f.Logf("server %d is mended", i)
		mend()
		in.recovered(i)
		delete(in.sick, i)
	} else if len(in.sick) < n/2 {
		all := faults
		if in.f.clocks != nil {
			all = append(all[:len(all):len(all)], "jump", "jump", "jump", "jump")
		}
		in.hurt(i, all[in.dice.IntN(len(all))])
	}
	time.Sleep(time.Duration(in.dice.IntN(400)) * time.Millisecond)
}

func (in *injector) hurt(i int, what string) {
	s, p := in.f.reals[i], in.f.proxies[i]
	in.done[what]++
	in.f.Logf("server %d: %s", i, what)
	mend := func() {}
	switch what {
	case "kill":
		s.Kill()
		mend = func() { in.f.restartEmpty(i) }
	case "restart empty":
		in.f.restartEmpty(i)
	case "old snapshot":
		_ = in.f.direct(i).Save(context.Background()).Err()
		mend = func() {
			s.Kill()
			s.Restart()
		}
	case "flush":
		_ = in.f.direct(i).FlushAll(context.Background()).Err()
	case "hang":
		s.Pause()
		mend = s.Resume
	case "cut":
		p.Cut(true, true)
		mend = p.Heal
		if in.dice.IntN(2) == 0 {
			mend = p.HealLate
		}
	case "deaf":
		p.Cut(false, true)
		mend = p.Heal
	case "mute":
		p.Cut(true, false)
		mend = p.HealLate
	case "reset":
		p.CloseAll()
	case "lose":
		p.SetHook(func(ev redistest.Event) redistest.Action {
			if ev.Stage == redistest.OnReply && rand.IntN(20) == 0 {
				return redistest.Close
			}
			return redistest.Pass
		})
		mend = func() { p.SetHook(nil) }
	case "slow":
		p.Delay(50*time.Millisecond, 50*time.Millisecond)
		mend = func() { p.Delay(0, 0) }
	case "no messages":
		p.DropMessages(true)
		mend = func() { p.DropMessages(false) }
	case "jump":
		in.f.jump(i, in.dice)
		mend = func() { time.Sleep(RunTTL) } // votes may have ended early
	}
	if in.plain && slices.Contains([]string{"kill", "restart empty", "old snapshot", "flush"}, what) {
		mended := mend
		mend = func() {
			mended()
			time.Sleep(RunTTL) // by then what it forgot is over
		}
	}
	in.sick[i] = mend
}

// recovered waits until a server votes again. Locks are taken meanwhile, so that some handle tells
// it what it must know.
func (in *injector) recovered(i int) {
	if in.plain {
		return
	}
	for deadline := time.Now().Add(20 * time.Second); !in.f.votes(i); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			in.f.Errorf("server %d does not vote again", i)
			return
		}
	}
	in.f.Logf("server %d votes", i)
	if in.f.clocks != nil {
		// A vote of a server whose clock jumps may end at once, so no vote may be missing by then:
		// this one is asked for by the next renewal.
		time.Sleep(RunTTL / 2)
	}
}

// mend has all servers recover.
func (in *injector) mend() {
	for i, mend := range in.sick {
		mend()
		in.recovered(i)
	}
}
