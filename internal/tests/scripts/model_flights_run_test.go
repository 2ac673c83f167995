package scripts_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/loads"
	"github.com/leasehold-go/leasehold/internal/protocol"
)

// The same of cached values.
func TestModelOfFlights(t *testing.T) {
	c := scriptConstants(t)
	eachModelServer(t, func(t *testing.T, s *modelServer) {
		rapid.Check(t, func(rt *rapid.T) {
			named, f := s.fresh(rt, keys.Flight), newFlightModel(c)
			m := &loadMachine{machine: s.machine(rt, f, named.Part), f: f, res: newLoadsResource(named), tokens: map[uint64]int64{}}
			f.near.key = loads.Near(named)
			rt.Repeat(map[string]func(*rapid.T){
				"enter": m.enterNew, "enter more": m.enterNew, "enter again": m.enterAgain, "leave": m.leave, "ask": m.ask, "renew": m.renew,
				"land": m.land, "land more": m.land, "invalidate": m.invalidate, "put": m.put, "inspect": m.inspect, "pass": m.pass, "lose": m.lose, "fill": m.fill,
				"revoke":    func(t *rapid.T) { m.revoke(t, m.res.Resource, m.again(t)) },
				"near read": m.nearRead, "near read more": m.nearRead, "near tell": m.nearTell, "near leave": m.nearLeave,
			})
		})
	})
}

type loadMachine struct {
	machine
	f      *flightModel
	res    *resource
	tokens map[uint64]int64 // of the load that a request leads or waits for
	seen   []string         // values and failures
	told   int              // the number of the last call that readers acknowledge
}

func (m *loadMachine) enterNew(t *rapid.T) {
	handle := rapid.SampledFrom(modelHandles).Draw(t, "handle")
	ttl := rapid.SampledFrom([]time.Duration{10 * time.Second, 500 * time.Millisecond, 3 * time.Second, time.Minute}).Draw(t, "ttl")
	r := m.res.attempt(handle, uint64(len(m.issued)+1), 1, ttl, 1)
	m.issued = append(m.issued, r)
	m.enter(t, r)
}

func (m *loadMachine) enterAgain(t *rapid.T) { m.enter(t, m.again(t)) }

func (m *loadMachine) enter(t *rapid.T, r *request) {
	o := protocol.EnterOptions{VoidAfter: new(m.us() + 5_000_000), Wait: rapid.IntRange(0, 5).Draw(t, "tries") < 5}
	if rapid.IntRange(0, 9).Draw(t, "void") == 9 {
		*o.VoidAfter += rapid.SampledFrom([]int64{0, -1, 1}).Draw(t, "void") - 5_000_000
	}
	// What it has seen: nothing, what is there now, or what was there before.
	now := m.f
	var rejected loads.Rejected
	switch rapid.IntRange(0, 4).Draw(t, "seen") {
	case 1:
		rejected.Value = head(now.value.text)
	case 2:
		rejected.Value = sum(now.value.text)
	case 3:
		if len(m.seen) > 0 {
			rejected.Value = head(rapid.SampledFrom(m.seen).Draw(t, "before"))
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "poisoned") == 3 {
		rejected.Failure = sum(now.failure.text)
	}
	r = r.rejecting(rejected)
	what := fmt.Sprintf("enter %s for %v, %+v, %+v", name(r), r.TTL, o, rejected)
	c := r.Enter(o)
	got, ok := m.callOf(r, 7, what, c, func() any {
		return m.f.enter(r.member, r.TTL.Milliseconds(), look{*o.VoidAfter, o.Wait, rejected.Value, rejected.Failure})
	})
	if !ok {
		return
	}
	reply := must(r.ReadEnter(c, got.ints))(m)
	if reply.Token > 0 {
		m.tokens[r.Seq] = int64(reply.Token)
	}
	m.seen = append(m.seen, got.text...)
}

// token is mostly the one of the load that a request has to do with.
func (m *loadMachine) token(t *rapid.T, r *request) uint64 {
	if rapid.IntRange(0, 7).Draw(t, "other load") == 7 {
		return uint64(m.us())
	}
	return uint64(m.tokens[r.Seq])
}

func (m *loadMachine) leave(t *rapid.T) {
	r := m.again(t)
	m.leaves(t, r, false, func(void int64) any { return m.f.leave(r.member, void) })
}

func (m *loadMachine) ask(t *rapid.T) {
	asked, tokens, what := m.asking(t), []int64(nil), "ask"
	for _, r := range asked {
		token := m.token(t, r)
		r.await(t, token)
		tokens = append(tokens, int64(token))
		what += fmt.Sprintf(" %s(%d)", name(r), token)
	}
	c := m.res.Ask(plain(asked))
	got := m.call(what, c, func() outcome { return m.f.ask(membersOf(asked), tokens) })
	must(m.res.ReadAsk(c, got.ints, plain(asked)))(m)
}

func (m *loadMachine) renew(t *rapid.T) {
	r := m.again(t)
	ttl := rapid.SampledFrom([]time.Duration{r.TTL, r.TTL, time.Millisecond, 30 * time.Second}).Draw(t, "ttl")
	alone, void := rapid.IntRange(0, 2).Draw(t, "alone") == 2, int64(0)
	if r = r.rejecting(loads.Rejected{}); alone { // a request of its own: Unwatch lasts
		void = m.void(t)
		r.loads().Unwatch()
	}
	few := rapid.Bool().Draw(t, "few keys")
	told := m.renewal(r, protocol.RenewOptions{Term: ttl, EnterMayArriveUntil: void, FewKeys: few}, func() []int64 {
		if few && m.f.held.at(r.member) <= m.f.now {
			return []int64{-2}
		}
		return m.f.renew(r.member, ttl.Milliseconds(), alone && !few, (void+999)/1000)
	})
	if few && told.Code != life.Granted && told.Code != life.NotSent {
		t.Fatalf("a renewal with few keys says %v: it cannot know how a lease ended", told.Code)
	}
}

func (m *loadMachine) land(t *rapid.T) {
	r := m.again(t)
	token, void := m.token(t, r), m.void(t)
	l := loads.Result{Prefix: "value:", Suffix: fmt.Sprintf(" of %s", name(r))}
	switch rapid.IntRange(0, 5).Draw(t, "what") {
	case 0, 1:
		l.Keep = 20 * time.Second
	case 2:
		l.Remember = 2 * time.Second
	case 3:
		l.Keep = -1
	case 4:
		l.Keep = time.Minute
		l.Suffix += strings.Repeat("x", 4096-len(l.Suffix)-rapid.IntRange(20, 24).Draw(t, "more"))
	}
	void = max(0, void)
	keep := l.Keep.Milliseconds()
	if l.Keep < 0 {
		keep = -1
	}
	what := fmt.Sprintf("land %s(%d), void %d, %d bytes, keep %v, remember %v", name(r), token, void, 22+len(l.Suffix), l.Keep, l.Remember)
	got := m.call(what, r.publish(token, void, l), func() outcome {
		return m.f.land(r.member, strconv.FormatUint(token, 10), (void+999)/1000, landing{l.Prefix, l.Suffix, keep, l.Remember.Milliseconds()})
	})
	must(loads.ReadPublish(got.ints))(m)
}

func (m *loadMachine) invalidate(t *rapid.T) {
	ack := m.acknowledge(t)
	c := m.res.Resource.(*loads.Resource).Invalidate(ack)
	got := m.call(fmt.Sprintf("invalidate %+v", ack), c, func() outcome { return m.f.invalidate(ack) })
	must(loads.ReadInvalidate(got.ints, got.text))(m)
}

// put stores a value beside all loads, or comes too late for that.
func (m *loadMachine) put(t *rapid.T) {
	void := m.model.common().us + rapid.Int64Range(-2_000_000, 4_000_000).Draw(t, "void")
	v := loads.Result{Prefix: "p", Suffix: rapid.StringMatching("[a-z]{0,8}").Draw(t, "suffix"), Keep: time.Duration(rapid.IntRange(1, 9000).Draw(t, "keep")) * time.Millisecond}
	ack := m.acknowledge(t)
	got := m.call(fmt.Sprintf("put %+v, void %d, %+v", v, void, ack), m.res.Resource.(*loads.Resource).Put(void, v, ack), func() outcome {
		return m.f.store(void, landing{v.Prefix, v.Suffix, v.Keep.Milliseconds(), 0}, ack)
	})
	must(loads.ReadPut(got.ints, got.text))(m)
}

// inspect changes nothing, and says what the reference knows.
func (m *loadMachine) inspect(*rapid.T) {
	c := m.res.inspect()
	got := m.call("inspect", c, func() outcome { return m.f.inspect() })
	s := must(loads.ReadInspect(got.ints, got.text))(m)
	if int64(s.Bytes) != got.ints[6] || (s.Loader == "") != (s.LeaseEnds == 0) {
		m.Fatalf("inspected %+v", s)
	}
}
