package check

import (
	"fmt"

	"github.com/anishathalye/porcupine"

	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

// mutexStep is one step of a mutex and of the guarded value beside it.
type mutexStep struct {
	what  string // "lock", "end", "forget", "write"
	token uint64
	class string // of a write
}

func (s mutexStep) String() string {
	switch {
	case s.what == "forget":
		return "forget the holder"
	case s.what == "write" && s.class != history.OK:
		return fmt.Sprintf("write %d: %s", s.token, s.class)
	}
	return fmt.Sprintf("%s %d", s.what, s.token)
}

type mutexState struct {
	holder uint64 // 0 = nobody
	last   uint64 // token issued
	seen   uint64 // by the guard
}

func mutexModel() porcupine.NondeterministicModel {
	return porcupine.NondeterministicModel{
		Init: func() []any { return []any{mutexState{}} },
		Step: func(state, input, _ any) []any {
			was, s := state.(mutexState), input.(mutexStep)
			next := was
			switch s.what {
			case "lock":
				if was.holder != 0 || s.token <= was.last {
					return nil
				}
				next.holder, next.last = s.token, s.token
			case "end":
				if was.holder == s.token {
					next.holder = 0
				}
			case "forget":
				next.holder = 0
			case "write":
				next.seen = s.token
				stale := s.token < was.seen
				switch s.class {
				case history.OK:
					if stale {
						return nil
					}
				case history.Fenced:
					if !stale {
						return nil
					}
					return []any{was}
				default: // it may have been written, or may be yet, or not
					if stale {
						return []any{was}
					}
					return []any{was, next}
				}
			}
			return []any{next}
		},
		DescribeOperation: func(input, _ any) string { return input.(mutexStep).String() },
		DescribeState: func(state any) string {
			s := state.(mutexState)
			return fmt.Sprintf("holder %d, last %d, seen %d", s.holder, s.last, s.seen)
		},
	}
}

func mutexOps(h *history.History, key string) []porcupine.Operation {
	var ops []porcupine.Operation
	for _, l := range h.Leases(history.Lock, key) {
		if l.Orphan {
			continue
		}
		s := mutexStep{what: "lock", token: l.Token}
		ops = append(ops, porcupine.Operation{Input: s, Call: l.At, Return: l.Return})
		s.what = "end"
		ops = append(ops, porcupine.Operation{Input: s, Call: afterGrant(l), Return: max(afterGrant(l), l.Gone)})
	}
	for _, o := range h.Ops {
		if o.Op != history.Write || o.Key != key {
			continue
		}
		s := mutexStep{what: "write", token: o.Event.Token, class: o.Class}
		till := o.Return
		if o.Class != history.OK && o.Class != history.Fenced {
			till = history.Forever
		}
		if till == history.Forever {
			s.class = history.Other
		}
		ops = append(ops, porcupine.Operation{Input: s, Call: o.At, Return: till})
	}
	return append(ops, losses(h, key, mutexStep{what: "forget"})...)
}
