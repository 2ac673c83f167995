package scripts_test

import (
	"math"
	"slices"
	"strings"
)

// head is the first living waiter of a key that the limits admit; ok = false: the call has looked at enough.
func (f *family) head(key string) (t terms, at string, found, ok bool) {
	for f.steps < mostSteps {
		f.steps++
		all := f.line.of(key)
		if len(all) == 0 {
			return terms{}, "", false, true
		}
		at = all[0]
		t = f.judged(memberAt(at))
		switch life := f.alive.scores[t.member] - float64(f.now); {
		case life <= 0:
			f.dequeue(t.member, at)
		case life <= overdueAt:
			f.line.drop(at)
			f.unmark(t.member)
		case t.permits > min(t.limit, t.total):
			f.dequeue(t.member, at)
			f.tell(t, -int64(min(t.limit, t.total)), 0)
		default:
			return t, at, true, true
		}
	}
	f.more = 1
	return terms{}, "", false, false
}

func (f *family) compete(key string) {
	f.ready.scores[key] = max(f.virtual, f.turns.scores[key])
}

func (f *family) stop(key string, tag float64) {
	f.ready.drop(key)
	f.madeReady = f.madeReady || len(f.ready.scores) == 0
	if tag > f.virtual {
		f.turns.scores[key] = tag
	}
}

func (f *family) refresh(key string) {
	tag, competes := f.ready.scores[key]
	t, _, found, ok := f.head(key)
	if !ok {
		return
	}
	switch fits := found && f.use(key)+t.permits <= t.limit; {
	case fits && !competes:
		f.compete(key)
	case competes && !fits:
		f.stop(key, tag)
	}
}

func (f *family) bringBack() {
	if f.broughtBack || f.familyCharge == 0 {
		return
	}
	f.broughtBack = true
	aside := f.turns.between(-forever, -1e-9)
	slices.Reverse(aside)
	for _, name := range aside[:min(8, len(aside))] {
		key := name[1:]
		if key == "" || f.ready.has(key) {
			continue
		}
		if t, _, found, _ := f.head(key); found && f.inUse()+t.permits <= t.total && f.use(key)+t.permits <= t.limit {
			f.compete(key)
		}
	}
}

func (f *family) dropTurns() {
	f.dropServed()
	if f.familyCharge == 0 && (f.virtualWas || f.virtual > 0) {
		f.turns.clear()
		f.virtual, f.virtualWas, f.virtualBefore, f.madeTurns = 0, false, 0, true
	}
}

// dropServed ends the marks of those that the call has granted to.
func (f *family) dropServed() {
	for _, member := range f.served {
		f.alive.drop(member)
		f.unmark(member)
	}
	f.served = nil
}

func (f *family) serve(t terms, at string, tag float64) bool {
	behind := f.line.of(t.key)[1:]
	competing := len(f.ready.scores)
	f.line.drop(at)
	if f.queue.drop(t.member) == 0 {
		return false
	}
	f.harmed = false
	life := int64(f.alive.scores[t.member]) - f.now
	f.served = append(f.served, t.member)
	term := t.ttl
	if t.handle != f.own {
		term = min(term, probation, life-silence)
	}
	f.take(t, term)
	f.tell(t, term, 0)
	finish := tag + float64(t.permits)/t.share
	f.virtual = max(f.virtual, tag, min(f.virtual+float64(t.permits)/(t.share*float64(competing)), finish))
	if len(behind) > 0 {
		if b := f.judged(memberAt(behind[0])); f.use(t.key)+b.permits <= b.limit {
			f.ready.scores[t.key] = finish
			return true
		}
	}
	f.stop(t.key, finish)
	return true
}

func (f *family) findsAllInUse(key string) bool {
	if _, stored := f.limits.fields[""]; stored || f.inUse() < f.callerTotal {
		return f.inUse() >= f.total(f.callerTotal)
	}
	waiting := f.line.of(key)
	return len(waiting) > 0 && f.inUse() >= parseTerms(memberAt(waiting[0])).total
}

func (f *family) advance() {
	f.bringBack()
	for grants := 0; ; {
		if grants >= mostGrants || f.steps >= mostSteps {
			f.more = 1
			return
		}
		all := f.ready.between(-forever, forever)
		if len(all) == 0 {
			f.dropTurns()
			return
		}
		key, tag := all[0], f.ready.scores[all[0]]
		if f.findsAllInUse(key) {
			return
		}
		t, at, found, ok := f.head(key)
		switch {
		case !ok:
			return
		case !found || f.use(key)+t.permits > t.limit:
			f.stop(key, tag)
		case f.inUse()+t.permits <= t.total:
			if f.serve(t, at, tag) {
				grants++
			}
		case !f.passes(t, tag):
			return
		}
	}
}

func (f *family) purge() {
	f.purgePermits()
	f.purgeWaiters()
}

func (f *family) purgePermits() {
	f.compare()
	if len(f.expired) == 0 {
		return
	}
	f.expired = nil
	over := f.held.between(-forever, float64(f.now))
	over = over[:min(len(over), mostPurged)]
	f.held.drop(over...)
	f.places.drop(over...)
	f.refreshAll(over)
}

func (f *family) refreshAll(members []string) {
	done := map[string]bool{}
	for _, m := range members {
		if key, _, _ := strings.Cut(m, ":"); !done[key] {
			done[key] = true
			f.refresh(key)
		}
	}
}

func (f *family) purgeWaiters() {
	if f.virtualWas {
		passed := f.turns.between(0, math.Nextafter(f.virtual, -1))
		f.turns.drop(passed[:min(len(passed), mostPurged)]...)
	}
	if f.familyCharge != 0 {
		old := float64(f.now-forgotten) * 32
		for _, some := range [][]string{f.turns.between(charges+1, old), f.turns.between(-old, -1e-9)} {
			f.turns.drop(some[:min(len(some), mostPurged)]...)
		}
		f.familyCharge = f.turns.scores[":"]
	}
	gone := f.alive.between(-forever, float64(f.now))
	gone = gone[:min(len(gone), mostPurged)]
	var waiters []string
	for _, m := range gone {
		if ticket, ok := f.queue.scores[m]; ok {
			f.line.drop(place(m, ticket))
			waiters = append(waiters, m)
		}
	}
	f.queue.drop(gone...)
	f.alive.drop(gone...)
	for _, m := range gone {
		f.unmark(m)
	}
	f.refreshAll(waiters)
}

// dropDeadOf drops the dead among the first waiters of a key.
func (f *family) dropDeadOf(key string) {
	places := f.line.of(key)
	dropped := false
	for _, at := range places[:min(len(places), mostSteps)] {
		words := strings.SplitN(at, ":", 3)
		if member := key + ":" + words[len(words)-1]; f.alive.scores[member] <= float64(f.now) {
			f.dequeue(member, at)
			dropped = true
		}
	}
	if dropped {
		f.refresh(key)
	}
}

func (f *family) finish() {
	f.dropServed()
	if (len(f.ready.scores) > 0 || f.familyCharge != 0) && f.virtual != f.virtualBefore {
		f.turns.scores[""] = f.virtual
	}
	if f.madeReady {
		f.ready.expire(f.now + aliveFor)
	}
	if f.madeTurns {
		f.turns.expire(f.turnsUntil())
	}
}
