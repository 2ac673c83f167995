package check

import (
	"fmt"
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

func (s semStep) String() string {
	if s.what == "forget" {
		return "forget all"
	}
	return fmt.Sprintf("%s %s ×%d", s.what, s.lease, s.n)
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
		DescribeOperation: func(input, _ any) string { return input.(semStep).String() },
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
	ops := leaseOps(totalLeases(h))
	if keys := slices.DeleteFunc(keysOf(h, history.Acquire), func(key string) bool { return key[0] != 't' }); len(keys) > 0 {
		ops = append(ops, losses(h, keys[0], semStep{what: "forget"})...)
	}
	return ops
}

func leaseOps(leases []history.Lease) []porcupine.Operation {
	var ops []porcupine.Operation
	for _, l := range leases {
		if l.Orphan {
			continue
		}
		s := semStep{"grant", name(l.Operation), l.Permits}
		ops = append(ops, porcupine.Operation{Input: s, Call: l.At, Return: l.Return})
		s.what = "end"
		ops = append(ops, porcupine.Operation{Input: s, Call: afterGrant(l), Return: max(afterGrant(l), l.Gone)})
	}
	return ops
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
