package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

// edge is where the number of permits believed in changes.
type edge struct {
	at   int64
	n    int
	what *history.Operation
}

// most goes along the edges and calls each time that there are more than limit.
func most(edges []edge, limit int, beyond func(at edge, n int)) {
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.n, b.n)) }) // ends first
	n := 0
	for _, e := range edges {
		if n += e.n; n > limit && e.n > 0 {
			beyond(e, n)
		}
	}
}

// cap checks that no more permits than limit are believed in at any moment. What
// a server may have forgotten counts no longer; it is counted by itself.
func (r *Report) cap(h *history.History, op string, limit int) {
	for _, key := range keysOf(h, op) {
		r.within(h, key, h.Leases(op, key), limit)
	}
}

// total checks the same of all keys together of the family with a total.
func (r *Report) total(h *history.History) {
	if h.Terms.Total > 0 {
		r.within(h, ofTotal, totalLeases(h), h.Terms.Total)
	}
}

func (r *Report) within(h *history.History, key string, leases []history.Lease, limit int) {
	var promised, believed []edge
	for _, l := range leases {
		n := max(l.Permits, 1)
		if l.Until <= l.Return {
			continue
		}
		believed = append(believed, edge{l.Return, n, l.Operation}, edge{l.Until, -n, l.Operation})
		if to := h.Forgotten(l.Key, l.Since, l.Until); to > l.Return {
			promised = append(promised, edge{l.Return, n, l.Operation}, edge{to, -n, l.Operation})
		}
	}
	most(promised, limit, func(at edge, n int) {
		r.bad("cap", key, "%d permits of %d believed in when %s %s returned at %d", n, limit, at.what.Op, name(at.what), at.at)
	})
	if len(h.Losses) > 0 {
		most(believed, limit, func(edge, int) { r.Overlaps++ })
	}
}

// tokens checks that a lock asked for after another one was granted has a higher
// token, and that no two have the same.
func (r *Report) tokens(h *history.History) {
	for _, key := range keysOf(h, history.Lock) {
		locks := slices.DeleteFunc(h.Leases(history.Lock, key), func(l history.Lease) bool { return l.Orphan })
		seen := map[uint64]*history.Operation{}
		before := highest(locks, func(l history.Lease) int64 { return l.Return }, func(l history.Lease) uint64 { return l.Token })
		for _, l := range locks { // by call
			if top := before(l.At); l.Token <= top {
				r.bad("token order", key, "lock %s got %d after %d had been granted", name(l.Operation), l.Token, top)
			}
			if other := seen[l.Token]; other != nil {
				r.bad("token order", key, "%s and %s both got %d", name(other), name(l.Operation), l.Token)
			}
			seen[l.Token] = l.Operation
		}
	}
}

// highest gives, for times that rise, the highest token of all whose moment is before that.
func highest[T any](all []T, moment func(T) int64, token func(T) uint64) func(at int64) uint64 {
	all = slices.SortedFunc(slices.Values(all), func(a, b T) int { return cmp.Compare(moment(a), moment(b)) })
	top := uint64(0)
	return func(at int64) uint64 {
		for ; len(all) > 0 && moment(all[0]) < at; all = all[1:] {
			top = max(top, token(all[0]))
		}
		return top
	}
}

// writes checks that the guard accepted no write after one with a newer token.
func (r *Report) writes(h *history.History) {
	for _, key := range keysOf(h, history.Write) {
		writes := slices.DeleteFunc(slices.Clone(h.Ops), func(o *history.Operation) bool { return o.Op != history.Write || o.Key != key })
		accepted := slices.DeleteFunc(slices.Clone(writes), func(o *history.Operation) bool { return !o.Succeeded() })
		token := func(o *history.Operation) uint64 { return o.Event.Token }
		before := highest(accepted, func(o *history.Operation) int64 { return o.Return }, token)
		for _, o := range writes {
			if o.Class == history.Fenced {
				r.Refused++
			}
			if !o.Succeeded() {
				continue
			}
			r.Accepted++
			if top := before(o.At); token(o) < top {
				r.Stale++
				r.bad("stale write", key, "write %s with %d was accepted after one with %d", name(o), token(o), top)
			}
		}
	}
}

// belief checks that clients believe in leases no longer than they may: to a
// margin before the TTL counted from the call, by what the lease itself says,
// and by when its Context ended. A process that did not run can't be told.
func (r *Report) belief(h *history.History) {
	margin := max(10*time.Millisecond, h.Terms.TTL/50)
	for _, op := range []string{history.Acquire, history.Lock} {
		for _, l := range h.Leases(op, "") {
			if beyond := l.Ahead - (h.Terms.TTL - margin); beyond > 0 {
				r.bad("deadline", l.Key, "%s %s: the deadline lay %v beyond the TTL less the margin", op, name(l.Operation), beyond)
			}
			r.told(h, op, l)
			if l.Late == 0 {
				continue
			}
			away := h.AwayFor(l.Worker, l.Until-int64(time.Second), l.Until+l.Late)
			if l.Late > away+int64(lateness) {
				r.bad("belief", l.Key, "%s %s was believed in for %v beyond its deadline, and its process was away for %v",
					op, name(l.Operation), time.Duration(l.Late), time.Duration(away))
			}
			r.Late = max(r.Late, time.Duration(l.Late))
		}
	}
}

// told checks that nobody believes for another TTL in a lease that is gone: no renewal can have succeeded since.
func (r *Report) told(h *history.History, op string, l history.Lease) {
	for _, x := range h.Losses {
		gone := (x.Key == "" || x.Key == l.Key) && !x.Revives && l.Return < x.From
		if beyond := l.Believed - x.To - int64(h.Terms.TTL); gone && beyond > 0 {
			r.bad("told", l.Key, "%s %s was believed in for %v more than a TTL after it was gone", op, name(l.Operation), time.Duration(beyond))
			return
		}
	}
}

// lateness is what a busy machine may add to a timer of a process that runs.
const lateness = 100 * time.Millisecond

// served finds the longest wait once the last fault was over, and the calls that were not served at all: a call
// that did not return, a client of the last round all of whose tries failed.
func (r *Report) served(h *history.History) {
	if h.Healed == 0 {
		return
	}
	type client struct {
		worker string
		number int
	}
	since := map[client]int64{}               // its first try in the last round
	failed := map[client]*history.Operation{} // its last one, until one succeeds
	for _, o := range h.Ops {                 // by call
		switch o.Op {
		case history.Acquire, history.Lock, history.Read, history.Invalidate:
		default:
			continue
		}
		if _, killed := h.Kills[o.Worker]; killed {
			continue
		}
		c, asked := client{o.Worker, o.Client}, o.At
		if o.Final {
			if first, again := since[c]; again {
				asked = first
			}
			since[c], failed[c] = asked, o
		}
		switch {
		case o.Return == history.Forever:
			r.bad("served", o.Key, "%s %s did not return", o.Op, name(o))
			delete(failed, c)
		case o.Succeeded():
			if o.Return > h.Healed {
				r.Delay = max(r.Delay, time.Duration(o.Return-max(asked, h.Healed)))
			}
			delete(failed, c)
		}
	}
	for _, o := range failed {
		r.bad("served", o.Key, "%s %s failed after all faults were over: %s", o.Op, name(o), o.Text)
	}
}

// settled is how soon calls succeed once the machine runs again: a process that has found the server
// out of reach says so at once, until one that it sends to try has an answer.
const settled = time.Second

// outcomes checks that no call failed in a way that nobody expects, and that none says that it gave back what
// was gone before.
func (r *Report) outcomes(h *history.History) {
	calls, revoked := map[string]*history.Operation{}, h.Revocations()
	for _, o := range h.Ops { // by call
		calls[name(o)] = o
		of := o // what got the lease that o ends, or o itself
		if got := calls[history.Name(o.Worker, o.For)]; got != nil {
			of = got
		}
		quiet := h.Terms.Quiet && !h.StoodStill(of.At-int64(settled), o.Return, 100*time.Millisecond)
		switch {
		case o.Class == history.Other, o.Class == history.Released:
			r.bad("outcome", o.Key, "%s %s: %s", o.Op, name(o), o.Text)
		case o.Op == history.Close && o.Return != history.Forever && o.Class != history.OK:
			r.bad("outcome", o.Key, "close: %s", o.Text)
		case quiet && (o.Class == history.Unavailable || o.Class == history.Lost):
			r.bad("outcome", o.Key, "%s %s: %s", o.Op, name(o), o.Text)
		case o.Op == history.Release && o.Key[0] == 't' && o.Succeeded(): // several turns may be on one lease of another kind
			by := revoked[of.Lease]
			gone := by != nil && by.Succeeded() && by.Return < o.At && len(h.Losses) == 0
			if o.Return < min(o.Deadline, o.At+int64(lateness)) { // else it may have been sent twice, or have expired
				gone = gone || slices.ContainsFunc(h.Losses, func(x history.Loss) bool { return x.Key == o.Key && of.Return < x.From && x.To < o.At })
			}
			if gone {
				r.bad("outcome", o.Key, "%s %s gave back what was gone", o.Op, name(o))
			}
		}
	}
}

// slots checks that a slot of DoOnce is completed once, that nothing runs after that, and that it is called
// complete only after a run that succeeded. Slots that the server may have forgotten are left out.
func (r *Report) slots(h *history.History) {
	for _, key := range keysOf(h, history.Once) {
		var calls, runs []*history.Operation
		of := map[string]*history.Operation{} // by name
		for _, o := range h.Ops {
			switch {
			case o.Key != key:
			case o.Op == history.Once:
				calls = append(calls, o)
				of[name(o)] = o
			case o.Op == history.Run:
				runs = append(runs, o)
			}
		}
		if len(calls) == 0 || h.Forgotten(key, calls[0].At, history.Forever) < history.Forever {
			continue
		}
		r.Slots++
		var complete *history.Operation // the first that said so
		for _, o := range calls {
			if !o.Succeeded() {
				continue
			}
			if complete == nil || o.Return < complete.Return {
				complete = o
			}
			for _, other := range calls {
				if o.Ran && other.Ran && other.Succeeded() && other.At > o.At {
					r.bad("slot", key, "%s and %s both completed it", name(o), name(other))
				}
			}
		}
		if complete == nil {
			continue
		}
		may := false // somebody may have completed it before that
		for _, run := range runs {
			if run.At > complete.Return {
				r.bad("slot", key, "%s began after %s had said that it is complete", name(run), name(complete))
			}
			call := of[history.Name(run.Worker, run.For)]
			may = may || run.Succeeded() && run.Return < complete.Return && (call.Return == history.Forever || call.Class == history.OK || call.Class == history.Unavailable)
		}
		if !may {
			r.bad("slot", key, "%s says that it is complete, and no run has succeeded", name(complete))
		}
	}
}
