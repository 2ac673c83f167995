package scripts_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/protocol"
)

// The reference of permits, for leases that their processes keep.

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// recalled says whether the mark of a recall stands, and is none of before the clock went back.
func (p *permitsModel) recalled() bool {
	return p.alive.at("^") > p.now && p.alive.at("^") <= p.now+p.c.recalled
}

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

// The reference of permits, for leases that serve several turns of a process.

// leaveTurns is a leave that brings the fence up to the last turn's token, if the lease is still held.
func (p *permitsModel) leaveTurns(member string, void, last int64) []int64 {
	issued, _ := strconv.ParseInt(p.word.text, 10, 64)
	if p.left(member) > 0 && issued < last {
		p.held.keep(p.held.at(member))
		p.put(p.word, strconv.FormatInt(last, 10), p.c.fence)
	}
	return p.leave(member, void)
}

// renewAndCount is a renewal that tells how the resource is used.
func (p *permitsModel) renewAndCount(member string, ttl int64) []int64 {
	use := []int64{int64(len(p.queue.scores)), int64(p.inUse()), int64(p.limit(parseTerms(member)))}
	return append(p.renew(member, ttl), use...)
}

// leaveTurns gives back, or leaves the queue, with the token of a last turn: one that the
// turns of the lease may have reached, a lower one, or one far ahead of the clock.
func (m *permitMachine) leaveTurns(t *rapid.T) {
	if !m.p.fenced {
		t.Skip("permits have no tokens")
	}
	r := m.again(t)
	if m.slots[r.Seq] != nil {
		t.Skip("a run serves no turns")
	}
	last := max(1, m.lastIssued()+rapid.SampledFrom([]int64{1, 0, -1, 1000, 5_000_000}).Draw(t, "ahead"))
	m.last[r.Seq] = uint64(last)
	r.SetLastToken(uint64(last))
	m.leaveOf(t, r)
}

// lastIssued is the fence as it stands on the server, 0 where there is none.
func (m *permitMachine) lastIssued() int64 {
	last, err := m.rdb.Get(context.Background(), m.names[3]).Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		m.Fatal(err)
	}
	return last
}

func (m *permitMachine) renewAndCount(t *rapid.T) {
	r := m.again(t)
	ttl := rapid.SampledFrom([]time.Duration{r.TTL, r.TTL, time.Millisecond, 30 * time.Second}).Draw(t, "ttl")
	heldFor := rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(t, "held for")
	m.renewal(r, protocol.RenewOptions{Term: ttl, HeldFor: heldFor, Counts: true}, func() []int64 {
		return m.p.renewAndCount(r.member, ttl.Milliseconds())
	})
}

// revocations is the reference of what marks the revoked attempts of a resource: their reasons, and the audit.
type revocations struct{ marks, audit *cell }

func newRevocations() revocations {
	return revocations{&cell{name: "revoked", fields: map[string]string{}}, &cell{name: "audit", isStream: true}}
}

// listedID is the ID of a member in listings.
func listedID(member string) string {
	_, owner := keyAndOwner(member)
	return protocol.ListedID(owner)
}

// takeAway is what a call of revoke comes to: 1 if it found the attempt, which then has a tombstone and, if it was
// not revoked before, a mark; else 2 if the attempt was revoked before.
func (b *base) takeAway(member, id, reason, what string, found bool, permits int, remains int64) int64 {
	_, before := b.marks.fields[id]
	if !found {
		return 2 * oneIf(before)
	}
	b.bury(member, b.now+b.c.tombstone)
	if !before {
		b.mark(member, reason, what, permits, remains)
	}
	return 1
}

func leaseOrWaiter(remains int64) string {
	if remains > 0 {
		return "lease"
	}
	return "waiter"
}

// mark notes that an attempt was revoked, and hints to its process.
func (b *base) mark(member, reason, what string, permits int, remains int64) {
	id, t := listedID(member), parseTerms(member)
	_, label, _ := strings.Cut(t.handle, "~")
	b.audit.entries = append(b.audit.entries, auditEntry(id, what, strconv.Itoa(permits), label, strconv.FormatInt(remains, 10), reason))
	b.marks.fields[id] = reason
	b.audit.until, b.marks.until = b.now+b.c.markKept, b.now+b.c.markKept
	b.publish(t.handle, fmt.Sprintf("R %d", t.seq))
}

func auditEntry(id, what, permits, label, remains, reason string) string {
	return strings.Join([]string{id, what, permits, label, remains, reason}, "|")
}

// unlessRevoked returns the outcome of a call of an attempt, or the error that it was revoked, if
// the first number says that the call found neither its lease nor its place.
func (r revocations) unlessRevoked(member string, nothing int64, reply any) outcome {
	o, whole := reply.(outcome)
	if !whole {
		o = ints(reply.([]int64))
	}
	if reason, revoked := r.marks.fields[listedID(member)]; revoked && o.ints[0] == nothing {
		return outcome{text: []string{"REVOKED " + reason}}
	}
	return o
}

// revoke takes a lease or a place away.
func (p *permitsModel) revoke(member, id, reason string) outcome {
	p.own = "" // nobody's outcomes ride in the reply
	t, remains := parseTerms(member), p.left(member)
	p.held.drop(t.memberPermits...)
	last, _ := strconv.ParseInt(p.word.text, 10, 64)
	if end := (p.now + remains) * 1000; p.fenced && remains > 0 && last > p.us && last < end {
		p.put(p.word, strconv.FormatInt(end, 10), p.c.fence)
	}
	waits := p.queue.drop(member) > 0
	state := p.takeAway(member, id, reason, leaseOrWaiter(remains), remains > 0 || waits, t.permits, remains)
	if state > 0 {
		p.tidy()
	}
	return ints([]int64{state, p.us, 0})
}

// revoke takes the right to load, or a place, away.
func (f *flightModel) revoke(member, id, reason string) outcome {
	remains := f.left(member)
	held := remains > 0
	name, token, _ := f.invalidated(member, -1)
	f.held.drop(member)
	waits, what := f.queue.drop(member) > 0, "load"
	if waits {
		what = "waiter"
	}
	f.aside.drop(name)
	state := f.takeAway(member, id, reason, what, held || name != "" || waits, 1, remains)
	switch loader, _ := f.held.first(f.now); {
	case held:
		f.tell(f.last(), true, "F")
	case name != "":
		f.tell(token, false, "F")
	case state == 2 && loader == "" && !f.aside.exists():
		f.tell(0, true, "F")
	}
	return ints([]int64{state, f.us, 0})
}

// revoke revokes a request, as the one that was found, or as one of which nothing was.
func (m *machine) revoke(t *rapid.T, target protocol.Resource, r *request) {
	member, id := r.member, r.ID()
	if rapid.IntRange(0, 4).Draw(t, "not found") == 4 {
		member = ""
	}
	reason := "reason " + strconv.Itoa(m.calls)
	m.call(fmt.Sprintf("revoke %s as %q: %s", name(r), member, reason), target.Revoke(member, id, reason),
		func() outcome { return m.model.revoke(member, id, reason) })
}

// lose deletes a key, as an eviction does.
func (m *machine) lose(t *rapid.T) {
	m.loses(rapid.IntRange(0, len(m.names)-1).Draw(t, "key"))
}

func (m *machine) loses(i int) {
	lost := m.model.common().cells[i]
	m.Logf("   %s is lost", lost.name)
	m.rdb.Del(context.Background(), m.names[i])
	lost.clear()
}
