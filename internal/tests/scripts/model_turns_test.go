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

// rises fails where a leave of turns broke what tokens promise. It looks at the server alone, since the reference may
// be wrong in the same way as the scripts: the fence is not set back, it is not behind the last turn of a lease that
// was still held, and what the same call handed on has a token above it.
func (m *permitMachine) rises(r *request, held bool, before int64, reply protocol.Reply) {
	after, last := m.lastIssued(), int64(m.last[r.Seq])
	switch {
	case after < before:
		m.Fatalf("%s: the fence went back from %d to %d", name(r), before, after)
	case held && reply.Code == life.Held && after < last:
		m.Fatalf("%s gave back, and the fence %d is behind its last turn's token %d", name(r), after, last)
	case !held && len(reply.Grants) == 0 && m.holder() == "" && after != before:
		m.Fatalf("%s was not held, nothing was handed on, and the fence went from %d to %d", name(r), before, after)
	}
	for _, g := range reply.Grants {
		if g.Code == life.Granted && (int64(g.Token) <= before || held && int64(g.Token) <= last) {
			m.Fatalf("%s handed on with token %d; the fence was %d, the last turn had %d", name(r), g.Token, before, last)
		}
	}
}

// holder is a member that holds the resource on the server, "" where none does.
func (m *permitMachine) holder() string {
	all := must(m.rdb.ZRangeByScore(context.Background(), m.names[0], &redis.ZRangeBy{Min: fmt.Sprint("(", m.us()/1000), Max: "+inf", Count: 1}).Result())(m)
	return strings.Join(all, "")
}

func (m *permitMachine) renewAndCount(t *rapid.T) {
	r := m.again(t)
	ttl := rapid.SampledFrom([]time.Duration{r.TTL, r.TTL, time.Millisecond, 30 * time.Second}).Draw(t, "ttl")
	heldFor := rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(t, "held for")
	waiting, members := m.members(1), m.members(0)
	left, ok := m.renewal(r, protocol.RenewOptions{Term: ttl, HeldFor: heldFor, Counts: true}, func() []int64 {
		return m.p.renewAndCount(r.Member(), ttl.Milliseconds())
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
	case int64(use.Waiting) != waiting:
		m.Fatalf("%d wait; the reply says %d", waiting, use.Waiting)
	case left.Term > 0 && use.InUse < 1:
		m.Fatalf("%s is held, and %d permits are in use", name(r), use.InUse)
	case left.Term > 0:
		m.stands(r, m.p.held)
	}
}

// members is how many a key has on the server.
func (m *machine) members(key int) int64 {
	return must(m.rdb.ZCard(context.Background(), m.names[key]).Result())(m)
}
