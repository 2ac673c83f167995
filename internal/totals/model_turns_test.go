package totals_test

import (
	"math"
	"strings"
)

// head is the first living waiter of a key that the limits admit; ok = false: the
// call has looked at enough.
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
		case life <= overdue:
			f.line.drop(at)
		case t.permits > min(t.limit, t.total):
			f.dequeue(t.member, at)
			f.tell(t, -int64(min(t.limit, t.total)))
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

// asides says whether a request that does not fit stands aside.
func (f *family) asides(t terms, tag float64) bool {
	if f.inUse() >= max(t.total, f.total(f.callerTotal)) {
		return false
	}
	mark, marked := f.turns.scores[t.member]
	times := 0.0
	if marked {
		isHolding := mark > 0
		mark = math.Abs(mark)
		if isHolding {
			mark -= holds
		}
		times = math.Mod(mark, 32)
		remains := int64(mark/32) - f.now
		over := remains <= 0 || remains > heldUp*mostAside
		switch {
		case isHolding && !over:
			return false
		case isHolding:
			till := float64(f.now) + heldUp*min(math.Pow(2, times), mostAside)
			f.turns.scores[t.member] = -(till*32 + min(times+1, 31))
			fallthrough
		case !over:
			f.stop(t.key, tag)
			return true
		}
	}
	f.turns.scores[t.member] = holds + float64(f.now+heldUp)*32 + times
	return false
}

func (f *family) bringBack() (found bool) {
	if f.broughtBack {
		return false
	}
	f.broughtBack = true
	all := f.turns.between(-forever, -1e-9)
	all = all[:min(8, len(all))]
	for _, m := range all {
		if !f.queue.has(m) {
			f.turns.drop(m)
			continue
		}
		t := f.judged(m)
		if f.inUse()+t.permits <= t.total && f.use(t.key)+t.permits <= t.limit && !f.ready.has(t.key) {
			f.compete(t.key)
			found = true
		}
	}
	if len(all) == 0 && (f.virtualWas || f.virtual > 0) {
		f.turns.clear()
		f.virtual, f.virtualWas, f.virtualBefore, f.madeTurns = 0, false, 0, true
	}
	return found
}

func (f *family) serve(t terms, at string, tag float64) bool {
	behind := f.line.of(t.key)[1:]
	competing := len(f.ready.scores)
	f.line.drop(at)
	if f.queue.drop(t.member) == 0 {
		return false
	}
	life := int64(f.alive.scores[t.member]) - f.now
	f.alive.drop(t.member)
	f.turns.drop(t.member)
	term := t.ttl
	if t.handle != f.handle {
		term = min(term, probation, life-silence)
	}
	f.take(t, term)
	f.tell(t, term)
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
	if _, stored := f.limits.texts[""]; stored || f.inUse() < f.callerTotal {
		return f.inUse() >= f.total(f.callerTotal)
	}
	waiting := f.line.of(key)
	return len(waiting) > 0 && f.inUse() >= parse(memberAt(waiting[0])).total
}

func (f *family) advance() {
	for grants := 0; ; {
		if grants >= mostGrants || f.steps >= mostSteps {
			f.more = 1
			return
		}
		all := f.ready.between(-forever, forever)
		if len(all) == 0 {
			if !f.bringBack() {
				return
			}
			continue
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
		case !f.asides(t, tag):
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
	f.turns.drop(gone...)
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
	if len(f.ready.scores) > 0 && f.virtual != f.virtualBefore {
		f.turns.scores[""] = f.virtual
	}
	if f.madeReady {
		f.ready.expire(f.now + aliveFor)
	}
	if f.madeTurns {
		f.turns.expire(f.now + aliveFor)
	}
}
