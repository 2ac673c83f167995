package scripts_test

import (
	"math"
	"strconv"
)

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

func (f *family) enter(member string, o entering) []int64 {
	own := parseTerms(member)
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
		f.dropDeadOf(t.key)
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
	for _, c := range []*cell{f.queue, f.line, f.ready} {
		c.expire(f.now + aliveFor)
	}
	f.turns.expire(f.turnsUntil())
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
	if changes && fits() {
		f.noteHarm()
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
	t := parseTerms(member)
	f.places.drop(t.memberPermits...)
	given := f.held.drop(t.memberPermits...)
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
	f.bury(member, void)
	f.purgePermits()
	f.refresh(t.key)
	f.advance()
	f.finish()
	return append([]int64{state, f.us, f.more}, f.told...)
}

func (f *family) ask(handle string, callerTotal int, members []string) outcome {
	f.begin(handle, callerTotal)
	f.alive.keep(f.now + aliveFor)
	if len(members) > 0 {
		for _, c := range []*cell{f.queue, f.line, f.ready} {
			c.expire(f.now + aliveFor)
		}
		f.turns.expire(f.turnsUntil())
	}
	var lost []string
	refused := map[string]bool{}
	for _, m := range members {
		if ticket, ok := f.queue.scores[m]; ok {
			lost = append(lost, parseTerms(m).key)
			if t := f.judged(m); t.permits > min(t.limit, t.total) && len(f.limits.fields) > 0 {
				f.dequeue(m, place(m, ticket))
				f.tell(t, -int64(min(t.limit, t.total)), 0)
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
	limits, reasons := map[string]int{}, []string(nil)
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
		} else if reason, revoked := f.marks.fields[listedID(m)]; revoked {
			state, reasons = 3, append(reasons, reason)
		}
		reply = append(reply, state, left, int64(f.use(t.key)), int64(limits[t.key]), int64(len(f.line.of(t.key))))
	}
	return outcome{append(reply, f.told...), reasons}
}

func (f *family) renew(member string, ttl int64) []int64 {
	if left := f.left(member); left > 0 && ttl > left {
		f.places.keep(f.now + ttl)
	}
	return f.base.renew(member, ttl)
}

func (f *family) set(s settingCall, callerTotal int) []int64 {
	f.begin(s.handle, callerTotal)
	if f.us >= s.number+settingArrives || s.number > f.us+settingArrives {
		return []int64{6, f.us, 0}
	}
	last := int64(math.Round(f.alive.scores["="+s.key]*1000)) - settingArrives
	if f.alive.has("="+s.key) && s.number < last && last <= f.us {
		return []int64{7, f.us, 0}
	}
	until := float64(min(s.number, f.us)+settingArrives) / 1000
	f.alive.scores["="+s.key] = until
	f.alive.keep(int64(math.Ceil(until)))
	f.limits.until = immortal
	if s.limit == 0 {
		delete(f.limits.fields, s.key)
	} else {
		f.limits.fields[s.key] = strconv.Itoa(s.limit)
	}
	f.purge()
	if s.key != "" {
		f.refresh(s.key)
	}
	f.advance()
	f.finish()
	return append([]int64{1, f.us, f.more}, f.told...)
}
