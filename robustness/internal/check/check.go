// Package check judges histories: by a porcupine model of each primitive, and by
// sweeps along the time, which take histories of any length.
package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

type Violation struct {
	Rule string // "model", "cap", "token order", …
	Key  string
	Text string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s: %s", v.Rule, v.Key, v.Text) }

type Report struct {
	Histories  int // one a key
	Short      int // of these, those of fewer than Enough operations
	Operations int
	Violations []Violation

	Overlaps int // beliefs beyond the limit, or stale reads, where it is not promised
	Accepted int // guarded writes
	Refused  int
	Listings int           // judged
	Slots    int           // of DoOnce that the server cannot have forgotten
	Revoked  int           // leases and waiters
	Stale    int           // accepted though a newer token had been
	Late     time.Duration // longest belief beyond the deadline, by processes that did not run
	Delay    time.Duration // longest wait to be served after the last fault was over

	Failed []Drawing // what the models refused
}

func (r *Report) Add(x *Report) {
	for to, n := range map[*int]int{
		&r.Histories: x.Histories, &r.Short: x.Short, &r.Operations: x.Operations, &r.Overlaps: x.Overlaps, &r.Accepted: x.Accepted,
		&r.Refused: x.Refused, &r.Listings: x.Listings, &r.Slots: x.Slots, &r.Revoked: x.Revoked, &r.Stale: x.Stale,
	} {
		*to += n
	}
	r.Violations = append(r.Violations, x.Violations...)
	r.Late, r.Delay = max(r.Late, x.Late), max(r.Delay, x.Delay)
}

func (r *Report) String() string {
	return fmt.Sprintf("%d histories (%d of them short), %d operations, %d violations, %d overlaps where exclusion is not promised, "+
		"%d guarded writes accepted (%d of them stale) and %d refused, %d listings, %d slots, %d revoked; told late by %v at most, served after %v at most",
		r.Histories, r.Short, r.Operations, len(r.Violations), r.Overlaps, r.Accepted, r.Stale, r.Refused, r.Listings, r.Slots, r.Revoked,
		r.Late.Round(time.Millisecond), r.Delay.Round(time.Millisecond))
}

// Enough is how many operations make a history that counts.
const Enough = 200

// Drawing shows why a model refuses a history.
type Drawing struct {
	Key   string
	model porcupine.Model
	info  porcupine.LinearizationInfo
}

func (d Drawing) Save(path string) error { return porcupine.VisualizePath(d.model, d.info, path) }

// Tell fails the test with what must not be.
func (r *Report) Tell(t *testing.T) {
	t.Helper()
	for _, v := range r.Violations[:min(20, len(r.Violations))] {
		t.Error(v)
	}
	redistest.Check(t, len(r.Violations) <= 20, "%d violations in all", len(r.Violations))
}

func (r *Report) bad(rule, key, format string, args ...any) {
	r.Violations = append(r.Violations, Violation{rule, key, fmt.Sprintf(format, args...)})
}

// All applies every check to a history. A model that has come to no end after patience is a violation, too.
func All(h *history.History, patience time.Duration) *Report {
	r := &Report{}
	for _, key := range keysOf(h, history.Acquire) {
		r.model(key, semaphoreModel(h.Terms.Limit), append(leaseOps(h.Leases(history.Acquire, key), semaphoreStep), losses(h, key, semStep{what: "forget"})...), patience)
	}
	if h.Terms.Total > 0 {
		r.model(ofTotal, semaphoreModel(h.Terms.Total), totalOps(h), patience)
	}
	for _, key := range keysOf(h, history.Lock) {
		r.model(key, mutexModel(), mutexOps(h, key), patience)
	}
	for _, key := range keysOf(h, history.Read) {
		r.model(key, cacheModel(), cacheOps(h, key), patience)
	}
	r.sweep(h)
	return r
}

// Sweep applies only the sweeps, for histories of any length.
func Sweep(h *history.History) *Report {
	r := &Report{Operations: len(h.Ops)}
	r.sweep(h)
	return r
}

func (r *Report) sweep(h *history.History) {
	r.cap(h, history.Acquire, h.Terms.Limit)
	r.total(h)
	r.cap(h, history.Lock, 1)
	r.tokens(h)
	r.writes(h)
	r.builds(h)
	r.reads(h)
	r.belief(h)
	r.served(h)
	r.outcomes(h)
	r.revocations(h)
	r.slots(h)
}

func (r *Report) model(key string, m porcupine.NondeterministicModel, ops []porcupine.Operation, patience time.Duration) {
	r.Histories++
	r.Operations += len(ops)
	if len(ops) < Enough {
		r.Short++
	}
	lanes(ops)
	model := m.ToModel()
	if porcupine.CheckOperationsTimeout(model, ops, patience) == porcupine.Ok {
		return
	}
	// Once more, for what can be shown of it.
	result, info := porcupine.CheckOperationsVerbose(model, ops, patience)
	switch result {
	case porcupine.Ok:
		return
	case porcupine.Unknown:
		r.bad("model", key, "not known after %v whether %d operations fit", patience, len(ops))
	default:
		r.bad("model", key, "%d operations do not fit", len(ops))
	}
	r.Failed = append(r.Failed, Drawing{key, model, info})
}

// lanes gives operations that overlap different clients, for the drawings.
func lanes(ops []porcupine.Operation) {
	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var until []int64
	for i := range ops {
		lane := slices.IndexFunc(until, func(t int64) bool { return t < ops[i].Call })
		if lane < 0 {
			lane, until = len(until), append(until, 0)
		}
		ops[i].ClientId, until[lane] = lane, ops[i].Return
	}
}

// keysOf are the keys on which there is an operation of that kind, sorted.
func keysOf(h *history.History, op string) []string {
	seen := map[string]bool{}
	for _, o := range h.Ops {
		if o.Op != op {
			continue
		}
		for _, key := range o.Keys {
			seen[key] = true
		}
		if o.Key != "" {
			seen[o.Key] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}
