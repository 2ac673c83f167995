package scripts_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/setting"
	"github.com/leasehold-go/leasehold/luascripts"
)

func scriptConstants(t *testing.T) constants {
	ms := func(name string) int64 { return constant(t, name).Milliseconds() }
	kept := func(name string) int64 { return numberIn(t, luascripts.PermitsEnter(), name) }
	return constants{
		recalled: kept("RECALLED"), coming: kept("COMING"), keeper: kept("KEEPER"),
		probation: ms("PROBATION"), alive: ms("ALIVE"), overdue: ms("OVERDUE"), silence: ms("SILENCE"),
		few: number(t, "FEW"), batch: number(t, "BATCH"), parked: number(t, "PARKED"), fence: ms("FENCE_KEPT"),
		record: (5 * time.Second).Milliseconds(), tombstone: ms("TOMBSTONE"), markKept: ms("MARK_KEPT"),
	}
}

// Random calls of three handles on one key, each of which has to answer, publish and leave behind what the reference
// says, to the last bit; on servers whose clock stands still between the calls.
func TestModelOfPermits(t *testing.T) {
	c := scriptConstants(t)
	for kind, fenced := range map[keys.Kind]bool{keys.Semaphore: false, keys.Mutex: true} {
		t.Run(string(kind), func(t *testing.T) {
			eachModelServer(t, func(t *testing.T, s *modelServer) {
				rapid.Check(t, func(rt *rapid.T) {
					named := s.fresh(rt, kind)
					res, p := newPermitsResource(named, fenced), newPermitsModel(fenced, c)
					m := &permitMachine{s.machine(rt, p, named.Part), p, res, map[uint64]uint64{}, map[uint64]*slot{}}
					p.held.key = named.Part("holders")
					rt.Repeat(map[string]func(*rapid.T){
						"enter": m.enterNew, "enter again": m.enterAgain, "leave": m.leave, "ask": m.ask, "renew": m.renew,
						"pass": m.pass, "pass some": m.pass, "enter more": m.enterNew, "leave more": m.leave, "word": m.setWord, "set": m.setLimit, "set again": m.setLimit, "lose": m.lose, "fill": m.fill,
						"revoke":   func(t *rapid.T) { m.revoke(t, res.Resource, m.again(t)) },
						"complete": m.complete, "leave turns": m.leaveTurns, "renew and count": m.renewAndCount,
						"renew kept": m.renewKept, "enter and try": m.enterNew,
					})
				})
			})
		})
	}
}

type permitMachine struct {
	machine
	p     *permitsModel
	res   *resource
	last  map[uint64]uint64 // the last turn's token, of those whose leave tells it
	slots map[uint64]*slot  // of those that are runs of the slot
}

func ints(v []int64) outcome { return outcome{ints: v} }

func (m *permitMachine) enterNew(t *rapid.T) {
	handle := rapid.SampledFrom(modelHandles).Draw(t, "handle")
	permits, limit := 1, 1
	if !m.p.fenced {
		limit = rapid.IntRange(1, 4).Draw(t, "limit")
		permits = rapid.IntRange(1, 4).Draw(t, "permits")
	}
	ttl := rapid.SampledFrom([]time.Duration{10 * time.Second, 500 * time.Millisecond, 2500 * time.Millisecond, time.Hour}).Draw(t, "ttl")
	r := m.once(t, m.res.attempt(handle, uint64(len(m.issued)+1), permits, ttl, limit))
	m.issued = append(m.issued, r)
	m.enter(t, r)
}

func (m *permitMachine) enterAgain(t *rapid.T) { m.enter(t, m.again(t)) }

func (m *permitMachine) enter(t *rapid.T, r *request) {
	o := m.options(t, r)
	o.AwaitsKept = rapid.Bool().Draw(t, "awaits kept")
	what := fmt.Sprintf("enter %s: %d of %d for %v, %+v", name(r), r.Permits, r.Limit, r.TTL, o)
	got, ok := m.callOf(r, 7, what, r.Enter(o), func() any {
		e := entering{void: *o.Void(), ticket: o.Ticket, wait: o.Wait, awaits: o.AwaitsKept, max: o.MaxWaiters, keeps: r.Keeps && m.slots[r.Seq] == nil}
		if !o.Wait && !o.AwaitsKept {
			e.max = 0 // such a try does not tell it
		}
		if m.slots[r.Seq] != nil {
			return m.p.enterOnce(r.member, e)
		}
		return m.p.enter(r.member, e)
	})
	if ok {
		m.entered(r, must(r.ReadEnter(nil, got.ints))(m), m.p.held)
	}
}

// options are those of an enter of permits, with or without a total.
func (m *machine) options(t *rapid.T, r *request) protocol.EnterOptions {
	o := protocol.EnterOptions{
		Wait:       rapid.IntRange(0, 3).Draw(t, "tries") < 3,
		MaxWaiters: max(0, rapid.IntRange(-4, 3).Draw(t, "max")),
	}
	if rapid.IntRange(0, 6).Draw(t, "void") == 6 {
		o.VoidAfter = new(m.us() + rapid.SampledFrom([]int64{0, -1, 1, 5_000_000}).Draw(t, "void"))
	}
	if ticket, ok := m.tickets[r.Seq]; ok && rapid.Bool().Draw(t, "old ticket") {
		o.Ticket = ticket
	}
	return o
}

// entered is what holds after any reply to an enter.
func (m *machine) entered(r *request, reply protocol.Reply, held *cell) {
	if m.tickets[r.Seq] == 0 && reply.Code == life.Queued {
		m.tickets[r.Seq] = reply.Now
	}
	if reply.Code == life.Granted {
		m.stands(r, held)
	}
}

// asking is a request, and some others of its handle.
func (m *machine) asking(t *rapid.T) (asked []*request) {
	first := m.again(t)
	asked = append(asked, first)
	for _, r := range m.issued {
		if r != first && r.Handle == first.Handle && rapid.Bool().Draw(t, "too") {
			asked = append(asked, r)
		}
	}
	return asked
}

func membersOf(all []*request) (members []string) {
	for _, r := range all {
		members = append(members, r.member)
	}
	return members
}

// stands fails where a request was told that it is granted, and lacks a permit. The
// reference may be wrong in the same way as the scripts; this does not depend on it.
func (m *machine) stands(r *request, held *cell) {
	for _, permit := range parseTerms(r.member).memberPermits {
		if held.at(permit) <= m.model.common().now {
			m.Fatalf("%s was told that it is granted, and does not hold %s", name(r), permit)
		}
	}
}

func (m *permitMachine) leave(t *rapid.T) { m.leaveOf(t, m.again(t)) }

// leaveOf sends the leave of r, which tells the token of its last turn if it had any.
func (m *permitMachine) leaveOf(t *rapid.T, r *request) {
	last, s := int64(m.last[r.Seq]), m.slots[r.Seq]
	completes := s != nil && s.completes
	m.leaves(t, r, completes, func(void int64) any {
		switch {
		case last != 0:
			return m.p.leaveTurns(r.member, void, last)
		case completes:
			return m.p.complete(r.member, void, s.keep.Milliseconds())
		}
		return m.p.leave(r.member, void)
	})
}

func (m *permitMachine) ask(t *rapid.T) {
	asked := m.asking(t)
	members := membersOf(asked)
	c := m.res.Ask(plain(asked))
	got := m.call(fmt.Sprintf("ask %q", members), c, func() outcome { return m.p.ask(members) })
	must(m.res.ReadAsk(c, got.ints, plain(asked)))(m)
}

// renew is of a machine of permits, with or without a total.
func (m *machine) renew(t *rapid.T) {
	r := m.again(t)
	ttl := rapid.SampledFrom([]time.Duration{r.TTL, r.TTL, time.Millisecond, 30 * time.Second}).Draw(t, "ttl")
	m.renewal(r, protocol.RenewOptions{Term: ttl}, func() []int64 {
		return m.model.(interface{ renew(string, int64) []int64 }).renew(r.member, ttl.Milliseconds())
	})
}

// renewal sends a renewal.
func (m *machine) renewal(r *request, o protocol.RenewOptions, predict func() []int64) (reply protocol.Reply) {
	got := m.call(fmt.Sprintf("renew %s, %+v", name(r), o), r.Renew(o), func() outcome {
		return m.model.common().unlessRevoked(r.member, 0, predict())
	})
	if got.ints == nil {
		reply.Code = life.NotSent
		return reply
	}
	return must(r.ReadRenew(got.ints))(m)
}

// setWord stores a limit, or sets the last token, as if the clock had been ahead.
func (m *permitMachine) setWord(t *rapid.T) {
	if m.full {
		t.Skip("memory has run out")
	}
	at, word := m.us(), m.p.word
	value := int64(rapid.IntRange(1, 4).Draw(t, "limit"))
	if m.p.fenced {
		value = at + time.Minute.Microseconds()
	}
	word.text, word.set, word.until = strconv.FormatInt(value, 10), true, at/1000+time.Hour.Milliseconds()
	m.Logf("   %s is set to %d", word.name, value)
	m.rdb.Set(context.Background(), m.names[3], value, 0)
	m.rdb.PExpireAt(context.Background(), m.names[3], time.UnixMilli(word.until))
}

// setting is a new setting of one of the keys, or one that was sent before.
func (m *machine) setting(t *rapid.T, most int, keys ...string) settingCall {
	if len(m.set) > 0 && rapid.Bool().Draw(t, "again") {
		return rapid.SampledFrom(m.set).Draw(t, "which")
	}
	s := settingCall{
		key: rapid.SampledFrom(keys).Draw(t, "key"), handle: rapid.SampledFrom(modelHandles).Draw(t, "handle"),
		limit:  rapid.IntRange(0, most).Draw(t, "limit"),
		number: m.us() + rapid.SampledFrom([]int64{0, 0, 1, 1_000_000, -1, -2_000_000, -4_999_000, -5_000_000, 6_000_000}).Draw(t, "ahead"),
	}
	m.set = append(m.set, s)
	return s
}

// sets sends a setting.
func (m *machine) sets(target protocol.Resource, s settingCall, predict func() []int64) {
	c := target.Set(protocol.SetOptions{Handle: s.handle, Limit: s.limit, Number: s.number})
	got := m.call(fmt.Sprintf("set %+v", s), c, func() outcome { return ints(predict()) })
	must(setting.Read(got.ints))(m)
}

// setLimit sets the limit of a semaphore.
func (m *permitMachine) setLimit(t *rapid.T) {
	if m.p.fenced {
		t.Skip("a mutex has none")
	}
	s := m.setting(t, 4, "")
	m.sets(m.res.Resource, s, func() []int64 { return m.p.set(s) })
}
