package scripts_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/protocol"
)

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
	use := []int64{int64(len(p.queue.scores)), int64(p.used()), int64(p.limit(parseTerms(member)))}
	return append(p.renew(member, ttl), use...)
}

// leaveTurns gives back, or leaves the queue, with the token of a last turn: one that the
// turns of the lease may have reached, a lower one, or one far ahead of the clock.
func (m *permitMachine) leaveTurns(t *rapid.T) {
	if !m.fenced() {
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

// endsSoon reports whether a key may end, by the clock of a real server, while a call is made.
func (m *permitMachine) endsSoon(key int) bool {
	left := must(m.rdb.PTTL(context.Background(), m.names[key]).Result())(m)
	return m.real() && left != -1 && left < 5*time.Second // -1: it has no end
}

// rises fails where a leave of turns broke what tokens promise. It looks at the server alone, since the reference may
// be wrong in the same way as the scripts: the fence is not set back, it is not behind the last turn of a lease that
// was still held, and what the same call handed on has a token above it.
func (m *permitMachine) rises(r *request, was standing, before int64, reply protocol.Reply) {
	after, last := m.lastIssued(), int64(m.last[r.Seq])
	switch {
	case after < before:
		m.Fatalf("%s: the fence went back from %d to %d", name(r), before, after)
	case was == surelyHeld && reply.Code == life.Held && after < last:
		m.Fatalf("%s gave back, and the fence %d is behind its last turn's token %d", name(r), after, last)
	case was == notHeld && len(reply.Grants) == 0 && m.holds(0) == "" && after != before:
		m.Fatalf("%s was not held, nothing was handed on, and the fence went from %d to %d", name(r), before, after)
	}
	for _, g := range reply.Grants {
		if g.Code == life.Granted && (int64(g.Token) <= before || was == surelyHeld && int64(g.Token) <= last) {
			m.Fatalf("%s handed on with token %d; the fence was %d, the last turn had %d", name(r), g.Token, before, last)
		}
	}
}

// standing is how a request stood when its leave was sent.
type standing int

const (
	notHeld   standing = iota
	maybeHeld          // it may end, by the clock of a real server, before the leave runs
	surelyHeld
)

func (m *permitMachine) standingOf(r *request) standing {
	margin := time.Duration(0)
	if m.real() {
		margin = 2 * time.Second
	}
	switch r.Member() {
	case m.holds(margin):
		return surelyHeld
	case m.holds(0):
		return maybeHeld
	}
	return notHeld
}

// holds is a member that holds the resource on the server for longer than left, "" where none does.
func (m *permitMachine) holds(left time.Duration) string {
	all := must(m.rdb.ZRangeByScore(context.Background(), m.names[0], &redis.ZRangeBy{Min: fmt.Sprint("(", m.clock()/1000+left.Milliseconds()), Max: "+inf", Count: 1}).Result())(m)
	if len(all) == 0 {
		return ""
	}
	return all[0]
}

func (m *permitMachine) renewAndCount(t *rapid.T) {
	r := m.again(t)
	ttl := rapid.SampledFrom([]time.Duration{r.TTL, r.TTL, time.Millisecond, 30 * time.Second}).Draw(t, "ttl")
	heldFor := rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(t, "held for")
	waiting, members := m.members(1), m.members(0)
	left, ok := m.renewal(r, protocol.RenewOptions{Term: ttl, HeldFor: heldFor, Counts: true}, func(ref reference) []int64 {
		return on(ref).renewAndCount(r.Member(), ttl.Milliseconds())
	})
	if !ok {
		return
	}
	use := left.Use
	// What follows does not depend on the reference.
	now := m.members(0)
	switch {
	case now > members:
		m.Fatalf("a renewal of %s made %d permits of %d", name(r), now, members)
	case int64(use.Waiting) > waiting: // on a real server a key may end meanwhile
		m.Fatalf("%d wait; the reply says %d", waiting, use.Waiting)
	case left.Term > 0 && use.InUse < 1:
		m.Fatalf("%s is held, and %d permits are in use", name(r), use.InUse)
	case left.Term > 0:
		m.stands(r, on(m.model).held)
	}
}

// members is how many a key has on the server.
func (m *machine) members(key int) int64 {
	return must(m.rdb.ZCard(context.Background(), m.names[key]).Result())(m)
}
