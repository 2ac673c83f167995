package check

import (
	"bytes"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

func TestServed(t *testing.T) {
	s := newStory(t)
	s.moment(history.Event{Kind: history.Healed, At: 100})
	a := s.acquire("w1", 50, 130, 1)
	s.release("w1", a, 140, 141)
	r := s.is()
	redistest.Check(t, r.Delay == 30_000_000, "served after %v", r.Delay)
	s.op("w1", 150, 160, history.Event{Op: history.Lock, Key: "m0", Client: 7, Final: true}, history.Event{Class: history.Unavailable, Text: "no answer"})
	s.is("served")
	s.op("w1", 170, 200, history.Event{Op: history.Read, Keys: []string{"c0"}, Client: 8, Final: true}, history.Event{})
	s.is("served") // that was another client
	s.op("w1", 170, 250, history.Event{Op: history.Lock, Key: "m0", Client: 7, Final: true}, history.Event{Token: 1, Deadline: 900 * ms})
	s.op("w1", 260, 261, history.Event{Op: history.Unlock, Key: "m0", For: s.last, Deadline: 900 * ms}, history.Event{})
	r = s.is()
	redistest.Check(t, r.Delay == 100_000_000, "served after %v", r.Delay)

	s = newStory(t)
	s.moment(history.Event{Kind: history.Healed, At: 100})
	s.op("w1", 50, -1, history.Event{Op: history.Read, Keys: []string{"c0"}}, history.Event{})
	s.is("served")
}

func TestOutcomes(t *testing.T) {
	s := newStory(t)
	s.op("w1", 0, 1, history.Event{Op: history.Lock, Key: "m0"}, history.Event{Class: history.Unavailable})
	s.is()
	s.terms.Quiet = true
	s.is("outcome")

	s = newStory(t)
	s.terms.Quiet = true
	s.moment(history.Event{Kind: history.Stall, Worker: "server", At: 0, Until: 900})
	s.op("w1", 1100, 1101, history.Event{Op: history.Lock, Key: "m0"}, history.Event{Class: history.Unavailable})
	s.is()
	s.op("w1", 1900, 1901, history.Event{Op: history.Lock, Key: "m0"}, history.Event{Class: history.Unavailable})
	s.is("outcome")

	s = newStory(t)
	s.op("w1", 0, 1, history.Event{Op: history.Lock, Key: "m0"}, history.Event{Class: history.Other, Text: "what is that"})
	s.is("outcome")
}

// A model that comes to no end fails the run.
func TestUnknownIsAViolation(t *testing.T) {
	s := newStory(t)
	for i := range int64(20_000) { // so long that the bound is met on the way
		a := s.lock("w1", 10*i, 10*i+5, uint64(i+1))
		s.unlock("w1", a, 10*i+6, 10*i+7)
	}
	h := redistest.Must(history.New(s.terms, s.events))(t)
	r := All(h, 1)
	redistest.Check(t, len(r.Violations) == 1 && r.Violations[0].Rule == "model" && len(r.Failed) == 1, "violations: %v", r.Violations)
}

// What is saved is what is read.
func TestSavedHistoryIsTheSame(t *testing.T) {
	s := newStory(t)
	a := s.lock("w1", 0, 1, 7)
	b := s.lock("w2", 5, 6, 8)
	s.unlock("w1", a, 10, 15)
	s.unlock("w2", b, 20, 21)
	h := redistest.Must(history.New(s.terms, s.events))(t)
	var file bytes.Buffer
	redistest.WantErr(t, h.Write(&file))
	again := redistest.Must(history.ReadFrom(&file))(t)
	s.events = again.Events
	if s.is("model", "cap"); again.Terms != h.Terms {
		t.Errorf("terms %v, not %v", again.Terms, h.Terms)
	}
}
