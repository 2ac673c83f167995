package scripts_test

import (
	"time"

	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/internal/permits"
)

// The reference of permits, for runs that are completed once.

// enterOnce is an enter for the slot.
func (p *permitsModel) enterOnce(member string, o entering) []int64 {
	if p.done.exists() {
		return []int64{8, p.us, 0, 0, 0, 0}
	}
	return p.enter(member, o)
}

// complete is a leave that completes the slot, if the lease is held.
func (p *permitsModel) complete(member string, void, keep int64) []int64 {
	repeated := p.done.exists() && p.done.text == member
	switch ends := p.held.at(member); {
	case ends > p.now && !p.done.exists():
		p.held.keep(ends)
		p.put(p.done, member, keep)
	case ends > 0:
		p.held.drop(member)
	}
	reply := p.leave(member, void)
	if repeated {
		reply[0] = 1
	}
	return reply
}

// slot is what a request has to do with the slot of the sequence.
type slot struct {
	keep      time.Duration
	completes bool
}

// once makes some requests runs that are completed once.
func (m *permitMachine) once(t *rapid.T, r *request) *request {
	if !m.p.fenced || rapid.IntRange(0, 2).Draw(t, "once") > 0 {
		return r
	}
	keep := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour}).Draw(t, "keep")
	r.Want = permits.NewOnce(r.res.names, "slot", keep)
	r.Request = r.res.Request(r.Terms)
	m.slots[r.Seq] = &slot{keep: keep}
	return r
}

// complete makes the leaves of a run complete its slot, from now on.
func (m *permitMachine) complete(t *rapid.T) {
	r := m.again(t)
	s := m.slots[r.Seq]
	if s == nil {
		t.Skip("it has no slot")
	}
	if m.last[r.Seq] != 0 {
		t.Skip("it serves turns")
	}
	s.completes = true
	m.leaveOf(t, r)
}
