package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// Random faults strike a minority of the servers, one after the other, while handles compete. The
// judge sees every holder for as long as its lock claims to be held. LEASEHOLD_QUORUM_FOR is how long
// a run takes, LEASEHOLD_SEED what it does.
func TestRandomFaults(t *testing.T) {
	span := 8 * time.Second
	if text, set := os.LookupEnv("LEASEHOLD_QUORUM_FOR"); set {
		var err error
		if span, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	seed := redistest.Seed(t)
	for size, n := range sizes {
		t.Run(size, func(t *testing.T) {
			newest(t, n, func(f *fleet) { randomFaults(f, rand.New(rand.NewPCG(seed, uint64(n))), span) })
		})
	}
}

func randomFaults(f *fleet, dice *rand.Rand, span time.Duration) {
	const term = 1500 * time.Millisecond
	w := &witness{tb: f, last: map[string]uint64{}}
	first := f.open(ttl(term))
	f.begin(first)
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range 4 {
		m := first
		if i > 0 {
			m = f.open(ttl(term))
		}
		for range 2 {
			seed := dice.Uint64()
			all.Go(func() { w.compete(ctx, m, rand.New(rand.NewPCG(seed, 0)), term) })
		}
	}
	in := &injector{f: f, dice: dice, probe: first}
	for began := time.Now(); time.Since(began) < span && !f.Failed(); {
		in.strike()
	}
	in.mend()
	stop()
	all.Wait()
	f.Logf("%d turns, %d tries without a lock, %d lost; longest wait %v; faults %v", w.turns, w.refused, w.lost, w.longest.Round(time.Millisecond), in.done)
	if w.turns < 20 {
		f.Errorf("only %d turns", w.turns)
	}
}

// A witness sees all turns, of several keys.
type witness struct {
	tb      testing.TB
	mu      sync.Mutex
	last    map[string]uint64 // the highest token of a lock that was returned
	turns   int
	refused int
	lost    int
	longest time.Duration
}

// valid reports whether a lock claims to be held at this moment.
func valid(l *mutex.Lock) bool {
	now := time.Now()
	return now.Before(l.Deadline()) && l.Context().Err() == nil
}

// see is called by a holder, first when it has the lock, and again and again while it holds it.
func (w *witness) see(l *mutex.Lock, isNew bool) (held bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	held = valid(l)
	last := w.last[l.Key()]
	switch {
	case held && l.Token() < last:
		w.tb.Errorf("%s: the lock with token %d claims to be held after one with %d was granted", l.Key(), l.Token(), last)
	case held && isNew && l.Token() == last:
		w.tb.Errorf("%s: token %d twice", l.Key(), last)
	}
	w.last[l.Key()] = max(last, l.Token())
	if isNew {
		w.turns++
	}
	return held
}

func (w *witness) compete(ctx context.Context, m *mutex.Mutex, dice *rand.Rand, term time.Duration) {
	for ctx.Err() == nil {
		key := fmt.Sprintf("k%d", dice.IntN(2))
		var l *mutex.Lock
		var err error
		began := time.Now()
		tries := dice.IntN(4) == 0
		if tries {
			l, err = m.TryLock(context.Background(), key)
		} else {
			bounded, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			l, err = m.Lock(bounded, key)
		}
		took := time.Since(began)
		if err != nil {
			w.mu.Lock()
			w.refused++
			w.mu.Unlock()
			switch {
			case tries && (errors.Is(err, leasehold.ErrBusy) || errors.Is(err, leasehold.ErrUnavailable)):
			default:
				w.tb.Errorf("after %v: %v", took, err)
			}
			time.Sleep(time.Duration(dice.IntN(20)) * time.Millisecond)
			continue
		}
		w.mu.Lock()
		if !tries {
			w.longest = max(w.longest, took)
		}
		w.mu.Unlock()
		hold := time.Duration(dice.IntN(30)) * time.Millisecond
		if dice.IntN(20) == 0 {
			hold = 2 * term // it is renewed
		}
		held := w.see(l, true)
		for until := time.Now().Add(hold); held && time.Now().Before(until); {
			time.Sleep(2 * time.Millisecond)
			held = w.see(l, false)
		}
		if err := l.Unlock(); err != nil {
			w.mu.Lock()
			w.lost++
			w.mu.Unlock()
			if !errors.Is(err, leasehold.ErrLost) && !errors.Is(err, leasehold.ErrUnavailable) {
				w.tb.Error(err)
			}
		}
	}
}

// An injector keeps a minority of servers in trouble. A server that has forgotten its votes is in
// trouble until it votes again.
type injector struct {
	f     *fleet
	dice  *rand.Rand
	probe *mutex.Mutex
	sick  map[int]func()
	done  map[string]int
}

var faults = []string{"kill", "restart empty", "old snapshot", "flush", "hang", "cut", "deaf", "mute", "reset", "lose", "slow", "no messages"}

// strike has one more server fall sick, or one recover.
func (in *injector) strike() {
	if in.sick == nil {
		in.sick, in.done = map[int]func(){}, map[string]int{}
	}
	n := in.f.size()
	i := in.dice.IntN(n)
	if mend := in.sick[i]; mend != nil {
		mend()
		in.recovered(i)
		delete(in.sick, i)
	} else if len(in.sick) < n/2 {
		in.hurt(i, faults[in.dice.IntN(len(faults))])
	}
	time.Sleep(time.Duration(in.dice.IntN(400)) * time.Millisecond)
}

func (in *injector) hurt(i int, what string) {
	s, p := in.f.reals[i], in.f.proxies[i]
	in.done[what]++
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
	}
	in.sick[i] = mend
}

// recovered waits until a server votes again. Locks are taken meanwhile, so that somebody tells it
// what it must know.
func (in *injector) recovered(i int) {
	for deadline := time.Now().Add(20 * time.Second); !in.f.votes(i); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			in.f.Errorf("server %d does not vote again", i)
			return
		}
	}
}

func (in *injector) mend() {
	for i, mend := range in.sick {
		mend()
		in.recovered(i)
	}
}
