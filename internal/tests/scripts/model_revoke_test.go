package scripts_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/internal/protocol"
)

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
	i := rapid.IntRange(0, len(m.names)-1).Draw(t, "key")
	lost := m.model.common().cells[i]
	m.Logf("   %s is lost", lost.name)
	m.rdb.Del(context.Background(), m.names[i])
	lost.clear()
}
