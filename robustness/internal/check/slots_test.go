package check

import (
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

// once is a DoOnce of the slot "o0/1" whose function runs for as long, less a ms at each end.
func (s *story) once(worker string, from, to int64, ran bool, class string) {
	id := s.op(worker, from, to, history.Event{Op: history.Once, Key: "o0/1"}, history.Event{Ran: ran, Class: class})
	if ran {
		if class != history.LoadFailed {
			class = history.OK
		}
		s.op(worker, from+1, to-1, history.Event{Op: history.Run, Key: "o0/1", For: id}, history.Event{Class: class})
	}
}

func TestSlots(t *testing.T) {
	s := newStory(t)
	s.once("w1", 0, 10, true, history.LoadFailed)
	s.once("w2", 10, 20, true, history.Lost)
	s.once("w1", 20, 30, true, history.OK)
	s.once("w2", 5, 40, false, history.OK)
	redistest.Expect(t, s.is().Slots, 1, "%d slots were judged")
	s.once("w3", 50, 60, true, history.LoadFailed) // it runs after the completion
	s.is("slot")

	s = newStory(t)
	s.once("w1", 0, 10, true, history.OK)
	s.once("w2", 5, 20, true, history.OK) // two completions
	s.is("slot")

	for class, rule := range map[string]string{history.LoadFailed: "slot", history.Lost: "slot", history.Unavailable: ""} {
		s = newStory(t)
		s.once("w1", 0, 10, true, class)
		s.once("w2", 20, 30, false, history.OK)
		if rule == "" {
			s.is()
		} else {
			s.is(rule) // it is called complete, and is not
		}
	}

	s = newStory(t)
	s.once("w1", 0, 10, true, history.OK)
	s.moment(history.Event{Kind: history.Forget, At: 15, Until: 16})
	s.once("w2", 20, 30, true, history.OK)
	s.is()
}
