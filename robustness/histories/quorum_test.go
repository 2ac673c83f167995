package histories

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/quorum"
	"github.com/leasehold-go/leasehold/robustness/internal/check"
	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

// Locks of several servers while faults strike a minority of them, and clocks jump: no model and no
// sweep refuses what their holders saw, and all calls are served. LEASEHOLD_QUORUM_FOR is how long it
// takes.
func TestQuorumHistories(t *testing.T) {
	redistest.NeedServers(t)
	seed := redistest.Seed(t)
	span := redistest.Must(time.ParseDuration(setting("LEASEHOLD_QUORUM_FOR", "15s")))(t)
	for _, n := range []int{3, 5} {
		for _, clocks := range []bool{false, true} {
			name := fmt.Sprintf("%d servers", n)
			if clocks {
				name += " and clocks"
			}
			t.Run(name, func(t *testing.T) {
				r := &recorder{began: time.Now(), at: history.Now()}
				done := make(chan struct{})
				go func() { defer close(done); r.watchStalls(t) }()
				var stats quorum.Stats
				t.Cleanup(func() { // after the run, which is parallel
					<-done
					h, err := history.New(history.Terms{Seed: seed, Fault: "minorities", Server: redistest.Newest(t).Name, Limit: 1, TTL: quorum.RunTTL}, r.events)
					redistest.WantErr(t, err)
					report := check.All(h, patience)
					t.Logf("%v; %v", report, stats)
					if len(report.Violations) > 0 || t.Failed() {
						save(t, h, report)
					}
					report.Tell(t)
				})
				quorum.Random(t, quorum.Run{
					Servers: n, Seed: seed, For: span, Clocks: clocks, Saw: r.turn,
					Ends: func(s *quorum.Stats) { stats = *s },
				})
			})
		}
	}
}

// A recorder makes a history of turns.
type recorder struct {
	began time.Time
	at    int64 // the time of histories then

	mu      sync.Mutex
	workers map[string]bool
	last    int // ID of an operation
	events  []history.Event
}

func (r *recorder) moment(t time.Time) int64 { return r.at + int64(t.Sub(r.began)) }

func (r *recorder) turn(x *quorum.Turn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.workers == nil {
		r.workers = map[string]bool{}
	}
	r.workers[x.Worker] = true
	r.last++
	id := r.last
	r.add(history.Event{Kind: history.Call, At: r.moment(x.Called), Worker: x.Worker, ID: id, Op: history.Lock, Key: x.Key})
	got := history.Event{Kind: history.Return, At: r.moment(x.Returned), Worker: x.Worker, ID: id, Token: x.Token, Lease: x.ID}
	if got.Class, got.Text = class(x.Err); x.Err != nil {
		r.add(got)
		return
	}
	got.Deadline = r.moment(x.Expires)
	r.add(got)
	if !x.Ended.IsZero() {
		r.add(history.Event{Kind: history.Ended, At: r.moment(x.Ended), Worker: x.Worker, ID: id, Deadline: r.moment(x.Last)})
	}
	r.last++
	r.add(history.Event{
		Kind: history.Call, At: r.moment(x.Unlocking), Worker: x.Worker, ID: r.last, Op: history.Unlock, Key: x.Key,
		For: id, Token: x.Token, Deadline: r.moment(x.Last), Ahead: x.Ahead,
	})
	end := history.Event{Kind: history.Return, At: r.moment(x.Unlocked), Worker: x.Worker, ID: r.last}
	end.Class, end.Text = class(x.UnlockErr)
	r.add(end)
}

func (r *recorder) add(e history.Event) { r.events = append(r.events, e) }

// watchStalls notes when this process does not run, until the test has ended.
func (r *recorder) watchStalls(t *testing.T) {
	for last := time.Now(); t.Context().Err() == nil; last = time.Now() {
		time.Sleep(10 * time.Millisecond)
		if time.Since(last) < 40*time.Millisecond {
			continue
		}
		r.mu.Lock()
		for worker := range r.workers {
			r.add(history.Event{Kind: history.Stall, At: r.moment(last), Until: r.moment(time.Now()), Worker: worker})
		}
		r.mu.Unlock()
	}
}

func class(err error) (class, text string) {
	if err == nil {
		return history.OK, ""
	}
	class = history.Other
	for _, c := range []struct {
		is    error
		class string
	}{{leasehold.ErrLost, history.Lost}, {leasehold.ErrBusy, history.Busy}, {leasehold.ErrUnavailable, history.Unavailable}} {
		if errors.Is(err, c.is) {
			class = c.class
			break
		}
	}
	return class, err.Error()
}
