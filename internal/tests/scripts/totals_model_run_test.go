package scripts_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/totals"
	"github.com/leasehold-go/leasehold/luascripts"
)

// Random calls of three handles on four keys, each of which has to answer, publish and leave behind what the
// reference says, to the last bit; on servers whose clock stands still between the calls. Any of
// the keys in Redis may be lost at any time.
func TestModelOfFamiliesWithATotal(t *testing.T) {
	c := scriptConstants(t)
	eachModelServer(t, func(t *testing.T, s *modelServer) {
		rapid.Check(t, func(rt *rapid.T) {
			s.fresh(rt, keys.Semaphore)
			named, f := keys.Family{Prefix: s.prefix, Kind: keys.Semaphore, Name: strconv.Itoa(s.checks)}, newFamily(c)
			m := &familyMachine{s.machine(rt, f, named.Together().Part), f, named}
			rt.Repeat(map[string]func(*rapid.T){
				"enter": m.enterNew, "enter more": m.enterNew, "enter yet more": m.enterNew, "enter again": m.enterAgain,
				"leave": m.leave, "leave more": m.leave, "leave yet more": m.leaveHeld, "ask": m.ask, "ask more": m.ask, "renew": m.renew,
				"pass": m.pass, "pass some": m.pass, "set": m.setLimit, "lose": m.lose, "fill": m.fill, "go on": m.goOn,
				"revoke": m.revoke, "hold up": m.holdUp,
			})
		})
	})
}

type familyMachine struct {
	machine
	f     *family
	named keys.Family
}

// resource is a key of the family, as a process with this configuration sees it.
func (m *familyMachine) resource(key string, total, maxTotal int) *totals.Resource {
	f := totals.NewFamily(m.named, total, maxTotal)
	if key == "" {
		return f.Whole()
	}
	return must(f.Resource(key))(m).(*totals.Resource)
}

func (m *familyMachine) enterNew(t *rapid.T) {
	terms := protocol.Terms{
		Handle: rapid.SampledFrom(modelHandles[:3]).Draw(t, "handle"),
		Limit:  rapid.IntRange(1, 4).Draw(t, "limit"), Permits: max(1, rapid.IntRange(-2, 4).Draw(t, "permits")),
		TTL:  time.Duration(rapid.SampledFrom([]int64{10_000, 500, 2_500, 3_600_000}).Draw(t, "ttl")) * time.Millisecond,
		Want: rapid.SampledFrom([]int{1, 2, 3}).Draw(t, "share"),
	}
	key := rapid.SampledFrom([]string{"ann", "an", "bob", "{x}"}).Draw(t, "key")
	m.enter(t, m.request(key, rapid.SampledFrom([]int{5, 5, 5, 5, 3}).Draw(t, "total"), terms))
}

func (m *familyMachine) request(key string, total int, terms protocol.Terms) *request {
	res := m.resource(key, total, 0)
	terms.Seq = uint64(len(m.issued) + 1)
	q := res.Request(terms)
	r := &request{Request: q, Terms: terms, member: q.(*totals.Request).Member(), res: &resource{Resource: res}, key: key}
	m.issued = append(m.issued, r)
	return r
}

func (m *familyMachine) enterAgain(t *rapid.T) { m.enter(t, m.again(t)) }

func (m *familyMachine) enter(t *rapid.T, r *request) {
	m.enterAs(r, m.options(t, r), max(0, rapid.IntRange(-6, 6).Draw(t, "max total")))
}

func (m *familyMachine) enterAs(r *request, o protocol.EnterOptions, maxTotal int) {
	total := parseTerms(r.member).total
	c := m.resource(r.key, total, maxTotal).Request(r.Terms).Enter(o)
	got, ok := m.callOf(r, 7, fmt.Sprintf("enter %s, %+v, %d", r.member, o, maxTotal), c, func() any {
		return m.f.enter(r.member, entering{void: *o.Void(), ticket: o.Ticket, wait: o.Wait, max: o.MaxWaiters, maxTotal: maxTotal})
	})
	if ok {
		m.entered(r, must(r.ReadEnter(c, got.ints))(m), m.f.held)
	}
}

func (m *familyMachine) leave(t *rapid.T) { m.leaveOne(t, m.again(t)) }

// leaveHeld gives back what is held.
func (m *familyMachine) leaveHeld(t *rapid.T) {
	var held []*request
	for _, r := range m.issued {
		if m.f.held.has(r.member) {
			held = append(held, r)
		}
	}
	if len(held) == 0 {
		t.Skip("none is held")
	}
	m.leaveOne(t, rapid.SampledFrom(held).Draw(t, "held"))
}

func (m *familyMachine) leaveOne(t *rapid.T, r *request) {
	m.leaves(t, r, false, func(void int64) any { return m.f.leave(r.member, void) })
}

// holdUp walks at once a course that chance alone would hardly find. Requests for all permits, of up to ten keys, hold up
// those for one, second after second, until they stand aside: for longer each time.
func (m *familyMachine) holdUp(t *rapid.T) {
	enter := func(key string, permits int) *request {
		r := m.request(key, 5, protocol.Terms{Handle: modelHandles[0], Limit: 5, Permits: permits, TTL: time.Hour, Want: 1})
		m.enterAs(r, protocol.EnterOptions{Wait: true}, 0)
		return r
	}
	enter("long", 1)
	var heavy []*request
	for i := range rapid.IntRange(1, 10).Draw(t, "heavy keys") {
		heavy = append(heavy, enter(fmt.Sprint("heavy", i), 5))
	}
	pause := rapid.SampledFrom([]time.Duration{250 * time.Millisecond, 500 * time.Millisecond}).Draw(t, "pause")
	for range rapid.IntRange(1, 10).Draw(t, "rounds") {
		light := enter("light", 1)
		for range 3 {
			m.setClock(m.now.Add(pause))
			m.asks(append(heavy, light))
		}
		m.leaveOne(t, light)
	}
	if rapid.Bool().Draw(t, "queue is lost") { // and their places in line are not
		m.loses(slices.Index(parts, "queue"))
		m.loses(slices.Index(parts, "alive"))
		m.enterAs(heavy[0], protocol.EnterOptions{Wait: true, Ticket: m.tickets[heavy[0].Seq]}, 0)
	}
}

func (m *familyMachine) ask(t *rapid.T) { m.asks(m.asking(t)) }

// asks asks for some requests of one handle.
func (m *familyMachine) asks(asked []*request) {
	first, members := asked[0], membersOf(asked)
	c := first.res.Ask(plain(asked))
	got := m.call(fmt.Sprintf("ask %q", members), c, func() outcome {
		return m.f.ask(first.Handle, parseTerms(first.member).total, members)
	})
	must(first.res.ReadAsk(c, got.ints, plain(asked)))(m)
}

func (m *familyMachine) goOn(t *rapid.T) {
	handle := rapid.SampledFrom(modelHandles[:3]).Draw(t, "handle")
	m.call("go on", m.resource("", 5, 0).GoOn(handle), func() outcome { return m.f.ask(handle, 5, nil) })
}

func (m *familyMachine) setLimit(t *rapid.T) {
	s := m.setting(t, 5, "", "ann", "bob", "")
	m.sets(m.resource(s.key, 5, 0), s, func() []int64 { return m.f.set(s, 5) })
}

func (m *familyMachine) revoke(t *rapid.T) {
	r := m.again(t)
	m.f.callerTotal = parseTerms(r.member).total
	m.machine.revoke(t, r.res.Resource, r)
}

// The reference counts with the constants of the scripts.
func TestConstantsOfTheReference(t *testing.T) {
	text := luascripts.TotalsAsk() + luascripts.TotalsRevoke()
	for name, want := range map[string]float64{
		"PROBATION": probation, "ALIVE": aliveFor, "OVERDUE": overdueAt, "SILENCE": silence, "MOST_GRANTS": mostGrants, "MOST_STEPS": mostSteps,
		"MOST_PURGED": mostPurged, "HELD_UP": heldUp, "MOST_ASIDE": mostAside, "HOLDS": holds, "HARMS": harms, "CHARGES": charges,
		"FORGOTTEN": forgotten, "LOOK": lookAhead, "CHARGES_KEPT": chargesKept,
	} {
		found := regexp.MustCompile(`(?m)^local ` + name + ` = (\d+) `).FindStringSubmatch(text)
		redistest.Check(t, len(found) == 2 && found[1] == strconv.FormatFloat(want, 'f', -1, 64),
			"%s is %q in the scripts; the reference has %.0f", name, found, want)
	}
}
