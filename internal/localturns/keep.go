package localturns

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/nested"
	"github.com/leasehold-go/leasehold/internal/protocol"
)

// Kept leases. A visit whose turn has ended may rest: its lease is idle, is renewed, and serves
// the next request of the process for the same key, number of permits and limit. Redis recalls
// what is kept as soon as another request finds no room. docs/keep.md has the promises.
//
// Which leases may rest? The answer must not depend on a clock ("none for a while after a recall"): a lease that was
// granted in the while and let go of after it would rest although somebody waits. Three rules replace it.
//
//   - A lease may rest only if its own enter granted it, and the reply said that no recall's mark
//     stands. So it never rests if it came from the queue, or while others find no room.
//   - A recall counts for each lease whose enter was sent before it arrived. Enters that are sent
//     later ran after the recall, and were judged by its mark.
//   - A recall takes the process out of the register of keepers; an enter or an ask puts it back
//     and says so. So a recall whose message was lost is noticed by the next call, and the process
//     makes one each second. If an enter without an answer has put it back, the answer says who waits,
//     and the next request that finds no room recalls again.
//
// Who else may be at which step: the recall may arrive while a turn runs, then the lease is given back at its end; or
// while an enter is under way, then its lease does not rest; or between the end of a turn and the rest, which are one
// step under the desk's lock. Close may begin at any moment: nothing rests after StopKeeping, and a turn that begins
// from memory looks for Close once it has begun.

const (
	// askAfter is how old the last answer of Redis may be before the process asks again, and
	// silentAfter how old it may be for leases to be kept.
	askAfter    = time.Second
	silentAfter = 2 * time.Second
	// retryAsk is the pause after an ask without an answer.
	retryAsk = 250 * time.Millisecond
	// soonOver is how long before the end of the last lease that rests nobody asks any more.
	soonOver = 100 * time.Millisecond
	// worthwhile is how many turns a lease must have saved for a recall to cause no pause. The
	// pause is minPause at first, and doubles up to maxPause.
	worthwhile = 2
	minPause   = 100 * time.Millisecond
	maxPause   = 3200 * time.Millisecond
)

// kept is what a desk knows of the leases that it keeps. The desk's lock guards it.
type kept struct {
	heard      time.Time // when the last call was sent whose answer said that nobody finds no room
	recalledAt time.Time // leases whose enter was sent before do not rest

	listening bool      // the inbox listens for recalls of the key
	unheard   bool      // a recall may have been missed, and no ask was begun since
	asking    bool      // an ask is under way
	askAgain  time.Time // no ask begins before, because the last one had no answer

	leases      int // that rested since the last recall
	saved       int // turns that they have served from memory since
	pause       time.Duration
	pausedUntil time.Time

	timer  *time.Timer // calls tidy; nil: none is set
	wakeAt time.Time   // when
}

// granted notes how a visit of the line got its lease. The desk is locked.
func (d *desk) granted(v *visit) {
	if d.h.cfg.KeepFor == 0 {
		return
	}
	v.grant = v.lease.Grant()
	if !v.grant.Keepable {
		return
	}
	k := &d.kept
	if v.grant.Added && k.recalledAt.Before(v.grant.Sent) {
		// The process was not registered: there may have been a recall since its last call.
		k.recalledAt = v.grant.Sent.Add(-1)
		d.eachIdle(func(v *visit) bool { return !v.grant.Sent.After(k.recalledAt) })
	}
	if v.grant.Sent.After(k.heard) {
		k.heard = v.grant.Sent
	}
	d.listen()
}

// listen opens the subscription to recalls, if the desk has none. The desk is locked.
func (d *desk) listen() {
	if k := &d.kept; !k.listening {
		k.listening = true
		since := d.h.m.Listen(d.res.FirstKey())
		k.unheard = since.IsZero() || !since.Before(k.heard)
	}
}

// unlisten ends it. The desk is locked.
func (d *desk) unlisten() {
	if d.kept.listening {
		d.kept.listening = false
		d.h.m.Unlisten(d.res.FirstKey())
	}
}

// mayRest reports whether the lease of v may rest, or serve further turns, as far as others are
// concerned. The desk is locked.
func (d *desk) mayRest(v *visit, now time.Time) bool {
	k := &d.kept
	return v.grant.Keepable && v.grant.Sent.After(k.recalledAt) && !v.over && !v.oneTurn &&
		!now.Before(k.pausedUntil) && now.Sub(k.heard) < silentAfter && !d.h.stopped.Load()
}

// rest makes a visit idle whose turn has ended. It returns false if the lease must be given back instead: also if turns
// wait that it cannot serve, because its next token is not due. The desk is locked.
func (ln *line) rest(v *visit) bool {
	if !v.grant.Keepable || ln.length > 0 {
		return false
	}
	now := time.Now()
	if !ln.mayRest(v, now) || !v.lease.Rest(now) {
		return false
	}
	if !v.rested {
		v.rested = true
		ln.kept.leases++
	}
	v.idleSince = now
	ln.idle = append(ln.idle, v)
	if ln.h.shelf.add(v) {
		ln.h.m.Go(ln.h.shelf.trim)
	}
	ln.listen()
	ln.askIfDue(v, now)
	next := now.Add(ln.h.cfg.KeepFor)
	if ask := ln.kept.heard.Add(askAfter); ask.Before(next) && !ln.kept.asking {
		next = ask
	}
	ln.arm(now, next)
	return true
}

// resume begins a turn on a lease that rests; nil: none does. The one that was used last comes
// first, so that those that are not needed rest until they are given back. The desk is locked.
func (ln *line) resume(ctx context.Context, op string) *Turn {
	for n := len(ln.idle); n > 0; n = len(ln.idle) {
		v := ln.idle[n-1]
		ln.idle[n-1] = nil
		ln.idle = ln.idle[:n-1]
		ln.h.shelf.remove(v)
		now := time.Now()
		since := v.idleSince
		v.idleSince = time.Time{}
		if now.Sub(since) >= ln.h.cfg.KeepFor || !ln.mayRest(v, now) || !v.mayServeAgain() || !v.nextTokenIsDue() || !v.lease.Resume(now) {
			ln.giveUp(v)
			continue
		}
		ln.kept.saved++
		ln.askIfDue(v, now)
		t := &Turn{line: ln, op: op, parent: nested.Hold{Calm: nested.Calm{Context: ctx}}}
		t.begin(v, now)
		return t
	}
	return nil
}

// giveUp gives back the lease of a visit that rests no more. The schedule sends the leaves that
// are due together in one pipeline. The desk is locked.
func (ln *line) giveUp(v *visit) {
	ln.drop(v)
	v.lease.GiveBack()
}

// eachIdle gives up the leases that rest and that which chooses. The desk is locked.
func (d *desk) eachIdle(which func(v *visit) bool) {
	for _, ln := range d.lines {
		ln.idle = slices.DeleteFunc(ln.idle, func(v *visit) bool {
			if !which(v) {
				return false
			}
			d.h.shelf.remove(v)
			v.idleSince = time.Time{}
			ln.giveUp(v)
			return true
		})
	}
}

func all(*visit) bool { return true }

// recall gives back what rests. What is in use is given back at the end of its turn. The desk is locked.
func (d *desk) recall() {
	k := &d.kept
	now := time.Now()
	k.recalledAt = now
	if k.leases > 0 {
		// If keeping has not paid, it has only made somebody wait.
		if k.saved < worthwhile*k.leases {
			k.pause = min(max(2*k.pause, minPause), maxPause)
			k.pausedUntil = now.Add(k.pause)
		} else {
			k.pause = 0
		}
		k.leases, k.saved = 0, 0
	}
	d.eachIdle(all)
}

// askIfDue asks Redis, by the lease of v, whether the key was recalled: if the last answer is old, or from before
// recalls were heard. If they are not heard yet, it asks now, and again once they are. The desk is locked.
func (d *desk) askIfDue(v *visit, now time.Time) {
	k := &d.kept
	if k.asking || now.Before(k.askAgain) || !k.unheard && now.Sub(k.heard) < askAfter {
		return
	}
	k.asking, k.unheard = true, false
	d.h.m.Go(func() { d.ask(v) })
}

func (d *desk) ask(v *visit) {
	var use protocol.Use
	err := errGoroutineEnded
	sent := time.Now()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		k := &d.kept
		now := time.Now()
		k.asking = false
		switch {
		case err != nil: // if the lease is gone, its end is told
			k.askAgain, k.unheard = now.Add(retryAsk), true
		case use.Recalled || use.Waiting > 0 || use.InUse > use.Limit:
			d.recall()
		case sent.After(k.heard):
			k.heard = sent
		}
		d.tidy(now)
	}()
	use, err = v.lease.RenewAndCount(true)
}

// arm makes a timer call tidy at the time at, or before. The desk is locked.
func (d *desk) arm(now, at time.Time) {
	k := &d.kept
	if k.timer != nil {
		if !at.Before(k.wakeAt) {
			return
		}
		k.timer.Stop()
	}
	k.wakeAt = at
	var timer *time.Timer
	timer = time.AfterFunc(at.Sub(now), func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.kept.timer == timer { // else an earlier one was set
			d.kept.timer = nil
			d.tidy(time.Now())
		}
	})
	k.timer = timer
}

// tidy gives back what has rested for KeepFor, and everything if Redis is silent. While anything
// rests, it asks when that is due, unless all will be given back soon. The desk is locked.
func (d *desk) tidy(now time.Time) {
	k := &d.kept
	silent := now.Sub(k.heard) >= silentAfter
	next := k.heard.Add(silentAfter)
	var last time.Time
	d.eachIdle(func(v *visit) bool {
		end := v.idleSince.Add(d.h.cfg.KeepFor)
		if silent || !now.Before(end) {
			k.leases = max(0, k.leases-1)
			return true
		}
		if end.Before(next) {
			next = end
		}
		if end.After(last) {
			last = end
		}
		return false
	})
	v := d.anyIdle()
	if v == nil {
		return
	}
	if last.Sub(now) < soonOver {
		d.arm(now, next)
		return
	}
	if d.askIfDue(v, now); !k.asking {
		ask := k.heard.Add(askAfter)
		if k.unheard || ask.Before(k.askAgain) {
			ask = k.askAgain
		}
		if ask.Before(next) {
			next = ask
		}
	}
	d.arm(now, next)
}

func (d *desk) anyIdle() *visit {
	for _, ln := range d.lines {
		if n := len(ln.idle); n > 0 {
			return ln.idle[n-1]
		}
	}
	return nil
}

// Recalled implements [lease.Keeper].
func (h *Handle) Recalled(name string) {
	h.mu.Lock()
	d := h.named[name]
	h.mu.Unlock()
	if d != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.recall()
	}
}

// Listens implements [lease.Keeper].
func (h *Handle) Listens(name string) {
	now := time.Now()
	for _, d := range h.allNamed(name) {
		d.mu.Lock()
		if d.kept.listening {
			d.kept.unheard = true
			if v := d.anyIdle(); v != nil {
				d.askIfDue(v, now)
			}
		}
		d.mu.Unlock()
	}
}

// allNamed returns the desk of a Resource.FirstKey; "": all desks.
func (h *Handle) allNamed(name string) (all []*desk) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if name != "" {
		if d := h.named[name]; d != nil {
			all = append(all, d)
		}
		return all
	}
	return slices.Collect(maps.Values(h.named))
}

// StopKeeping gives back what rests, which Shutdown would wait for. Nothing rests after it. h may be nil.
func (h *Handle) StopKeeping() {
	if h == nil {
		return
	}
	h.stopped.Store(true)
	for _, d := range h.allNamed("") {
		d.mu.Lock()
		d.eachIdle(all)
		d.mu.Unlock()
	}
}
