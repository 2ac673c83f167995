package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

// builds checks that no two loads of a key are in flight that both may store: a load counts until it
// returned, its ctx ended, or an Invalidate was called; not at all if that may have been after its lease was
// taken and before it began. Where its process did not run, its ctx may have ended late: it counts until
// then. If all callers of its process gave up, it counts no longer than until the last of them did: then its
// lease is given back before the loader hears of that. A caller that was served a stale value has not given up.
// Loads of a DoMany have one ctx for all and don't count: that lives on when one lease of it is lost.
func (r *Report) builds(h *history.History) {
	joined := flights(h)
	for _, key := range keysOf(h, history.Load) {
		drops, revokes := invalidations(h, key), revocationsOf(h, key)
		var promised, running []edge
		for _, o := range h.Ops {
			if o.Op != history.Load || o.Key != key || o.Many {
				continue
			}
			callers := joined[flight{o.Worker, key, o.For}]
			if callers == nil {
				r.bad("builds", key, "load %s belongs to no read", name(o))
				continue
			}
			from, to := callers.from, min(o.Return, o.Ended-int64(unseen))
			if !callers.served && callers.to < o.Return {
				to = min(to, callers.to-int64(unseen))
			}
			if at, killed := h.Kills[o.Worker]; killed {
				// Nobody knows whether it ran, nor of its renewals.
				to = min(to, at, from+int64(h.Terms.TTL*9/10))
			}
			for _, s := range h.Away[o.Worker] {
				if s.To > o.At && s.From < to {
					to = max(o.At, s.From)
				}
			}
			if to = untouched(drops, from, untouched(revokes, from, to)); to <= o.At {
				continue
			}
			running = append(running, edge{o.At, 1, o}, edge{to, -1, o})
			if to = h.Forgotten(key, from, to); to > o.At {
				promised = append(promised, edge{o.At, 1, o}, edge{to, -1, o})
			}
		}
		most(promised, 1, func(at edge, n int) {
			r.bad("builds", key, "%d loads in flight when %s began at %d", n, name(at.what), at.at)
		})
		if len(h.Losses) > 0 {
			most(running, 1, func(edge, int) { r.Overlaps++ })
		}
	}
}

// unseen is how late a load may see that its ctx has ended, in a process that runs
// and takes no notice of its delay.
const unseen = 50 * time.Millisecond

// flight names the calls of a process that may have shared a load.
type flight struct {
	worker, key string
	read        int
}

// stretch is a time in which a process always had a caller.
type stretch struct {
	from, to int64
	served   bool // one of them got its value, perhaps a stale one while the load went on
}

// flights are for each read the stretch of the calls that overlap each other: there may have been a flight
// that it joined since the first of them was called, and there is none any more when the last one has returned.
func flights(h *history.History) map[flight]*stretch {
	type place struct{ worker, key string }
	open := map[place]*stretch{}
	all := map[flight]*stretch{}
	for _, o := range h.Ops { // by call
		if o.Op != history.Read {
			continue
		}
		for _, key := range o.Keys {
			at := place{o.Worker, key}
			if s := open[at]; s == nil || s.to < o.At {
				open[at] = &stretch{from: o.At}
			}
			open[at].to = max(open[at].to, o.Return)
			open[at].served = open[at].served || o.Succeeded()
			all[flight{o.Worker, key, o.ID}] = open[at]
		}
	}
	return all
}

// untouched is until when between from and to no invalidation, of those given by call, can have run.
func untouched(drops []*history.Operation, from, to int64) int64 {
	i, _ := slices.BinarySearchFunc(drops, from, func(d *history.Operation, at int64) int { return cmp.Compare(d.At, at) })
	if i < len(drops) {
		to = min(to, drops[i].At)
	}
	// One that was called before can still have been running, but not for long.
	for i--; i >= 0 && drops[i].At > from-int64(longest); i-- {
		if drops[i].Return >= from {
			return from
		}
	}
	return to
}

// longest is how long an Invalidate may be in effect after its call: it tries for
// three seconds, and afterlife is added where it failed.
const longest = 6 * time.Second

// afterlife is how long a request whose caller gave up may be under way: no fault holds one back for longer.
const afterlife = 2 * time.Second

// revocationsOf are the calls of Revoke for loads of a key: the next load may begin before
// the process of the one before learns of it.
func revocationsOf(h *history.History, key string) []*history.Operation {
	return mayHappen(h, func(o *history.Operation) bool {
		return o.Op == history.Revoke && o.Key == key && o.Class != history.NoLease
	})
}

func invalidations(h *history.History, key string) []*history.Operation {
	return mayHappen(h, func(o *history.Operation) bool { return o.Op == history.Invalidate && slices.Contains(o.Keys, key) })
}

// mayHappen are some operations, each with an end after which it does not happen any more.
func mayHappen(h *history.History, is func(*history.Operation) bool) (all []*history.Operation) {
	for _, o := range h.Ops {
		if !is(o) {
			continue
		}
		d := *o
		if !d.Succeeded() {
			d.Return = min(d.Return, d.At+3*int64(time.Second)) + int64(afterlife) // it may yet happen
		}
		all = append(all, &d)
	}
	return all
}

// reads checks that no read called after an Invalidate had returned saw what was
// begun to be loaded before that was called.
func (r *Report) reads(h *history.History) {
	loads := map[string]*history.Operation{}
	for _, o := range h.Ops {
		if o.Op == history.Load {
			loads[name(o)] = o
		}
	}
	for _, key := range keysOf(h, history.Read) {
		drops := slices.DeleteFunc(invalidations(h, key), func(d *history.Operation) bool { return !d.Succeeded() })
		slices.SortFunc(drops, func(a, b *history.Operation) int { return cmp.Compare(a.Return, b.Return) })
		var last *history.Operation // to be called, of those that had returned
		i := 0
		for _, o := range h.Ops { // by call
			if o.Op != history.Read || o.Values[key] == "" {
				continue
			}
			for ; i < len(drops) && drops[i].Return < o.At; i++ {
				if last == nil || drops[i].At > last.At {
					last = drops[i]
				}
			}
			l := loads[o.Values[key]]
			switch {
			case l == nil || l.Key != key:
				r.bad("stale read", key, "read %s saw %q, which no load of it gave", name(o), o.Values[key])
			case last == nil || l.At >= last.At:
			case slices.ContainsFunc(h.Losses, func(x history.Loss) bool {
				return x.Revives && x.From <= o.Return && last.At <= x.To
			}):
				r.Overlaps++
			default:
				r.bad("stale read", key, "read %s, called %d ns after Invalidate %s had returned, saw load %s, begun %d ns before that was called",
					name(o), o.At-last.Return, name(last), name(l), last.At-l.At)
			}
		}
	}
}
