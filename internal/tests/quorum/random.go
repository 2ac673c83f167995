package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/mutex"
)

// A Run has handles compete while faults strike a minority of the servers, one after the other.
type Run struct {
	Servers int
	Seed    uint64
	For     time.Duration
	Clocks  bool         // the clocks of the servers differ by up to 3 s, and jump
	Saw     func(*Turn)  // is told of each call for a lock once its turn is over; nil: nobody
	Ends    func(*Stats) // is told what the run came to; nil: nobody
}

// RunTTL is the TTL of the locks of a Run.
const RunTTL = 1500 * time.Millisecond

// A Turn is what one call for a lock came to.
type Turn struct {
	Worker    string
	Key       string
	Called    time.Time
	Returned  time.Time
	Err       error
	Token     uint64
	ID        string
	Expires   time.Time     // its deadline when it was granted
	Ahead     time.Duration // how far off its deadline was at most
	Ended     time.Time     // when its Context had ended by itself; zero: it had not
	Last      time.Time     // its deadline then, or when it was given back
	Unlocking time.Time
	Unlocked  time.Time
	UnlockErr error
}

// Stats are what a Run came to.
type Stats struct {
	Turns, Refused    int
	Lost, Unconfirmed int // of the turns, those whose Unlock said ErrLost, and ErrUnavailable
	Longest           time.Duration
	Stalled           time.Duration // the longest time for which this process did not run
	Faults            map[string]int
}

// Random does a Run on the newest installed version. A lock that two hold, a token that does not
// rise, a waiter that is not served and a lock that is lost fail the test. It needs real servers.
func Random(t *testing.T, r Run) {
	newestWith(t, r.Servers, r.Clocks, func(f *fleet) {
		dice := rand.New(rand.NewPCG(r.Seed, uint64(r.Servers)))
		w := &witness{f: f, run: r, last: map[string]uint64{}, began: time.Now()}
		for i := range f.clocks {
			f.jump(i, dice)
		}
		first := f.open(ttl(RunTTL))
		f.begin(first)
		ctx, stop := context.WithCancel(context.Background())
		var all sync.WaitGroup
		all.Go(func() { w.watchStalls(ctx) })
		for i := range 4 {
			m := first
			if i > 0 {
				m = f.open(ttl(RunTTL))
			}
			for j := range 2 {
				seed := dice.Uint64()
				all.Go(func() { w.compete(ctx, fmt.Sprintf("%d.%d", i, j), m, rand.New(rand.NewPCG(seed, 0))) })
			}
		}
		in := newInjector(f, dice, RunTTL, w.tell)
		for told := time.Now(); time.Since(w.began) < r.For && !f.Failed(); {
			if in.strike(); time.Since(told) > time.Minute {
				told = time.Now()
				f.Logf("after %v: %v", time.Since(w.began).Round(time.Second), w.stats())
			}
		}
		in.mend()
		stop()
		all.Wait()
		s := w.stats()
		s.Faults = in.done
		f.Logf("%v; faults %v", s, s.Faults)
		if s.Turns < 20 {
			f.Errorf("only %d turns", s.Turns)
		}
		if r.Ends != nil {
			r.Ends(&s)
		}
	})
}

// Faults has the faults of a Run strike while compete runs, for whatever library. Each call of clients
// makes a client for each server.
func Faults(t *testing.T, r Run, compete func(ctx context.Context, clients func() []redis.UniversalClient)) {
	newest(t, r.Servers, func(f *fleet) {
		in := newInjector(f, rand.New(rand.NewPCG(r.Seed, uint64(r.Servers))), RunTTL, func(string, ...any) {})
		in.plain = true
		ctx, stop := context.WithTimeout(context.Background(), r.For)
		defer stop()
		var all sync.WaitGroup
		all.Go(func() { compete(ctx, f.clients) })
		for ctx.Err() == nil {
			in.strike()
		}
		in.mend()
		all.Wait()
	})
}

func (s Stats) String() string {
	return fmt.Sprintf("%d turns, %d tries without a lock, %d lost, %d unlocks unconfirmed; longest wait %v; longest stall %v",
		s.Turns, s.Refused, s.Lost, s.Unconfirmed, s.Longest.Round(time.Millisecond), s.Stalled.Round(time.Millisecond))
}

// A witness sees all turns, of several keys.
type witness struct {
	f     *fleet
	run   Run
	began time.Time

	mu      sync.Mutex
	last    map[string]uint64 // the highest token of a lock that was returned
	s       Stats
	stalled time.Time // when this process last did not run for a while
	story   []string  // what the injector did lately
}

func (w *witness) stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.s
}

// tell notes what the injector does.
func (w *witness) tell(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.story = append(w.story, fmt.Sprintf("%8.3f ", time.Since(w.began).Seconds())+fmt.Sprintf(format, args...))
	w.story = w.story[max(0, len(w.story)-12):]
}

// hiccup is how long this process may stand still before that excuses a lock that is lost.
const hiccup = 150 * time.Millisecond

func (w *witness) watchStalls(ctx context.Context) {
	for last := time.Now(); ctx.Err() == nil; last = time.Now() {
		time.Sleep(10 * time.Millisecond)
		gap := time.Since(last) - 10*time.Millisecond
		w.mu.Lock()
		if w.s.Stalled = max(w.s.Stalled, gap); gap > hiccup {
			w.stalled = time.Now()
		}
		w.mu.Unlock()
	}
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
		w.f.Errorf("%s: the lock with token %d claims to be held after one with %d was granted", l.Key(), l.Token(), last)
	case held && isNew && l.Token() == last:
		w.f.Errorf("%s: token %d twice", l.Key(), last)
	}
	w.last[l.Key()] = max(last, l.Token())
	if isNew {
		w.s.Turns++
	}
	return held
}

// compete takes locks, holds them for a while, and gives them back.
func (w *witness) compete(ctx context.Context, name string, m *mutex.Mutex, dice *rand.Rand) {
	for ctx.Err() == nil {
		turn := &Turn{Worker: name, Key: fmt.Sprintf("k%d", dice.IntN(2))}
		l := w.take(m, turn, dice.IntN(4) == 0)
		if l == nil {
			time.Sleep(time.Duration(dice.IntN(20)) * time.Millisecond)
		} else {
			hold := time.Duration(dice.IntN(30)) * time.Millisecond
			if dice.IntN(20) == 0 {
				hold = 2 * RunTTL // it is renewed
			}
			w.hold(l, turn, hold)
			w.giveBack(l, turn)
		}
		if w.run.Saw != nil {
			w.run.Saw(turn)
		}
	}
}

// take calls for a lock. It returns nil if there is none.
func (w *witness) take(m *mutex.Mutex, turn *Turn, tries bool) (l *mutex.Lock) {
	turn.Called = time.Now()
	if tries {
		l, turn.Err = m.TryLock(context.Background(), turn.Key)
	} else {
		bounded, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		context.AfterFunc(w.f.Context(), cancel)
		l, turn.Err = m.Lock(bounded, turn.Key)
	}
	turn.Returned = time.Now()
	took := turn.Returned.Sub(turn.Called)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !tries {
		w.s.Longest = max(w.s.Longest, took)
	}
	if turn.Err != nil {
		w.s.Refused++
		if !tries || !errors.Is(turn.Err, leasehold.ErrBusy) && !errors.Is(turn.Err, leasehold.ErrUnavailable) {
			w.complain("after %v: %v", took, turn.Err)
		}
	}
	return l
}

// hold holds a lock, and looks all the time whether it is held.
func (w *witness) hold(l *mutex.Lock, turn *Turn, hold time.Duration) {
	turn.Token, turn.ID, turn.Expires = l.Token(), l.ID(), l.Deadline()
	held := w.see(l, true)
	for until := time.Now().Add(hold); held && time.Now().Before(until); held = w.see(l, false) {
		turn.Ahead = max(turn.Ahead, time.Until(l.Deadline()))
		time.Sleep(2 * time.Millisecond)
	}
	if l.Context().Err() != nil {
		turn.Ended = time.Now()
	}
	turn.Last = l.Deadline()
}

// giveBack unlocks. A lock was lost under faults of a minority only if this process stood still.
func (w *witness) giveBack(l *mutex.Lock, turn *Turn) {
	turn.Unlocking = time.Now()
	turn.UnlockErr = l.Unlock()
	turn.Unlocked = time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch err := turn.UnlockErr; {
	case err == nil:
	case errors.Is(err, leasehold.ErrLost):
		if w.s.Lost++; time.Since(w.stalled) > 2*RunTTL {
			w.complain("held since %v ago, deadline %v ago: %v; its Context: %v", time.Since(turn.Returned), time.Since(turn.Last), err, context.Cause(l.Context()))
		}
	case errors.Is(err, leasehold.ErrUnavailable):
		if w.s.Unconfirmed++; time.Since(w.stalled) > 2*RunTTL {
			w.complain("unlock, after %v: %v", turn.Unlocked.Sub(turn.Unlocking), err)
		}
	default:
		w.complain("unlock: %v", err)
	}
}

// complain fails the test, with what happened lately. Called with the lock.
func (w *witness) complain(format string, args ...any) {
	text := fmt.Sprintf("%.3f s after the begin, ", time.Since(w.began).Seconds()) + fmt.Sprintf(format, args...)
	for _, line := range w.story {
		text += "\n" + line
	}
	w.f.Error(text)
}
