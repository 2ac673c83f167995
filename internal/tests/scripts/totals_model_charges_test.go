package scripts_test

import (
	"math"
	"slices"
	"strings"
)

// turnsUntil is until when turns is kept.
func (f *family) turnsUntil() int64 {
	if f.familyCharge != 0 {
		return f.now + chargesKept
	}
	return f.now + aliveFor
}

// charge is what a key, or the family, is charged with at the end of a mark.
func (f *family) charge(score float64, since int64) int64 {
	level := f.now - since
	if score > 0 {
		level += max(0, min(heldUp, int64(score/32)-since))
	}
	return level
}

// asideUntil is until when a key stands aside, or the family rests; 0: it does not.
func (f *family) asideUntil(score float64, longest int64) int64 {
	if till := int64(-score / 32); score < 0 && till > f.now && till <= f.now+longest {
		return till
	}
	return 0
}

// timesAside is how often a key has stood aside.
func (f *family) timesAside(score float64) float64 {
	if n := math.Abs(score); int64(n/32)+forgotten > f.now {
		return math.Mod(n, 32)
	}
	return 0
}

// unmark ends the mark of a request, if it has one.
func (f *family) unmark(member string) {
	mark, ok := f.turns.scores[member]
	if !ok {
		return
	}
	f.turns.drop(member)
	if mark < harms {
		return
	}
	f.harmed = true
	key, _, _ := strings.Cut(member, ":")
	since, score := min(int64(mark-harms), f.now), f.turns.scores[":"+key]
	times := f.timesAside(score)
	if level := f.charge(score, since); level < heldUp {
		score = float64(f.now+level)*32 + times
	} else {
		score = -(float64(f.now+int64(heldUp*min(math.Pow(2, times), mostAside)))*32 + min(times+1, 31))
	}
	f.turns.scores[":"+key] = score
	if level := f.charge(f.familyCharge, since); level < heldUp {
		f.familyCharge = float64(f.now+level) * 32
	} else {
		f.familyCharge = -float64(f.now+heldUp) * 32
	}
	f.turns.scores[":"] = f.familyCharge
	f.madeTurns = true
}

// anotherFits says whether a request that would fit is seen behind the first.
func (f *family) anotherFits() bool {
	all := f.ready.between(-forever, forever)
	from := 1 + int(f.now%int64(max(1, len(all)-lookAhead)))
	for _, key := range all[min(from, len(all)):min(from+lookAhead, len(all))] {
		t, _, found, _ := f.head(key)
		if found && f.inUse()+t.permits <= t.total && f.use(key)+t.permits <= t.limit {
			return true
		}
	}
	return false
}

// noteHarm is called for a request that fits and has to wait.
func (f *family) noteHarm() {
	if marked := f.turns.between(holds, harms-1); len(marked) > 0 {
		f.turns.scores[marked[0]] = harms + float64(f.now)
	}
}

func (f *family) putInFront(key string, tag float64) bool {
	t, _, found, _ := f.head(key)
	if !found || f.use(key)+t.permits > t.limit {
		return false
	}
	f.ready.scores[key] = tag - 1.0/(1<<20)
	f.inFront = true
	return true
}

// letsPass says whether another key goes in front of one that is about to hold the others up.
func (f *family) letsPass(before string, tag float64) bool {
	if f.inFront {
		return false
	}
	if marked := f.turns.between(holds, forever); len(marked) > 0 {
		key, _, _ := strings.Cut(marked[0], ":")
		t, _, found, _ := f.head(key)
		if found && t.member == marked[0] && f.putInFront(key, tag) {
			return true
		}
		f.unmark(marked[0])
	}
	ended := f.turns.between(-float64(f.now*32+31), -float64(f.now-forgotten)*32)
	slices.Reverse(ended)
	for _, name := range ended[:min(4, len(ended))] {
		key := name[1:]
		if key == "" {
			continue
		}
		f.turns.scores[name] *= -1
		if key == before {
			return false
		}
		if f.putInFront(key, tag) {
			return true
		}
	}
	return false
}

// passes says whether a request that does not fit lets others go on.
func (f *family) passes(t terms, tag float64) bool {
	if f.inUse() >= max(t.total, f.total(f.callerTotal)) {
		return false
	}
	mark, marked := f.turns.scores[t.member]
	charge, rest := f.turns.scores[":"+t.key], f.asideUntil(f.familyCharge, heldUp)
	aside := f.asideUntil(charge, heldUp*mostAside)
	switch {
	case (rest > 0 || aside > 0) && marked:
		f.unmark(t.member)
		return f.passes(t, tag)
	case rest > 0 || aside > 0:
		if aside == 0 {
			f.turns.scores[":"+t.key] = -(float64(rest)*32 + f.timesAside(charge))
		}
		f.stop(t.key, tag)
		return true
	case !marked:
		if f.letsPass(t.key, tag) {
			return true
		}
		charge = f.turns.scores[":"+t.key]
		if f.asideUntil(f.familyCharge, heldUp) > 0 || f.asideUntil(charge, heldUp*mostAside) > 0 {
			return f.passes(t, tag)
		}
	}
	since, harm := f.now, mark >= harms
	switch {
	case harm:
		since = min(f.now, int64(mark-harms))
	case f.harmed || f.anotherFits():
		harm = true
	case marked:
		since = min(f.now, int64(mark-holds))
	}
	score := holds + float64(since)
	if harm {
		score = harms + float64(since)
	}
	f.turns.scores[t.member] = score
	if harm && max(f.charge(charge, since), f.charge(f.familyCharge, since)) >= heldUp {
		f.unmark(t.member)
		return f.passes(t, tag)
	}
	return false
}
