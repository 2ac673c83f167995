package totals_test

import (
	"fmt"
	"strconv"
	"strings"

	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/internal/protocol"
)

const (
	tombstone = 30_000
	markKept  = 30 * 24 * 3600 * 1000
)

// listedID is the ID of a request in listings.
func listedID(member string) string {
	_, owner, _ := strings.Cut(member, ":")
	return protocol.ListedID(owner)
}

func auditEntry(id, what, permits, label, remains, reason string) string {
	return strings.Join([]string{id, what, permits, label, remains, reason}, "|")
}

// revoke takes a lease or a place away.
func (f *family) revoke(member, id, reason string, callerTotal int) []int64 {
	state := int64(0)
	_, before := f.marks.texts[id]
	if before {
		state = 2
	}
	ticket, waits := f.queue.scores[member]
	remains := f.left(member)
	var t terms
	if member != "" {
		t = parse(member)
		f.held.drop(t.all...)
		f.places.drop(t.all...)
	}
	f.begin("", callerTotal) // nobody's outcomes ride in the reply
	if remains > 0 || waits {
		state = 1
		if waits {
			f.dequeue(member, place(member, ticket))
		}
		f.alive.scores[member] = float64(f.now + tombstone)
		f.alive.keep(f.now + tombstone)
		if !before {
			what := "waiter"
			if remains > 0 {
				what = "lease"
			}
			_, label, _ := strings.Cut(t.handle, "~")
			f.audit.entries = append(f.audit.entries, auditEntry(id, what, strconv.Itoa(t.permits), label, strconv.FormatInt(remains, 10), reason))
			f.marks.texts[id] = reason
			f.audit.until, f.marks.until = f.now+markKept, f.now+markKept
			f.sent = append(f.sent, fmt.Sprintf("%s: R %d", t.handle, t.seq))
		}
	}
	if state > 0 {
		f.purge()
		if member != "" {
			f.refresh(t.key)
		}
		f.advance()
		f.finish()
	}
	return []int64{state, f.us, f.more}
}

// there reports whether a request holds or waits.
func (f *family) there(member string) bool { return f.left(member) > 0 || f.queue.has(member) }

// buried is a request that was revoked.
type buried struct {
	reason int64 // 0: the mark was lost
	until  int64 // when its tombstone ends, in ms, by a clock on which what passed counts
}

// revokedReply is the first number of a reply that says that the attempt was revoked; the reason
// follows.
const revokedReply = -99

// unlessRevoked returns the reply to a call of an attempt, or that it was revoked, if the first
// number says that the call found neither its lease nor its place.
func (f *family) unlessRevoked(script string, args []any, reply []int64) []int64 {
	nothing, asks := map[string]int64{"enter": 7, "leave": 0, "renew": 0}[script]
	if !asks || reply[0] != nothing {
		return reply
	}
	if reason, revoked := f.marks.texts[listedID(args[0].(string))]; revoked {
		n, _ := strconv.ParseInt(reason, 10, 64)
		return []int64{revokedReply, n}
	}
	return reply
}

// revoke revokes a request, as the one that was found, or as one of which nothing was.
// Reasons are numbers, which a reply may have beside others.
func (m *machine) revoke(t *rapid.T) {
	r := m.again(t)
	member, id, total := r.member, listedID(r.member), r.total
	if rapid.IntRange(0, 4).Draw(t, "not found") == 4 {
		member = ""
	}
	stood := m.model.there(r.member) // may be over by the time of the call
	reason := strconv.Itoa(m.calls + 1)
	got := m.run("revoke", fmt.Sprintf("revoke %s as %q: %s", r.member, member, reason), 1,
		func(f *family) []int64 { return f.revoke(member, id, reason, total) }, member, id, reason, total)
	// What holds without the reference: it is gone with all its permits, the first reason
	// stays, and a second call knows it.
	if member == "" {
		return
	}
	b := m.revoked[member]
	switch {
	case m.model.there(member):
		m.Fatalf("%s was revoked, and is there", member)
	case got[0] == 0 && b.reason != 0:
		m.Fatalf("%s was revoked before, and the reply is %v", member, got)
	case got[0] == 1 && !stood:
		m.Fatalf("%s was not there, and the reply is %v", member, got)
	}
	for _, c := range m.model.cells[:3] { // holders, places, queue
		for _, entry := range c.of(r.key) {
			if strings.Contains(entry, fmt.Sprintf(":%s.%d.", r.handle, r.seq)) {
				m.Fatalf("%s was revoked, and has %s in %s", member, entry, c.name)
			}
		}
	}
	if got[0] == 1 {
		if b.reason == 0 {
			b.reason, _ = strconv.ParseInt(reason, 10, 64)
		}
		b.until = m.model.now + m.aged + tombstone
		m.revoked[member] = b
	}
}

// gaveUp takes a call of the owner that ends the attempt: from then on the tombstone lasts
// as long as that call says, for the owner sends no other enter.
func (m *machine) gaveUp(r *request) {
	if b, revoked := m.revoked[r.member]; revoked {
		b.until = 0
		m.revoked[r.member] = b
	}
}

// notRevoked fails where a request that was revoked was let in again, while its tombstone
// lasts.
func (m *machine) notRevoked(r *request) {
	now := m.model.now + m.aged
	if b, revoked := m.revoked[r.member]; revoked && now < b.until {
		m.Fatalf("%s was revoked, and let in again %d ms before its tombstone ends", r.member, b.until-now)
	}
}

// lost learns that a key was deleted.
func (m *machine) lost(part string) {
	for member, b := range m.revoked {
		switch part {
		case "alive":
			b.until = 0
		case "revoked":
			b.reason = 0
		}
		m.revoked[member] = b
	}
}
