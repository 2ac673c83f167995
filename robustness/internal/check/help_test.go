package check

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

const ms = int64(time.Millisecond)

// story builds a history by hand; its times are ms.
type story struct {
	t      *testing.T
	terms  history.Terms
	events []history.Event
	last   int
}

func newStory(t *testing.T) *story {
	return &story{t: t, terms: history.Terms{Limit: 2, TTL: time.Second}}
}

// op adds a call that returned, and names it. A return before the call: there was
// none.
func (s *story) op(worker string, from, to int64, call, ret history.Event) int {
	s.last++
	call.Kind, call.Worker, call.ID, call.At = history.Call, worker, s.last, from*ms
	s.events = append(s.events, call)
	if to >= from {
		ret.Kind, ret.Worker, ret.ID, ret.At = history.Return, worker, s.last, to*ms
		s.events = append(s.events, ret)
	}
	return s.last
}

// acquire is a permit that was got; its deadline is 900 ms later.
func (s *story) acquire(worker string, from, to int64, permits int) int {
	return s.op(worker, from, to, history.Event{Op: history.Acquire, Key: "s0", Permits: permits}, history.Event{Deadline: (to + 900) * ms})
}

func (s *story) release(worker string, lease int, from, to int64) {
	s.op(worker, from, to, history.Event{Op: history.Release, Key: "s0", For: lease, Deadline: (from + 900) * ms}, history.Event{})
}

func (s *story) lock(worker string, from, to int64, token uint64) int {
	return s.op(worker, from, to, history.Event{Op: history.Lock, Key: "m0"}, history.Event{Token: token, Deadline: (to + 900) * ms})
}

func (s *story) unlock(worker string, lease int, from, to int64) {
	s.op(worker, from, to, history.Event{Op: history.Unlock, Key: "m0", For: lease, Deadline: (from + 900) * ms}, history.Event{})
}

// ended is a lease's Context that ended at that moment, at its deadline or behind
// it.
func (s *story) ended(worker string, lease int, at, deadline int64) {
	s.events = append(s.events, history.Event{Kind: history.Ended, Worker: worker, ID: lease, At: at * ms, Deadline: deadline * ms})
}

func (s *story) write(worker string, from, to int64, token uint64, class string) {
	s.op(worker, from, to, history.Event{Op: history.Write, Key: "m0", Token: token}, history.Event{Class: class})
}

func (s *story) read(worker string, from, to int64, load string) int {
	return s.op(worker, from, to, history.Event{Op: history.Read, Keys: []string{"c0"}}, history.Event{Values: map[string]string{"c0": load}})
}

func (s *story) load(worker string, read int, from, to int64) int {
	return s.op(worker, from, to, history.Event{Op: history.Load, Key: "c0", For: read}, history.Event{})
}

func (s *story) invalidate(worker string, from, to int64, class string) {
	s.op(worker, from, to, history.Event{Op: history.Invalidate, Keys: []string{"c0"}}, history.Event{Class: class})
}

func (s *story) moment(e history.Event) {
	e.At *= ms
	e.Until *= ms
	s.events = append(s.events, e)
}

// is checks that the history breaks just these rules, each at least once.
func (s *story) is(rules ...string) *Report {
	s.t.Helper()
	h, err := history.New(s.terms, s.events)
	if err != nil {
		s.t.Fatal(err)
	}
	r := All(h, time.Minute)
	want, got := map[string]bool{}, map[string]bool{}
	for _, rule := range rules {
		want[rule] = true
	}
	for _, v := range r.Violations {
		got[v.Rule] = true
		if !want[v.Rule] {
			s.t.Errorf("not expected: %s", v)
		}
	}
	for rule := range want {
		if !got[rule] {
			s.t.Errorf("%q is not found to be broken", rule)
		}
	}
	return r
}
