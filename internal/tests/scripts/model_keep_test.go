package scripts_test

import (
	"time"

	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/internal/protocol"
)

// The reference of permits, for leases that their processes keep.

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// recalled says whether the mark of a recall stands.
func (p *permitsModel) recalled() bool { return p.alive.at("^") > p.now }

// register notes that a handle may keep leases. It returns 1 if that was not known.
func (p *permitsModel) register(handle string) (added int64) {
	added = oneIf(!p.keepers.has(handle))
	p.keepers.put(handle, p.now+p.c.keeper)
	p.keepers.until = p.now + p.c.keeper
	return added
}

// recall tells all keepers, unless they were told a moment ago. It says whether permits may be on their way.
func (p *permitsModel) recall() bool {
	if p.recalled() {
		p.alive.put("^", p.now+p.c.recalled)
		p.alive.keep(p.now + p.c.recalled)
		return p.alive.at("^?") > p.now
	}
	if holder, _ := p.held.first(p.now); p.fenced && (holder == "" || !mayKeep(parseTerms(holder).handle)) {
		return false
	}
	all := p.keepers.order(p.now+1, forever)
	if len(all) == 0 {
		return false
	}
	p.keepers.clear()
	p.alive.put("^", p.now+p.c.recalled)
	p.alive.put("^?", p.now+p.c.coming)
	p.alive.keep(p.now + p.c.recalled)
	for _, handle := range all {
		p.publish(handle, "^ "+p.held.key)
	}
	return true
}

// renewKept is a renewal that asks whether the lease was recalled.
func (p *permitsModel) renewKept(member string, ttl int64) []int64 {
	handle := parseTerms(member).handle
	recalled := p.recalled() || p.keepers.at(handle) <= p.now
	reply := p.renewAndCount(member, ttl)
	if reply[0] > 0 && !recalled {
		p.register(handle)
	}
	return append(reply, oneIf(recalled))
}

// renewKept renews a lease that may be kept.
func (m *permitMachine) renewKept(t *rapid.T) {
	r := m.again(t)
	if !r.Keeps {
		t.Skip("it is not kept")
	}
	ttl := rapid.SampledFrom([]time.Duration{r.TTL, r.TTL, time.Millisecond}).Draw(t, "ttl")
	m.renewal(r, protocol.RenewOptions{Term: ttl, Counts: true, Keeps: true}, func() []int64 {
		return m.p.renewKept(r.member, ttl.Milliseconds())
	})
}
