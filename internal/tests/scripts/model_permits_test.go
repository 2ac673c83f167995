package scripts_test

import (
	"strconv"

	"github.com/leasehold-go/leasehold/internal/protocol"
)

// permits is the reference of permits: who holds, who waits, and who gave up.
type permitsModel struct {
	noted, notedUntil int64 // the number of the last setting (µs), and the score (ms) that it got in alive
	base
	fenced  bool
	word    *cell // the last token, or the stored limit
	done    *cell // says that the slot is complete
	keepers *cell // the handles that may keep leases
}

func newPermitsModel(fenced bool, c constants) *permitsModel {
	word := "limit"
	if fenced {
		word = "fence"
	}
	p := &permitsModel{fenced: fenced}
	p.c = c
	p.held, p.queue, p.alive, p.word = sortedSet("holders", true), sortedSet("queue", false), sortedSet("alive", true), &cell{name: word}
	p.done, p.keepers, p.revocations = &cell{name: "done:slot"}, sortedSet("keepers", true), newRevocations()
	p.cells = []*cell{p.held, p.queue, p.alive, p.word, p.marks, p.audit, p.done, p.keepers}
	return p
}

// limit is the stored one where there is one, else the request's own.
func (p *permitsModel) limit(t terms) int {
	if !p.fenced && p.word.set {
		n, _ := strconv.Atoi(p.word.text)
		return n
	}
	return t.limit
}

// issue makes a token, higher than the last and no lower than the clock.
func (p *permitsModel) issue() int64 {
	last, _ := strconv.ParseInt(p.word.text, 10, 64)
	token := max(last+1, p.us)
	p.put(p.word, strconv.FormatInt(token, 10), p.c.fence)
	return token
}

// token is the one of the lease that is held.
func (p *permitsModel) token() int64 {
	if !p.fenced {
		return 0
	}
	if !p.word.set {
		return p.issue()
	}
	n, _ := strconv.ParseInt(p.word.text, 10, 64)
	return n
}

func (p *permitsModel) grant(t terms, term int64) (token int64) {
	if p.fenced {
		token = p.issue()
	}
	if p.inUse() == 0 {
		p.held.until = p.now + term // whatever else it holds is over
	}
	for _, m := range t.memberPermits {
		p.held.put(m, p.now+term)
	}
	p.held.keep(p.now + term)
	return token
}

// tidy forgets the dead and hands on what is free.
func (p *permitsModel) tidy() {
	p.held.drop(p.held.order(-forever, p.now)...)
	p.forget()
	p.advance()
}

// advance hands on what is free, in order.
func (p *permitsModel) advance() {
	for looked := int64(0); ; {
		heads := p.queue.order(-forever, forever)
		if len(heads) == 0 {
			return
		}
		m := heads[0]
		t := parseTerms(m)
		limit, life := p.limit(t), p.alive.at(m)-p.now
		switch {
		case life <= p.c.overdue: // it may be dead: it keeps its ticket, no more
			count := p.c.few
			if looked > 0 {
				count = p.c.batch - p.c.few
			}
			if looked == p.c.batch {
				p.told = append(p.told, 0, 0, 0) // another call may do more
				return
			}
			if p.queue.at(m) >= p.c.parked {
				return
			}
			p.clear(heads[:min(len(heads), int(count))])
			looked += count
		case t.permits > limit:
			p.unqueue(m)
			p.tell(t, int64(-limit), 0)
		case p.inUse()+t.permits > limit:
			return // nobody passes the head
		default:
			term := t.ttl
			if t.handle != p.own {
				term = min(term, p.c.probation, life-p.c.silence)
			}
			token := p.grant(t, term)
			p.unqueue(m)
			p.tell(t, term, token)
			if p.fenced {
				return
			}
		}
	}
}

// clear drops those of the head of the queue that are dead, and parks those whose sign of life is overdue.
func (p *permitsModel) clear(heads []string) {
	for _, m := range heads {
		switch life := p.alive.at(m) - p.now; {
		case p.queue.at(m) >= p.c.parked:
		case life <= 0:
			p.unqueue(m)
		case life <= p.c.overdue:
			p.queue.put(m, p.queue.at(m)+p.c.parked)
		}
	}
}

// ticket is the place of a waiter, parked or not.
func (p *permitsModel) ticket(member string) int64 { return p.queue.at(member) % p.c.parked }

func (p *permitsModel) busy(code int64, limit int) []int64 {
	reply := []int64{code, p.us, p.earliest(), int64(p.inUse()), int64(limit), int64(len(p.queue.scores))}
	return append(reply, p.told...)
}

type entering struct {
	void, ticket int64
	wait, awaits bool
	max          int
	keeps        bool
	maxTotal     int // in a family with a total
}

func (p *permitsModel) enter(member string, o entering) []int64 {
	t := parseTerms(member)
	p.own = t.handle
	if o.void > 0 && p.us >= o.void {
		return []int64{6, p.us, 0, 0, 0, 0}
	}
	limit, queued := p.limit(t), p.queue.has(member)
	if left := p.left(member); left > 0 {
		return []int64{1, p.us, left, p.token(), 1, 1}
	}
	if p.alive.has(member) && !queued {
		return []int64{7, p.us, 0, 0, 0, 0} // given up
	}
	if t.permits > limit {
		if queued {
			p.unqueue(member)
			p.tidy()
		}
		return p.busy(4, limit)
	}
	if !queued && p.inUse()+t.permits <= limit && !p.waitedFor() {
		// The quickest way looks no further.
		quick := !p.queue.exists() && !p.alive.exists() && t.permits == 1
		if p.fenced {
			quick = quick && !p.held.exists()
		} else {
			quick = quick && !p.word.set && len(p.held.scores) < limit && !p.held.has(member)
		}
		until := p.held.until
		contended, added := p.recalled(), int64(0)
		if o.keeps && !contended {
			// The quickest way registers, and may then find that it cannot be gone.
			if !p.fenced && t.permits == 1 && !p.queue.exists() && !p.alive.exists() && !p.word.set && len(p.held.scores) < limit {
				added = p.register(t.handle)
			}
			if !quick || p.fenced {
				added = p.register(t.handle)
			}
		}
		token := p.grant(t, t.ttl)
		if quick { // leases that are over, in the key, are not looked at
			p.held.keep(until)
		} else {
			p.held.drop(p.held.order(-forever, p.now)...)
			p.forget()
		}
		return []int64{1, p.us, t.ttl, token, oneIf(contended), added}
	}
	if !o.wait {
		if coming := p.recall(); !(coming && o.awaits || queued) {
			return p.busy(3, limit)
		}
		o.ticket = 0
	}
	if !queued {
		place := o.ticket
		if place == 0 {
			place = p.us
			for m := range p.queue.scores {
				place = max(place, p.ticket(m)+1)
			}
		}
		p.queue.put(member, place)
	} else {
		p.queue.put(member, p.ticket(member))
	}
	p.alive.put(member, p.now+p.c.alive)
	p.lives()
	p.tidy()
	if left := p.left(member); left > 0 {
		reply, others := []int64{1, p.us, left, 0, 1, 0}, []int64(nil)
		for i := 0; i < len(p.told); i += 3 {
			if p.told[i] == t.seq {
				reply[3] = p.told[i+2]
			} else {
				others = append(others, p.told[i:i+3]...)
			}
		}
		return append(reply, others...)
	}
	if o.wait {
		p.recall()
	}
	if !queued && o.max > 0 && len(p.queue.scores) > o.max {
		p.unqueue(member)
		if !o.wait {
			return p.busy(3, limit)
		}
		return p.busy(5, limit)
	}
	return p.busy(2, limit)
}

// waitedFor: somebody waits who still counts as alive.
func (p *permitsModel) waitedFor() bool {
	for m := range p.queue.scores {
		if p.alive.at(m) > p.now {
			return true
		}
	}
	return false
}

func (p *permitsModel) ask(members []string) outcome {
	p.own = parseTerms(members[0]).handle
	p.lives()
	for _, m := range members {
		if p.queue.has(m) {
			p.alive.put(m, p.now+p.c.alive)
			p.alive.keep(p.now + p.c.alive)
			p.queue.put(m, p.ticket(m))
		}
	}
	p.tidy()
	limit := p.limit(parseTerms(members[0]))
	reply := []int64{p.us, p.earliest(), int64(p.inUse()), int64(limit), int64(len(p.queue.scores))}
	var reasons []string
	for _, m := range members {
		switch left := p.left(m); {
		case left > 0:
			reply = append(reply, 1, left, p.token())
		case p.queue.has(m):
			reply = append(reply, 2, 0, 0)
		default:
			if reason, revoked := p.marks.fields[protocol.ListedID(m)]; revoked {
				reply, reasons = append(reply, 3, 0, 0), append(reasons, reason)
			} else {
				reply = append(reply, 0, 0, 0)
			}
		}
	}
	return outcome{append(reply, p.told...), reasons}
}

func (p *permitsModel) leave(member string, void int64) []int64 {
	t := parseTerms(member)
	p.own = t.handle
	state := int64(0)
	switch {
	case p.held.drop(t.memberPermits...) > 0:
		if state = 1; void == 0 && !p.queue.exists() {
			return []int64{1}
		}
	case p.queue.has(member):
		p.unqueue(member)
		state = 2
	}
	p.bury(member, void)
	p.advance()
	return append([]int64{state, p.us}, p.told...)
}

// settingCall is a call that sets the limit.
type settingCall struct {
	key    string // in a family with a total; "": the total
	handle string
	limit  int
	number int64
}

// settingArrives is how long after its call a setting may arrive, in µs.
const settingArrives = 5_000_000

func (p *permitsModel) set(s settingCall) []int64 {
	p.own = s.handle
	last := p.noted - (p.notedUntil-p.alive.at("="))*1000 // both move when time is made to pass
	switch {
	case p.us >= s.number+settingArrives || s.number > p.us+settingArrives:
		return []int64{6, p.us, 0}
	case p.alive.has("=") && s.number < last && last <= p.us:
		return []int64{7, p.us, 0}
	}
	p.noted = min(s.number, p.us)
	p.notedUntil = (p.noted + settingArrives + 999) / 1000
	p.bury("=", p.notedUntil)
	if s.limit == 0 {
		p.word.clear()
	} else {
		p.word.text, p.word.set, p.word.until = strconv.Itoa(s.limit), true, immortal
	}
	p.tidy()
	if s.limit == 0 || p.inUse() > s.limit {
		p.recall()
	}
	return append([]int64{1, p.us, 0}, p.told...)
}
