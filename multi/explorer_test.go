package multi

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// The explorer walks all orders of the steps of a few calls of Acquire, and of what the servers do
// with them. What a round trip leads to is decided by judge, the real one. How a call uses it is a
// model of acquire.go, and a server is a queue for each item, first come, first served. Each item
// may be on a server of its own: no order of the calls of a pipeline is taken for granted.
//
// In each state: a call that is queued for an item holds none behind it, once it knows that it is
// queued (M1); an item that a call counts as held is held (M2); a call that has ended with an error
// holds nothing (M3). In the end no call is stuck (M4).

const (
	mostItems = 3
	mostCalls = 3
)

type phase uint8

const (
	begins phase = iota // the next round trip
	asks                // a round trip is under way
	queued              // it waits for the first item only
	has                 // all
	failed
	over
)

type outcome uint8

const (
	none outcome = iota
	sent
	granted
	refused
	inQueue
)

type caller struct {
	phase phase
	alone bool
	held  int8               // how many of its items
	out   [mostItems]outcome // of the round trip
	wants [mostItems]bool
}

type item struct {
	holder  int8 // a caller, from 1; 0: nobody
	leaving bool // its leave is under way
	queue   [mostCalls]int8
}

type state struct {
	calls [mostCalls]caller
	items [mostItems]item
	odd   int8 // steps that are out of the ordinary: a wait that ends, a process that dies
}

func (s *state) grant(i int8) {
	it := &s.items[i]
	if c := it.queue[0]; it.holder == 0 && c != 0 {
		it.holder, it.leaving = c, false
		s.leaveQueue(i, c)
		s.calls[c-1].out[i] = granted
	}
}

func (s *state) leaveQueue(i int8, c int8) {
	_ = slices.DeleteFunc(s.items[i].queue[:], func(other int8) bool { return other == c }) // what is behind it moves up
}

// left returns the items that a call does not hold yet, in order.
func (c *caller) left() (all []int8) {
	n := int8(0)
	for i := range int8(mostItems) {
		if c.wants[i] {
			if n++; n > c.held {
				all = append(all, i)
			}
		}
	}
	return all
}

// giveBack begins the leaves of what the call was granted of the items.
func (s *state) giveBack(c int8, items []int8) {
	for _, i := range items {
		if it := &s.items[i]; it.holder == c+1 && s.calls[c].out[i] == granted {
			it.leaving = true
		}
		s.calls[c].out[i] = none
	}
}

// end ends a call, and begins the leaves of all that it holds.
func (s *state) end(c int8, as phase) {
	for i := range s.items {
		if s.items[i].holder == c+1 {
			s.items[i].leaving = true
		}
	}
	s.calls[c] = caller{phase: as, wants: s.calls[c].wants}
}

// steps calls do for each state that may follow.
func (s state) steps(do func(next state, what string)) {
	for i := range int8(mostItems) {
		if s.items[i].leaving {
			next := s
			next.items[i].holder, next.items[i].leaving = 0, false
			next.grant(i)
			do(next, fmt.Sprintf("item %d is free", i))
		}
	}
	for c := range int8(mostCalls) {
		call := &s.calls[c]
		left := call.left()
		next := s
		mine := &next.calls[c]
		name := string(rune('A' + c))
		switch call.phase {
		case begins:
			for n, i := range left {
				if n == 0 || !call.alone {
					mine.out[i] = sent
				}
			}
			mine.phase = asks
			do(next, name+" asks")
		case asks:
			ran := true
			for n, i := range left {
				if call.out[i] != sent {
					continue
				}
				ran = false
				next := s
				it := &next.items[i]
				switch {
				case it.holder == 0 && it.queue[0] == 0:
					it.holder = c + 1
					next.calls[c].out[i] = granted
				case n == 0:
					it.queue[slices.Index(it.queue[:], 0)] = c + 1
					next.calls[c].out[i] = inQueue
				default:
					next.calls[c].out[i] = refused
				}
				do(next, fmt.Sprintf("%s's call for item %d runs", name, i))
			}
			if !ran {
				continue
			}
			if call.out[left[0]] == inQueue {
				next.giveBack(c, left[1:])
				mine.phase = queued
				do(next, name+" learns that it is queued")
				continue
			}
			next.learns(c, left)
			do(next, name+" has its answers")
		case queued:
			if call.out[left[0]] == granted {
				next.learns(c, left[:1])
				do(next, name+" has waited")
			} else if s.odd > 0 {
				next.odd--
				next.leaveQueue(left[0], c+1)
				next.end(c, failed)
				do(next, name+"'s MaxWait is over")
			}
		case has:
			next.end(c, over)
			do(next, name+" releases")
		}
		if s.odd > 0 && call.phase < failed {
			next := s
			next.odd--
			next.end(c, failed)
			for i := range int8(mostItems) {
				next.leaveQueue(i, c+1)
			}
			do(next, name+"'s process dies")
		}
	}
}

// learns is what the call does with the answers for its items.
func (s *state) learns(c int8, items []int8) {
	call := &s.calls[c]
	var errs []error
	for _, i := range items {
		switch call.out[i] {
		case granted:
			errs = append(errs, nil)
		case refused:
			errs = append(errs, leasehold.ErrBusy)
		}
	}
	held, ends := judge(true, errs)
	s.giveBack(c, items[held:])
	call.held += int8(held)
	call.phase, call.alone = begins, held < len(errs)
	switch {
	case ends >= 0:
		s.end(c, failed)
	case len(call.left()) == 0:
		call.phase = has
	}
}

// wrong returns the rule that the state breaks.
func (s *state) wrong() string {
	for c := range int8(mostCalls) {
		call := &s.calls[c]
		name := string(rune('A' + c))
		n := int8(0)
		for i := range int8(mostItems) {
			holds := s.items[i].holder == c+1 && !s.items[i].leaving
			if call.wants[i] {
				n++
			}
			switch {
			case call.phase == queued && holds && i > call.left()[0]:
				return fmt.Sprintf("M1: %s waits for item %d and holds item %d", name, call.left()[0], i)
			case call.wants[i] && n <= call.held && !holds:
				return fmt.Sprintf("M2: %s does not hold item %d", name, i)
			case (call.phase == failed || call.phase == over) && holds:
				return fmt.Sprintf("M3: %s has ended and holds item %d", name, i)
			}
		}
	}
	return ""
}

// explore walks all states that follow from first, the nearest ones before others, and returns
// how many there are.
func explore(first state) (states int, err error) {
	type origin struct {
		from state
		what string
	}
	seen := map[state]origin{first: {}}
	path := func(s state) string {
		var all []string
		for ; s != first; s = seen[s].from {
			all = append(all, seen[s].what)
		}
		slices.Reverse(all)
		return strings.Join(all, "; ")
	}
	for open := []state{first}; len(open) > 0; open = open[1:] {
		s := open[0]
		if what := s.wrong(); what != "" {
			return len(seen), errors.New(what + ", after: " + path(s))
		}
		stuck := true
		s.steps(func(next state, what string) {
			stuck = false
			if _, known := seen[next]; !known {
				seen[next] = origin{s, what}
				open = append(open, next)
			}
		})
		for c := range s.calls {
			if stuck && s.calls[c].phase < failed {
				return len(seen), fmt.Errorf("M4: %c is stuck, after: %s", 'A'+c, path(s))
			}
		}
	}
	return len(seen), nil
}

func TestExplorerOfCalls(t *testing.T) {
	for name, wants := range map[string][mostCalls][mostItems]bool{
		"two calls for three items":   {{true, true, true}, {true, true, true}},
		"three calls for two items":   {{true, true}, {true, true}, {true, true}},
		"pairs in a ring":             {{true, true}, {false, true, true}, {true, false, true}},
		"all, the last, and the pair": {{true, true, true}, {false, false, true}, {false, true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			first := state{odd: 2}
			for c := range first.calls {
				if first.calls[c].wants = wants[c]; wants[c] == [mostItems]bool{} {
					first.calls[c].phase = over
				}
			}
			t.Logf("%d states", redistest.Must(explore(first))(t))
		})
	}
}
