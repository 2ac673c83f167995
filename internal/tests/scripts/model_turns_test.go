package scripts_test

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

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

func (m *permitMachine) renewAndCount(t *rapid.T) {
	r := m.again(t)
	ttl := rapid.SampledFrom([]time.Duration{r.TTL, r.TTL, time.Millisecond, 30 * time.Second}).Draw(t, "ttl")
	heldFor := rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(t, "held for")
	m.renewal(r, protocol.RenewOptions{Term: ttl, HeldFor: heldFor, Counts: true}, func() []int64 {
		return m.p.renewAndCount(r.member, ttl.Milliseconds())
	})
}
