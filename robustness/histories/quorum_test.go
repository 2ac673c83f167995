package histories

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/quorum"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/robustness/internal/check"
	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

// Locks of several servers while faults strike a minority of them, and clocks jump: no model and no sweep refuses
// what their holders saw, all calls are served, and no lock is lost. LEASEHOLD_QUORUM_FOR is how long it takes.
func TestQuorumHistories(t *testing.T) {
	redistest.NeedServers(t)
	seed := redistest.Seed(t)
	span := redistest.Must(time.ParseDuration(cmp.Or(os.Getenv("LEASEHOLD_QUORUM_FOR"), "15s")))(t)
	for _, n := range []int{3, 5} {
		for name, clocks := range map[string]bool{"": false, " and clocks": true} {
			t.Run(fmt.Sprintf("%d servers%s", n, name), func(t *testing.T) {
				r := &recorder{}
				quorum.Random(t, quorum.Run{Servers: n, Seed: seed, For: span, Clocks: clocks}, r.run)
				h, err := history.New(history.Terms{Seed: seed, Fault: "minorities", Server: redistest.Newest(t).Name, Limit: 1, TTL: quorum.RunTTL}, r.events)
				redistest.WantErr(t, err)
				report := check.All(h, patience)
				t.Logf("%v; %d turns", report, r.turns)
				redistest.AtLeast(t, r.turns, 20, "there were %d turns")
				if len(report.Violations) > 0 || t.Failed() {
					save(t, h, report)
				}
				report.Tell(t)
			})
		}
	}
}

type recorder struct {
	workers []string

	mu      sync.Mutex
	last    int // ID of an operation
	turns   int
	events  []history.Event
	stalled time.Time // when this process last did not run for a while
}

func (r *recorder) run(ctx context.Context, dice *rand.Rand, handles []*mutex.Mutex) {
	var all sync.WaitGroup
	for i, m := range slices.Concat(handles, handles) {
		worker, dice := fmt.Sprintf("%d.%d", i%len(handles), i/len(handles)), rand.New(rand.NewPCG(dice.Uint64(), 0))
		r.workers = append(r.workers, worker)
		all.Go(func() { r.compete(ctx, worker, m, dice) })
	}
	r.watchStalls(ctx)
	all.Wait()
}

func (r *recorder) compete(ctx context.Context, worker string, m *mutex.Mutex, dice *rand.Rand) {
	for ctx.Err() == nil {
		key, tries := fmt.Sprint("k", dice.IntN(2)), dice.IntN(4) == 0
		id := r.call(history.Event{Worker: worker, Op: history.Lock, Key: key})
		l, err := lock(m, key, tries)
		if err != nil {
			var excused []error
			if tries {
				excused = []error{leasehold.ErrBusy, leasehold.ErrUnavailable}
			}
			r.returned(id, history.Event{Worker: worker}, err, excused...)
			time.Sleep(time.Duration(dice.IntN(20)) * time.Millisecond)
			continue
		}
		r.returned(id, history.Event{Worker: worker, Token: l.Token(), Lease: l.ID(), Deadline: history.At(l.Deadline())}, nil)
		hold, ahead := time.Duration(dice.IntN(30))*time.Millisecond, time.Duration(0)
		if dice.IntN(20) == 0 {
			hold = 2 * quorum.RunTTL // it is renewed
		}
		valid := func() bool { return time.Now().Before(l.Deadline()) && l.Context().Err() == nil }
		for until := time.Now().Add(hold); valid() && time.Now().Before(until); time.Sleep(2 * time.Millisecond) {
			ahead = max(ahead, time.Until(l.Deadline()))
		}
		if l.Context().Err() != nil {
			r.note(history.Event{Kind: history.Ended, Worker: worker, ID: id, Deadline: history.At(l.Deadline())})
		}
		end := r.call(history.Event{Worker: worker, Op: history.Unlock, Key: key, For: id, Token: l.Token(), Deadline: history.At(l.Deadline()), Ahead: ahead})
		r.returned(end, history.Event{Worker: worker}, l.Unlock(), r.excuses()...)
	}
}

// lock calls for a lock. A call that waits is to be served.
func lock(m *mutex.Mutex, key string, tries bool) (*mutex.Lock, error) {
	if tries {
		return m.TryLock(context.Background(), key)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	l, err := m.Lock(ctx, key)
	if err != nil {
		cancel()
		return nil, err
	}
	context.AfterFunc(l.Context(), cancel)
	return l, nil
}

// excuses are what an Unlock may say. A lock was lost under faults of a minority only if this process
// stood still.
func (r *recorder) excuses() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.stalled) > 2*quorum.RunTTL {
		return nil
	}
	return []error{leasehold.ErrLost, leasehold.ErrUnavailable}
}

func (r *recorder) call(e history.Event) (id int) {
	r.mu.Lock()
	r.last++
	e.Kind, e.ID = history.Call, r.last
	r.mu.Unlock()
	r.note(e)
	return e.ID
}

// returned notes what a call came to. An error that is not excused fails the run.
func (r *recorder) returned(id int, e history.Event, err error, excused ...error) {
	e.Kind, e.ID = history.Return, id
	if err != nil {
		e.Text, e.Class = err.Error(), history.Other
		if slices.ContainsFunc(excused, func(x error) bool { return errors.Is(err, x) }) {
			e.Class = history.Unavailable
		}
	}
	r.note(e)
}

func (r *recorder) note(e history.Event) {
	if e.At == 0 {
		e.At = history.Now()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	if e.Kind == history.Return && e.Token != 0 {
		r.turns++
	}
}

func (r *recorder) watchStalls(ctx context.Context) {
	for last := time.Now(); ctx.Err() == nil; last = time.Now() {
		time.Sleep(10 * time.Millisecond)
		gap := time.Since(last)
		if gap < 40*time.Millisecond {
			continue
		}
		for _, worker := range r.workers {
			r.note(history.Event{Kind: history.Stall, At: history.At(last), Until: history.Now(), Worker: worker})
		}
		if gap > 160*time.Millisecond { // which excuses a lock that is lost
			r.mu.Lock()
			r.stalled = time.Now()
			r.mu.Unlock()
		}
	}
}
