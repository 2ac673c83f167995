package scripts_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// parts are the keys of a family with a total, as the scripts take them: most of them the first eight.
var parts = []string{"holders", "places", "queue", "line", "alive", "ready", "turns", "limits", "revoked", "audit"}

// The constants of the scripts, which a test compares with their text.
const (
	probation, aliveFor, overdueAt            = 2000, 4500, 2500
	silence                                   = 1600
	mostGrants, mostSteps, mostPurged         = 32, 125, 64
	heldUp, mostAside                         = 1000, 8
	forgotten, chargesKept, lookAhead         = 16_000, 24_000, 8
	charges                           float64 = 1 << 44
	holds                             float64 = 1 << 50
	harms                             float64 = 1 << 51
)

// family is the reference: what the scripts have to do, in plain Go, on plain maps.
// It is compared with them after each call, so it says also what is kept until when.
type family struct {
	base
	places, line, ready, turns, limits                      *cell
	callerTotal                                             int
	more                                                    int64
	steps                                                   int
	expired                                                 []string
	virtual                                                 float64
	virtualWas, madeReady, madeTurns, broughtBack, compared bool
	inFront, harmed                                         bool
	familyCharge                                            float64 // 0: none
	served                                                  []string
	virtualBefore                                           float64
}

func newFamily(c constants) *family {
	f := &family{}
	f.c = c
	turns, alive, ready := sortedSet("turns", false), sortedSet("alive", true), sortedSet("ready", false)
	turns.exact, alive.exact, ready.exact = true, true, true
	f.held, f.places, f.queue, f.line = sortedSet("holders", true), sortedSet("places", false), sortedSet("queue", false), sortedSet("line", false)
	f.alive, f.ready, f.turns, f.revocations = alive, ready, turns, newRevocations()
	f.limits = &cell{name: "limits", fields: map[string]string{}, until: immortal}
	f.cells = []*cell{f.held, f.places, f.queue, f.line, alive, ready, turns, f.limits, f.marks, f.audit}
	return f
}

// times are also those of the charges and marks in turns.
func (f *family) times() []int64 {
	all := f.base.times()
	for _, s := range f.turns.scores {
		switch {
		case s >= harms:
			all = append(all, int64(s-harms)+heldUp)
		case s >= charges && s < holds, s < 0:
			all = append(all, int64(math.Abs(s)/32), int64(math.Abs(s)/32)+forgotten)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// judged is terms with the limits in force.
func (f *family) judged(member string) terms {
	t := parseTerms(member)
	if s, ok := f.limits.fields[t.key]; ok {
		t.limit, _ = strconv.Atoi(s)
	}
	t.total = f.total(t.total)
	return t
}

func (f *family) total(own int) int {
	if s, ok := f.limits.fields[""]; ok {
		own, _ = strconv.Atoi(s)
	}
	return own
}

// begin starts a call of a handle.
func (f *family) begin(handle string, callerTotal int) {
	f.own, f.callerTotal = handle, callerTotal
	f.told, f.more, f.steps, f.expired = nil, 0, 0, nil
	f.broughtBack, f.compared, f.inFront, f.harmed, f.served = false, false, false, false, nil
	f.familyCharge = f.turns.scores[":"]
	f.virtual, f.virtualWas = f.turns.scores[""]
	if !f.virtualWas {
		f.virtual = 0
		if all := f.ready.between(-forever, forever); len(all) > 0 {
			f.virtual = f.ready.scores[all[0]]
		}
	}
	f.madeReady, f.madeTurns = len(f.ready.scores) == 0, !f.virtualWas
	f.virtualBefore = 0
	if f.virtualWas {
		f.virtualBefore = f.virtual
	}
}

// use is a key's permits; those beyond what one call drops still count.
func (f *family) use(key string) int {
	n := len(f.places.of(key))
	for _, m := range f.expired {
		if strings.HasPrefix(m, key+":") {
			n--
		}
	}
	return n
}

// compare mends places where it was lost, and finds what has expired.
func (f *family) compare() {
	if f.compared {
		return
	}
	f.compared = true
	if len(f.held.scores) != len(f.places.scores) {
		f.places.clear()
		for m := range f.held.scores {
			f.places.scores[m] = 0
		}
		f.places.expire(f.held.until)
	}
	over := f.held.between(-forever, float64(f.now))
	if len(over) > mostPurged {
		over, f.more = over[:mostPurged], 1
	}
	f.expired = over
}

func (f *family) take(t terms, term int64) {
	first := f.inUse() == 0
	for _, m := range t.memberPermits {
		f.held.scores[m], f.places.scores[m] = float64(f.now+term), 0
	}
	if first {
		f.held.until, f.places.until = f.now+term, f.now+term
	}
	f.held.keep(f.now + term)
	f.places.keep(f.now + term)
}

func place(member string, ticket float64) string {
	key, rest, _ := strings.Cut(member, ":")
	return fmt.Sprintf("%s:%016.0f:%s", key, ticket, rest)
}

func memberAt(place string) string {
	w := strings.SplitN(place, ":", 3)
	return w[0] + ":" + w[2]
}

func (f *family) dequeue(member, at string) {
	f.queue.drop(member)
	f.line.drop(at)
	f.alive.drop(member)
	f.unmark(member)
}

// revoke takes a lease or a place away.
func (f *family) revoke(member, id, reason string) outcome {
	ticket, waits := f.queue.scores[member]
	remains, t := f.left(member), parseTerms(member)
	f.held.drop(t.memberPermits...)
	f.places.drop(t.memberPermits...)
	f.begin("", f.callerTotal) // nobody's outcomes ride in the reply
	if waits {
		f.dequeue(member, place(member, ticket))
	}
	state := f.takeAway(member, id, reason, leaseOrWaiter(remains), remains > 0 || waits, t.permits, remains)
	if state > 0 {
		f.purge()
		if member != "" {
			f.refresh(t.key)
		}
		f.advance()
		f.finish()
	}
	return ints([]int64{state, f.us, f.more})
}

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
