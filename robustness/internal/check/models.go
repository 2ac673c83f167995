package check

import (
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

// semStep is one step of a counted semaphore. A lease is two: its grant, within the call that got it, and its
// end, at any moment from that on at which its client stopped to believe in it. Grants that nobody came to know
// of (calls that failed, clients that were killed) are left out: they could only keep others from being served.
type semStep struct {
	what  string // "grant", "end", "forget"
	lease string
	n     int
}

// The state is the list of leases, one for each permit, sorted.
func semaphoreModel(limit int) porcupine.NondeterministicModel {
	return porcupine.NondeterministicModel{
		Init: func() []any { return []any{""} },
		Step: func(state, input, _ any) []any {
			s := input.(semStep)
			held := strings.Fields(state.(string))
			switch s.what {
			case "grant":
				if len(held)+s.n > limit {
					return nil
				}
				for range s.n {
					held = append(held, s.lease)
				}
				slices.Sort(held)
			case "end": // which the server may have forgotten
				held = slices.DeleteFunc(held, func(l string) bool { return l == s.lease })
			case "forget":
				// Not all of it need be gone, but whatever is left only keeps others from being served.
				held = nil
			}
			return []any{strings.Join(held, " ")}
		},
	}
}

// ofTotal is the name of all keys together of the family with a total.
const ofTotal = "t*"

// totalLeases are the leases of all keys of the family with a total.
func totalLeases(h *history.History) []history.Lease {
	return slices.DeleteFunc(h.Leases(history.Acquire, ""), func(l history.Lease) bool { return l.Key[0] != 't' })
}

// totalOps are those of one semaphore that all keys of the family share. What the
// server forgets of it, it forgets of all of its keys.
func totalOps(h *history.History) []porcupine.Operation {
	ops := leaseOps(totalLeases(h), semaphoreStep)
	if keys := slices.DeleteFunc(keysOf(h, history.Acquire), func(key string) bool { return key[0] != 't' }); len(keys) > 0 {
		ops = append(ops, losses(h, keys[0], semStep{what: "forget"})...)
	}
	return ops
}

// leaseOps are two steps of each lease: its grant and its end.
func leaseOps(leases []history.Lease, step func(what string, l history.Lease) any) []porcupine.Operation {
	var ops []porcupine.Operation
	for _, l := range leases {
		if !l.Orphan {
			ops = append(ops, porcupine.Operation{Input: step("grant", l), Call: l.At, Return: l.Return},
				porcupine.Operation{Input: step("end", l), Call: afterGrant(l), Return: max(afterGrant(l), l.Gone)})
		}
	}
	return ops
}

func semaphoreStep(what string, l history.Lease) any {
	return semStep{what, name(l.Operation), l.Permits}
}

func losses(h *history.History, key string, input any) []porcupine.Operation {
	var ops []porcupine.Operation
	for _, l := range h.Losses {
		if l.Key == "" || l.Key == key {
			ops = append(ops, porcupine.Operation{Input: input, Call: l.From, Return: l.To})
		}
	}
	return ops
}

// afterGrant is when a lease can end at the earliest: intervals are closed, and
// its end must not come before its grant.
func afterGrant(l history.Lease) int64 { return max(l.Until, l.Return+1) }

func name(o *history.Operation) string { return history.Name(o.Worker, o.ID) }

// mutexStep is one step of a mutex and of the guarded value beside it.
type mutexStep struct {
	what  string // "grant", "end", "forget", "write"
	token uint64
	class string // of a write
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
			case "grant":
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
	}
}

func mutexOps(h *history.History, key string) []porcupine.Operation {
	ops := leaseOps(h.Leases(history.Lock, key), func(what string, l history.Lease) any { return mutexStep{what: what, token: l.Token} })
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

// cacheStep is one step of a cached value. Each invalidation begins a generation; what may be read is what
// was begun to be loaded in the present one, at some moment of the reading call.
type cacheStep struct {
	what string // "load", "read", "invalidate", "maybe invalidate", "revive"
	load string
}

type cacheState struct {
	loads   string // begun in this generation
	revived bool   // an older state of the server came back: any value may be there
}

func cacheModel() porcupine.NondeterministicModel {
	return porcupine.NondeterministicModel{
		Init: func() []any { return []any{cacheState{}} },
		Step: func(state, input, _ any) []any {
			was, s := state.(cacheState), input.(cacheStep)
			switch s.what {
			case "load":
				return []any{cacheState{was.loads + s.load + " ", was.revived}}
			case "read":
				if !was.revived && !slices.Contains(strings.Fields(was.loads), s.load) {
					return nil
				}
				return []any{was}
			case "maybe invalidate":
				return []any{was, cacheState{}}
			case "revive":
				return []any{cacheState{was.loads, true}}
			}
			return []any{cacheState{}}
		},
	}
}

func cacheOps(h *history.History, key string) []porcupine.Operation {
	var ops []porcupine.Operation
	read := map[string]bool{}
	for _, o := range h.Ops {
		switch {
		case o.Op == history.Read && o.Values[key] != "":
			ops = append(ops, porcupine.Operation{Input: cacheStep{"read", o.Values[key]}, Call: o.At, Return: o.Return})
			read[o.Values[key]] = true
		case o.Op == history.Invalidate && slices.Contains(o.Keys, key):
			s, till := cacheStep{what: "invalidate"}, o.Return
			if !o.Succeeded() {
				s.what, till = "maybe invalidate", history.Forever
			}
			ops = append(ops, porcupine.Operation{Input: s, Call: o.At, Return: till})
		}
	}
	for _, o := range h.Ops {
		if o.Op == history.Load && o.Key == key && read[name(o)] {
			ops = append(ops, porcupine.Operation{Input: cacheStep{"load", name(o)}, Call: o.At, Return: o.At})
		}
	}
	for _, l := range h.Losses {
		if l.Revives && (l.Key == "" || l.Key == key) {
			ops = append(ops, porcupine.Operation{Input: cacheStep{what: "revive"}, Call: l.From, Return: l.To})
		}
	}
	return ops
}
