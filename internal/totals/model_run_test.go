package totals_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/luascripts"
)

// Random calls of three handles on four keys, each of which has to answer, publish
// and leave behind what the reference says, to the last bit; on the embedded server
// with a clock that stands still between the calls. Any of the keys in Redis may be
// lost at any time.
func TestModelOfFamiliesWithATotal(t *testing.T) {
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		s := newServer(t, target)
		rapid.Check(t, func(rt *rapid.T) {
			m := &machine{server: s, T: rt, names: s.fresh(), model: newFamily(), revoked: map[string]buried{}}
			m.read() // what a sequence that failed has left
			rt.Repeat(map[string]func(*rapid.T){
				"enter": m.enterNew, "enter more": m.enterNew, "enter yet more": m.enterNew, "enter again": m.enterAgain,
				"leave": m.leave, "leave more": m.leave, "leave yet more": m.leaveHeld, "ask": m.ask, "ask more": m.ask, "renew": m.renew,
				"pass": m.pass, "pass some": m.pass, "set": m.setLimit, "lose": m.lose, "go on": m.goOn,
				"revoke": m.revoke,
			})
		})
	})
}

type request struct {
	terms
	ticket int64
}

func (m *machine) enterNew(t *rapid.T) {
	r := &request{}
	r.handle = rapid.SampledFrom(handles).Draw(t, "handle")
	r.key = rapid.SampledFrom([]string{"ann", "an", "bob", "%7Bx%7D"}).Draw(t, "key")
	r.limit = rapid.IntRange(1, 4).Draw(t, "limit")
	r.permits = max(1, rapid.IntRange(-2, 4).Draw(t, "permits"))
	r.total = rapid.SampledFrom([]int{5, 5, 5, 5, 3}).Draw(t, "total")
	r.share = float64(rapid.SampledFrom([]int{1, 2, 3}).Draw(t, "share"))
	r.ttl = rapid.SampledFrom([]int64{10_000, 500, 2_500, 3_600_000}).Draw(t, "ttl")
	m.seq++
	r.seq = int64(m.seq)
	r.member = fmt.Sprintf("%s:%s.%d.%d.%d.%d.%.0f.%d", r.key, r.handle, r.seq, r.permits, r.ttl, r.limit, r.share, r.total)
	m.issued = append(m.issued, r)
	m.enter(t, r)
}

// again is a request that was issued before, the latest sooner than others.
func (m *machine) again(t *rapid.T) *request {
	if len(m.issued) == 0 {
		t.Skip("none yet")
	}
	i := rapid.IntRange(0, min(9, len(m.issued)-1)).Draw(t, "which")
	return m.issued[len(m.issued)-1-i]
}

func (m *machine) enterAgain(t *rapid.T) { m.enter(t, m.again(t)) }

func (m *machine) enter(t *rapid.T, r *request) {
	o := entering{
		wait: rapid.IntRange(0, 4).Draw(t, "tries") < 4,
		max:  max(0, rapid.IntRange(-6, 3).Draw(t, "max")), maxTotal: max(0, rapid.IntRange(-6, 6).Draw(t, "max total")),
	}
	if rapid.IntRange(0, 8).Draw(t, "void") == 8 {
		o.void = m.clock() + rapid.SampledFrom([]int64{0, -1, 1, 5_000_000}).Draw(t, "void")
	}
	if r.ticket != 0 && rapid.Bool().Draw(t, "old ticket") {
		o.ticket = r.ticket
	}
	wait := ""
	if o.wait {
		wait = fmt.Sprintf("%d %d %d", o.ticket, o.max, o.maxTotal)
	}
	got := m.run("enter", fmt.Sprintf("enter %s, %+v", r.member, o), 1,
		func(f *family) []int64 { return f.enter(r.member, o) },
		r.member, r.permits, r.ttl, r.limit, r.total, o.void, wait)
	if got[0] == 2 && r.ticket == 0 {
		r.ticket = got[1]
	}
	if got[0] == 1 {
		m.stands(r)
	}
	if got[0] == 1 || got[0] == 2 {
		m.notRevoked(r)
	}
}

// stands fails where a request was told that it is granted, and lacks a permit. The
// reference may be wrong in the same way as the scripts; this does not depend on it.
func (m *machine) stands(r *request) {
	for i := range r.permits {
		permit := r.member
		if i > 0 {
			permit = fmt.Sprintf("%s+%d", r.member, i+1)
		}
		if m.model.held.scores[permit] <= float64(m.model.now) {
			m.Fatalf("call %d: %s was told that it is granted, and does not hold %s", m.calls, r.member, permit)
		}
	}
}

func (m *machine) leave(t *rapid.T) { m.leaveOne(t, m.again(t)) }

// leaveHeld gives back what is held.
func (m *machine) leaveHeld(t *rapid.T) {
	var held []*request
	for _, r := range m.issued {
		if m.model.held.has(r.member) {
			held = append(held, r)
		}
	}
	if len(held) == 0 {
		t.Skip("none is held")
	}
	m.leaveOne(t, rapid.SampledFrom(held).Draw(t, "held"))
}

func (m *machine) leaveOne(t *rapid.T, r *request) {
	m.gaveUp(r)
	void := int64(0)
	if rapid.IntRange(0, 3).Draw(t, "stray") == 3 {
		void = m.clock()/1000 + rapid.SampledFrom([]int64{5_000, 0, 1}).Draw(t, "void")
	}
	m.run("leave", fmt.Sprintf("leave %s, void %d", r.member, void), 1,
		func(f *family) []int64 { return f.leave(r.member, void) }, r.member, r.permits, void)
}

func (m *machine) ask(t *rapid.T) {
	first := m.again(t)
	members, args := []string{first.member}, []any{first.handle, first.total, first.member}
	for _, r := range m.issued {
		if r != first && r.handle == first.handle && rapid.Bool().Draw(t, "too") {
			members, args = append(members, r.member), append(args, r.member)
		}
	}
	m.run("ask", fmt.Sprintf("ask %q", members), 0,
		func(f *family) []int64 { return f.ask(first.handle, first.total, members) }, args...)
}

func (m *machine) goOn(t *rapid.T) {
	handle := rapid.SampledFrom(handles).Draw(t, "handle")
	m.run("ask", "go on", 0, func(f *family) []int64 { return f.ask(handle, 5, nil) }, handle, 5)
}

func (m *machine) renew(t *rapid.T) {
	r := m.again(t)
	ttl := rapid.SampledFrom([]int64{r.ttl, r.ttl, 1, 30_000}).Draw(t, "ttl")
	m.run("renew", fmt.Sprintf("renew %s for %d", r.member, ttl), -1,
		func(f *family) []int64 { return f.renew(r.member, ttl) }, r.member, r.permits, ttl)
}

func (m *machine) setLimit(t *rapid.T) {
	s := setting{handle: rapid.SampledFrom(handles).Draw(t, "handle"), callerTotal: 5}
	if len(m.set) > 0 && rapid.IntRange(0, 2).Draw(t, "again") == 2 {
		s = rapid.SampledFrom(m.set).Draw(t, "which")
	} else {
		s.key = rapid.SampledFrom([]string{"", "ann", "bob", ""}).Draw(t, "key")
		s.limit = rapid.IntRange(0, 5).Draw(t, "limit")
		s.number = m.clock() + rapid.SampledFrom([]int64{0, 0, 1, 1_000_000, -1, -2_000_000, -4_999_000, -5_000_000, 6_000_000}).Draw(t, "ahead")
		m.set = append(m.set, s)
	}
	args := []any{s.key, s.limit, s.handle, s.number, s.callerTotal}
	m.run("set", fmt.Sprintf("set %+v", s), 1, func(f *family) []int64 { return f.set(s) }, args...)
}

// lose deletes a key, as an eviction does.
func (m *machine) lose(t *rapid.T) {
	i := rapid.IntRange(0, len(parts)-1).Draw(t, "part")
	m.Logf("   %s is lost", parts[i])
	m.rdb.Del(context.Background(), m.names[i])
	m.model.cells[i].clear()
	m.lost(parts[i])
}

// The reference counts with the constants of the scripts.
func TestConstantsOfTheReference(t *testing.T) {
	text := luascripts.TotalsAsk() + luascripts.TotalsRevoke()
	for name, want := range map[string]float64{
		"PROBATION": probation, "ALIVE": aliveFor, "OVERDUE": overdue, "SILENCE": silence, "MOST_GRANTS": mostGrants, "MOST_STEPS": mostSteps,
		"MOST_PURGED": mostPurged, "HELD_UP": heldUp, "MOST_ASIDE": mostAside, "HOLDS": holds, "HARMS": harms, "CHARGES": charges,
		"FORGOTTEN": forgotten, "LOOK": look, "CHARGES_KEPT": chargesKept, "TOMBSTONE": tombstone, "MARK_KEPT": markKept,
	} {
		found := regexp.MustCompile(`(?m)^local ` + name + ` = (\d+) `).FindStringSubmatch(text)
		redistest.Check(t, len(found) == 2 && found[1] == strconv.FormatFloat(want, 'f', -1, 64),
			"%s is %q in the scripts; the reference has %.0f", name, found, want)
	}
}
