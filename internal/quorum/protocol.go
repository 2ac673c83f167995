package quorum

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/luascripts"
)

var (
	enterScript  = call.NewScript("quorum enter", luascripts.QuorumEnter())
	leaveScript  = call.NewScript("quorum leave", luascripts.QuorumLeave())
	yieldScript  = call.NewScript("quorum yield", luascripts.QuorumYield())
	lookScript   = call.NewScript("quorum look", luascripts.QuorumLook())
	revokeScript = call.NewScript("quorum revoke", luascripts.QuorumRevoke())
)

func (f *Family) Resource(key string) (protocol.Resource, error) {
	r, err := f.keys.Resource(key)
	if err != nil {
		return nil, err
	}
	return &Resource{f: f, keys: [5]any(append(r.Parts("holders", "queue", "alive", "fence"), f.born))}, nil
}

type Resource struct {
	f    *Family
	keys [5]any // holders, queue, alive, fence, born
}

func (r *Resource) Label() string    { return keys.LabelOf(r.FirstKey()) }
func (r *Resource) FirstKey() string { return r.keys[0].(string) }

func (r *Resource) Request(t protocol.Terms) protocol.Request {
	once, _ := t.Want.(*permits.Once)
	return &voter{f: r.f, res: r, terms: t, once: once, seats: make([]seat, len(r.f.servers))}
}

// Ask prepares the sign of life of waiters on all servers.
func (r *Resource) Ask(waiters []protocol.Request) *call.Call {
	return call.NewJoint(func(_ context.Context, sent time.Time, end func([]int64, []string, error)) {
		var mu sync.Mutex
		left, failed := len(waiters), error(nil)
		outcomes := make([]outcome, len(waiters))
		for i, w := range waiters {
			w.(*voter).wake(sent, func(o outcome) {
				mu.Lock()
				if outcomes[i] = o; o.err != nil && !isRevoked(o.err) {
					failed = cmp.Or(failed, o.err)
				}
				left--
				last := left == 0
				mu.Unlock()
				if last {
					r.told(waiters, sent, outcomes, failed, end)
				}
			})
		}
	})
}

// told ends an ask once all waiters have their outcome, with a reply for permits.ReadAsk.
func (r *Resource) told(waiters []protocol.Request, sent time.Time, outcomes []outcome, failed error, end func([]int64, []string, error)) {
	granted := slices.ContainsFunc(outcomes, func(o outcome) bool { return o.code == life.Granted })
	if failed != nil && !granted {
		end(nil, nil, failed)
		return
	}
	teller := max(0, slices.IndexFunc(outcomes, func(o outcome) bool { return o.code == life.Queued && o.err == nil }))
	reply := append([]int64{r.f.micros(sent)}, waiters[teller].(*voter).stateWords()...)
	var reasons []string
	for i, o := range outcomes {
		reason, revoked := "", false
		if o.err != nil {
			reason, revoked = call.Revoked(o.err)
		}
		switch {
		case revoked:
			reply = append(reply, 3, 0, 0)
			reasons = append(reasons, reason)
		case o.code == life.Granted:
			reply = append(reply, 1, o.deadline.Sub(sent).Milliseconds(), int64(waiters[i].(*voter).tokenOf()))
		default:
			reply = append(reply, 2, 0, 0)
		}
	}
	end(reply, reasons, nil)
}

func (r *Resource) ReadAsk(c *call.Call, v []int64, waiters []protocol.Request) (protocol.Reply, error) {
	return permits.ReadAsk(c, v, waiters)
}

// GoOn returns nil: no call stops at a bound.
func (r *Resource) GoOn(string) *call.Call { return nil }

// Set returns nil: a lock has no limit that can be set.
func (r *Resource) Set(protocol.SetOptions) *call.Call { return nil }

// call prepares a call of one server. checks says whether it tells its run id. All scripts know the TTL.
func (r *Resource) call(s *call.Script, member string, checks int, words ...any) *call.Call {
	return r.callWith(s, nil, member, checks, words...)
}

// callWith is call with further keys.
func (r *Resource) callWith(s *call.Script, more []any, member string, checks int, words ...any) *call.Call {
	all := append(append(r.keys[:len(r.keys):len(r.keys)], more...), member, checks, call.Milliseconds(r.f.ttl))
	return call.New(s, len(r.keys)+len(more), append(all, words...)...).WhenInFull(2)
}

// leave prepares the call that gives back what one server may have given to a member.
func (r *Resource) leave(member string, copies, lead int64, once *permits.Once) *call.Call {
	var done []any
	keep := int64(0)
	if once != nil {
		done, keep = []any{once.Done}, once.Keep
	}
	c := r.callWith(leaveScript, done, member, 0, call.MillisecondsUp(copies), lead, keep)
	c.Rank = call.GivesBack
	return c
}

func (v *voter) ID() string { return protocol.ListedID(v.terms.OwnerID()) }

// Enter prepares the joint call that asks all servers for their votes.
func (v *voter) Enter(o protocol.EnterOptions) *call.Call {
	return call.NewJoint(func(_ context.Context, sent time.Time, end func([]int64, []string, error)) { v.enter(sent, o, end) })
}

// ReadEnter reads the reply to an enter: what it says, now µs; then the term in ms and the token, or
// the state.
func (*voter) ReadEnter(_ *call.Call, v []int64) (r protocol.Reply, err error) {
	if len(v) != 6 {
		return r, call.Malformed("enter", v)
	}
	if r.Code, r.Now = life.Code(v[0]), v[1]; r.Code == life.Granted {
		r.Term, r.Token = call.Duration(v[2]), uint64(v[3])
	} else {
		r.State = permits.ReadState(v[2:6])
	}
	return r, nil
}

// Leave prepares the joint call that gives back all votes and places. Until when copies of calls may
// arrive is known for each server.
func (v *voter) Leave(_ int64, completes bool) *call.Call {
	return call.NewJoint(func(_ context.Context, _ time.Time, end func([]int64, []string, error)) { v.leave(completes, end) })
}

func (*voter) ReadLeave(v []int64) (protocol.Reply, error) { return permits.ReadLeave(v) }

// Renew prepares the joint call that prolongs the votes, and asks for those that are missing.
func (v *voter) Renew(o protocol.RenewOptions) *call.Call {
	return call.NewJoint(func(_ context.Context, sent time.Time, end func([]int64, []string, error)) {
		v.renew(sent, o.Term, end)
	})
}

func (*voter) ReadRenew(v []int64) (r protocol.Reply, err error) {
	r.Result, err = permits.ReadRenew("renew", v)
	return r, err
}

// ReadMessage reads what the voter says of a majority.
func (*voter) ReadMessage(text string) (protocol.Result, bool) {
	return permits.ParseMessage(text)
}

// SetLastToken has no use: no lease of a quorum serves several turns.
func (*voter) SetLastToken(uint64) {}

func (v *voter) enter(sent time.Time, o protocol.EnterOptions, end func([]int64, []string, error)) {
	told := func(out outcome) {
		if out.err != nil {
			end(nil, nil, out.err)
			return
		}
		reply := []int64{int64(out.code), v.f.micros(sent)}
		if out.code == life.Granted {
			reply = append(reply, out.deadline.Sub(sent).Milliseconds(), int64(v.tokenOf()), 0, 0)
		} else {
			reply = append(reply, v.stateWords()...)
		}
		end(reply, nil, nil)
	}
	v.f.clocks(v.res.FirstKey(), func(err error) {
		if err != nil {
			end(nil, nil, call.NotSent(err))
			return
		}
		us, _ := v.f.median(v.res.FirstKey())
		v.decide(func(t *todo) {
			if v.phase == leaving {
				t.add(func() { told(outcome{code: life.Gone}) })
				return
			}
			v.waits, v.most = o.Wait, o.MaxWaiters
			if v.base == 0 {
				v.base = cmp.Or(o.Ticket, v.f.micros(sent))
				v.ticket = us + v.base - v.f.micros(time.Now())
			}
			v.askAll(entering, us, sent, told, t)
		})
	})
}

// askAll asks all servers for their votes, anew if need be. Called with the lock.
func (v *voter) askAll(k roundKind, us int64, sent time.Time, end func(outcome), t *todo) {
	if v.lead = uint64(max(0, us)); v.phase == resting {
		v.begin()
	}
	v.open(k, sent, end)
	for i := range v.seats {
		v.ask(i, t)
	}
	v.step(t)
}

func (v *voter) wake(sent time.Time, end func(outcome)) {
	us, _ := v.f.median(v.res.FirstKey())
	v.decide(func(t *todo) {
		switch v.phase {
		case leaving:
			t.add(func() { end(outcome{code: life.Gone}) })
		case holding:
			deadline := v.deadline()
			t.add(func() { end(outcome{code: life.Granted, deadline: deadline}) })
		default:
			v.most = 0
			v.askAll(asking, us, sent, end, t)
		}
	})
}

func (v *voter) renew(sent time.Time, term time.Duration, end func([]int64, []string, error)) {
	v.decide(func(t *todo) {
		k := renewing
		if term < lease.MinTTL {
			k = probing
		}
		r := v.open(k, sent, func(o outcome) {
			switch {
			case o.err != nil:
				end(nil, nil, o.err)
			case o.code == life.Granted:
				end([]int64{max(1, o.deadline.Sub(sent).Milliseconds())}, nil, nil)
			default:
				end([]int64{0}, nil, nil)
			}
		})
		r.term = term
		if v.phase == holding {
			for i := range v.seats {
				switch s := &v.seats[i]; {
				case s.stand == held:
					v.sendEnter(i, renews, term, v.token, t)
				case k == renewing:
					v.heal(i, max(term, lease.MinTTL), t)
				default:
					r.pending[i] = false
				}
			}
		}
		v.step(t)
	})
}

func (v *voter) tokenOf() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.token
}

// stateWords returns how busy the lock is, as a majority sees it: ms until a majority of votes may be
// free, in use, limit, waiting.
func (v *voter) stateWords() []int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	var ends, waiting []int64
	used := int64(0)
	for i := range v.seats {
		if s := &v.seats[i]; s.stand == queued || s.stand == busy || s.stand == full {
			ends, waiting = append(ends, s.state[0]), append(waiting, s.state[2])
			used = max(used, s.state[1])
		}
	}
	words := []int64{0, used, 1, 0}
	if n := len(ends); n > 0 {
		slices.Sort(ends)
		slices.Sort(waiting)
		words[0], words[3] = ends[min(n, v.f.need)-1], waiting[n-1]
	}
	return words
}

var _ lease.Quorum = (*Family)(nil)
