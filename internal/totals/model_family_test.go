package totals_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// parts are the keys of a family with a total, as the scripts take them: most of them the
// first eight.
var parts = []string{"holders", "places", "queue", "line", "alive", "ready", "turns", "limits", "revoked", "audit"}

// The constants of the scripts, which a test compares with their text.
const (
	probation, aliveFor, overdue              = 2000, 4500, 2500
	silence                                   = 1600
	mostGrants, mostSteps, mostPurged         = 32, 125, 64
	heldUp, mostAside                         = 1000, 8
	holds                             float64 = 1 << 50
)

// family is the reference: what the scripts have to do, in plain Go, on plain maps.
// It is compared with them after each call, so it says also what is kept until when.
type family struct {
	cells                                                   []*cell
	held, places, queue, line, alive, ready, turns, limits  *cell
	marks, audit                                            *cell
	us, now                                                 int64
	sent                                                    []string // messages
	handle                                                  string   // of the caller
	callerTotal                                             int
	told                                                    []int64 // outcomes of the caller's own waiters
	more                                                    int64
	steps                                                   int
	expired                                                 []string
	virtual                                                 float64
	virtualWas, madeReady, madeTurns, broughtBack, compared bool
	virtualBefore                                           float64
}

func newFamily() *family {
	f := &family{}
	f.adopt(newCells())
	return f
}

func (f *family) adopt(c []*cell) {
	f.cells = c
	f.held, f.places, f.queue, f.line, f.alive, f.ready, f.turns, f.limits = c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]
	f.marks, f.audit = c[8], c[9]
}

func (f *family) clone() *family {
	g := *f
	var all []*cell
	for _, c := range f.cells {
		all = append(all, c.clone())
	}
	g.adopt(all)
	return &g
}

// terms are what a request asks for, as its member tells them.
type terms struct {
	key, handle, member   string
	seq, ttl              int64
	permits, limit, total int
	share                 float64
	all                   []string // a member per permit
}

func parse(member string) terms {
	key, rest, _ := strings.Cut(member, ":")
	w := strings.Split(rest, ".")
	number := func(i int) int { n, _ := strconv.Atoi(w[i]); return n }
	t := terms{
		key: key, handle: w[0], member: member, seq: int64(number(1)), permits: number(2), ttl: int64(number(3)),
		limit: number(4), share: float64(number(5)), total: number(6), all: []string{member},
	}
	for i := 2; i <= t.permits; i++ {
		t.all = append(t.all, fmt.Sprintf("%s+%d", member, i))
	}
	return t
}

// judged is terms with the limits in force.
func (f *family) judged(member string) terms {
	t := parse(member)
	if s, ok := f.limits.texts[t.key]; ok {
		t.limit, _ = strconv.Atoi(s)
	}
	t.total = f.total(t.total)
	return t
}

func (f *family) total(own int) int {
	if s, ok := f.limits.texts[""]; ok {
		own, _ = strconv.Atoi(s)
	}
	return own
}

// begin starts a call of a handle.
func (f *family) begin(handle string, callerTotal int) {
	f.handle, f.callerTotal = handle, callerTotal
	f.told, f.more, f.steps, f.expired = nil, 0, 0, nil
	f.broughtBack, f.compared = false, false
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

func (f *family) after() float64 { return float64(f.now) + 1 }

func (f *family) inUse() int { return len(f.held.between(f.after(), forever)) }

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

func (f *family) left(member string) int64 { return max(0, int64(f.held.scores[member])-f.now) }

func (f *family) earliest() int64 {
	if all := f.held.between(f.after(), forever); len(all) > 0 {
		return int64(f.held.scores[all[0]]) - f.now
	}
	return 0
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
	for _, m := range t.all {
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
	f.turns.drop(member)
}

func (f *family) tell(t terms, outcome int64) {
	if t.handle == f.handle {
		f.told = append(f.told, t.seq, outcome, 0)
		return
	}
	f.sent = append(f.sent, fmt.Sprintf("%s: %d %d %d 0", t.handle, t.seq, f.us, outcome))
}

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
	if t.permits > 1 || t.total != f.callerTotal {
		f.turns.drop(t.member)
	}
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

// inTheWay is the remaining ms of the first lease that a request waits for.
func (f *family) inTheWay(t terms) int64 {
	if f.use(t.key)+t.permits > t.limit {
		first, all := int64(0), f.places.of(t.key)
		for _, m := range all {
			if left := f.left(m); left > 0 && (first == 0 || left < first) {
				first = left
			}
		}
		if first > 0 && len(all) <= 64 {
			return first
		}
	}
	return f.earliest()
}

type entering struct {
	void          int64
	wait          bool
	ticket        int64
	max, maxTotal int
}

func (f *family) enter(member string, o entering) []int64 {
	own := parse(member)
	f.begin(own.handle, own.total)
	if o.void > 0 && f.us >= o.void {
		return []int64{6, f.us, 0, 0}
	}
	t := f.judged(member)
	if own.permits == 1 && !f.queue.exists() && !f.line.exists() && !f.alive.exists() {
		n := len(f.held.scores)
		if n < t.total && n == len(f.places.scores) && len(f.places.of(t.key)) < t.limit && !f.held.has(member) {
			if n == 0 {
				f.held.until = 0
			}
			f.quick(t)
			return []int64{1, f.us, t.ttl, 0}
		}
	}
	at, queued := f.queue.scores[member]
	waiting := len(f.line.of(t.key))
	if left := f.left(member); left > 0 {
		return []int64{1, f.us, left, 0}
	}
	if f.alive.has(member) && !queued {
		return []int64{7, f.us, 0, 0}
	}
	answer := func(code int64) []int64 {
		f.finish()
		inTheWay := f.earliest()
		if code != 2 {
			inTheWay = f.inTheWay(t)
		}
		return append([]int64{
			code, f.us, f.earliest(), f.more, int64(f.use(t.key)), int64(t.limit), int64(len(f.line.of(t.key))),
			int64(f.inUse()), int64(t.total), inTheWay, int64(len(f.ready.scores)),
		}, f.told...)
	}
	if t.permits > t.limit || t.permits > t.total {
		if queued {
			f.dequeue(member, place(member, at))
			f.purge()
			f.refresh(t.key)
			f.advance()
		}
		return answer(4)
	}
	fits := func() bool {
		f.compare()
		return f.inUse()+t.permits <= t.total && f.use(t.key)+t.permits <= t.limit
	}
	grant := func() []int64 {
		f.take(t, t.ttl)
		f.purge()
		if len(f.ready.scores) > 0 {
			f.advance()
		}
		f.finish()
		return append([]int64{1, f.us, t.ttl, f.more}, f.told...)
	}
	if !queued && waiting == 0 && len(f.ready.scores) == 0 && fits() {
		return grant()
	}
	if !o.wait {
		if !queued && fits() {
			f.purge()
			f.advance()
			if len(f.ready.scores) == 0 && len(f.line.of(t.key)) == 0 && fits() {
				return grant()
			}
		}
		return answer(3)
	}
	full := func() bool {
		return (o.max > 0 && len(f.line.of(t.key)) >= o.max) || (o.maxTotal > 0 && len(f.queue.scores) >= o.maxTotal)
	}
	if !queued && o.ticket == 0 && full() {
		f.purge()
		f.advance()
		waiting = len(f.line.of(t.key))
		if full() {
			return answer(5)
		}
	}
	changes := waiting == 0 || queued
	if !queued {
		at = float64(o.ticket)
		if at == 0 {
			at = float64(f.us)
			for _, s := range f.queue.scores {
				at = max(at, s+1)
			}
		}
		f.queue.scores[member] = at
	}
	f.line.scores[place(member, at)] = 0
	f.alive.scores[member] = float64(f.now + aliveFor)
	for _, c := range []*cell{f.queue, f.line, f.ready, f.turns} {
		c.expire(f.now + aliveFor)
	}
	f.alive.keep(f.now + aliveFor)
	if changes {
		f.purge()
		f.refresh(t.key)
		f.advance()
	}
	for i := 0; i < len(f.told); i += 3 {
		if f.told[i] == t.seq {
			f.finish()
			reply := []int64{1, f.us, f.told[i+1], f.more}
			return append(append(reply, f.told[:i]...), f.told[i+3:]...)
		}
	}
	return answer(2)
}

// quick is the grant that looks no further.
func (f *family) quick(t terms) {
	for _, c := range []*cell{f.held, f.places} {
		if !c.exists() {
			c.until = 0
		}
	}
	f.held.scores[t.member], f.places.scores[t.member] = float64(f.now+t.ttl), 0
	f.held.keep(f.now + t.ttl)
	f.places.keep(f.now + t.ttl)
}

func (f *family) leave(member string, void int64) []int64 {
	t := parse(member)
	f.places.drop(t.all...)
	given := f.held.drop(t.all...)
	if given > 0 && void == 0 {
		if !f.queue.exists() && !f.line.exists() {
			return []int64{1}
		}
		if !f.ready.exists() && !f.turns.exists() && len(f.line.of(t.key)) == 0 {
			return []int64{1}
		}
	}
	f.begin(t.handle, t.total)
	state := int64(0)
	if given > 0 {
		state = 1
	} else if ticket, ok := f.queue.scores[member]; ok {
		f.dequeue(member, place(member, ticket))
		state = 2
	}
	if void > f.now {
		f.alive.scores[member] = float64(void)
		f.alive.keep(void)
	}
	f.purgePermits()
	f.refresh(t.key)
	f.advance()
	f.finish()
	return append([]int64{state, f.us, f.more}, f.told...)
}

func (f *family) ask(handle string, callerTotal int, members []string) []int64 {
	f.begin(handle, callerTotal)
	if len(members) > 0 {
		for _, c := range []*cell{f.queue, f.line, f.ready, f.turns} {
			c.expire(f.now + aliveFor)
		}
		f.alive.keep(f.now + aliveFor)
	}
	var lost []string
	refused := map[string]bool{}
	for _, m := range members {
		if ticket, ok := f.queue.scores[m]; ok {
			lost = append(lost, parse(m).key)
			if t := f.judged(m); t.permits > min(t.limit, t.total) && len(f.limits.texts) > 0 {
				f.dequeue(m, place(m, ticket))
				f.tell(t, -int64(min(t.limit, t.total)))
				refused[t.key] = true
				continue
			}
			f.alive.scores[m] = float64(f.now + aliveFor)
			f.alive.keep(f.now + aliveFor)
			f.line.scores[place(m, ticket)] = 0
			f.line.expire(f.now + aliveFor)
		}
	}
	f.purge()
	seen, competed := map[string]bool{}, map[string]bool{}
	for key := range f.ready.scores {
		competed[key] = true
	}
	for _, key := range lost {
		if !seen[key] && (!competed[key] || refused[key]) {
			f.refresh(key)
		}
		seen[key] = true
	}
	f.advance()
	f.finish()
	reply := []int64{f.us, f.earliest(), f.more, int64(f.inUse()), int64(f.total(callerTotal)), int64(len(f.ready.scores))}
	limits := map[string]int{}
	for _, m := range members {
		t := f.judged(m)
		if limits[t.key] == 0 {
			limits[t.key] = t.limit
		}
		state, left := int64(0), f.left(m)
		if left > 0 {
			state = 1
		} else if f.queue.has(m) {
			state = 2
		}
		reply = append(reply, state, left, int64(f.use(t.key)), int64(limits[t.key]), int64(len(f.line.of(t.key))))
	}
	return append(reply, f.told...)
}

func (f *family) renew(member string, ttl int64) []int64 {
	t, left := parse(member), f.left(member)
	if left == 0 || ttl <= left {
		return []int64{left}
	}
	f.held.keep(f.now + ttl)
	f.places.keep(f.now + ttl)
	for _, m := range t.all {
		if f.held.has(m) {
			f.held.scores[m] = max(f.held.scores[m], float64(f.now+ttl))
		}
	}
	return []int64{ttl}
}

type setting struct {
	key, handle string
	limit, seq  int
	void        int64
	callerTotal int
	earlier     []int64 // pairs of a sequence number and ms
}

func (f *family) set(s setting) []int64 {
	f.begin(s.handle, s.callerTotal)
	if f.us >= s.void {
		return []int64{6, f.us, 0}
	}
	owner := func(mark string, seq int64) string { return fmt.Sprintf("%s%s.%d", mark, s.handle, seq) }
	if f.alive.has(owner("!", int64(s.seq))) {
		return []int64{7, f.us, 0}
	}
	if !f.alive.has(owner("=", int64(s.seq))) {
		until := (s.void + 999) / 1000
		f.alive.scores[owner("=", int64(s.seq))] = float64(until)
		f.alive.keep(until)
		for i := 0; i < len(s.earlier); i += 2 {
			f.alive.scores[owner("!", s.earlier[i])] = float64(s.earlier[i+1])
			f.alive.keep(s.earlier[i+1])
		}
		if s.limit == 0 {
			delete(f.limits.texts, s.key)
		} else {
			f.limits.texts[s.key] = strconv.Itoa(s.limit)
		}
	}
	f.purge()
	if s.key != "" {
		f.refresh(s.key)
	}
	f.advance()
	f.finish()
	return append([]int64{1, f.us, f.more}, f.told...)
}
