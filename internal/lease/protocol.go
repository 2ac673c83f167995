package lease

import (
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
)

// Protocol is what a lease needs to know of the thing that is leased: how its
// requests are named, sent and answered. internal/permits has one for the permits
// of a semaphore or a mutex; the other implementations stand beside it.
type Protocol interface {
	// Resource names the Redis keys of key, or says why there are none.
	Resource(key string) (Resource, error)
}

// Resource is one key of a family: requests for the same thing compete here.
type Resource interface {
	// Label is the family and the key as errors and logs show them.
	Label() string
	// FirstKey is a Redis key in the slot of the resource. Waiters whose resources
	// have the same one give signs of life together.
	FirstKey() string
	// Request names a new attempt. Its terms travel with its member, so that the
	// process that hands a permit on knows them.
	Request(t Terms) Request
	// Ask prepares the sign of life of waiters, which is also the question what
	// became of them. It is sent for at most MaxAsk at a time.
	Ask(waiters []Request) *call.Call
	// ReadAsk reads the reply to an ask for waiters.
	ReadAsk(c *call.Call, reply []int64, waiters []Request) (AskReply, error)
}

// Request is one attempt, by its owner id: sent twice, it takes nothing twice.
type Request interface {
	// ID names the attempt in listings. It is not the owner id.
	ID() string
	// Enter prepares the call that takes what was asked for, or a place in the queue.
	Enter(o EnterOptions) *call.Call
	ReadEnter(c *call.Call, reply []int64) (EnterReply, error)
	// Leave prepares the call that gives back, or leaves the queue. enterMayArriveUntil
	// is the server time (µs) until which a copy of the enter may still arrive; 0: none
	// can.
	Leave(enterMayArriveUntil int64) *call.Call
	ReadLeave(reply []int64) (LeaveReply, error)
	// Renew prepares the call that pushes the expiry to term from now.
	Renew(term time.Duration, enterMayArriveUntil int64) *call.Call
	ReadRenew(reply []int64) (RenewReply, error)
	// ReadMessage reads what a message on the handle's inbox says of this attempt,
	// while it is queued. False: nothing that it may believe.
	ReadMessage(text string) (Verdict, bool)
}

// HeldRenewer is a Request whose renewals say how long the lease has been held: what
// stands in Redis would not tell listings after the first one.
type HeldRenewer interface {
	RenewHeld(term time.Duration, enterMayArriveUntil int64, heldFor time.Duration) *call.Call
}

// MaxAsk is the largest number of waiters that one ask names.
const MaxAsk = 250

// AskEvery is how often waiters give a sign of life. It is shorter than the first
// term of a grant to a waiter (2 s, PROBATION in the scripts), so that a waiter
// that missed its message asks in time. That term is shorter than the time that a
// waiter keeps its place without a sign of life (4.5 s, ALIVE in the scripts).
const AskEvery = 1500 * time.Millisecond

// Terms is what an attempt asks for.
type Terms struct {
	Handle  string // of the process: see Manager
	Seq     uint64 // of the attempt, never used twice by a handle
	Permits int
	TTL     time.Duration
	Limit   int
	Want    any // of the attempt, for its protocol alone
}

// EnterOptions say how to enter.
type EnterOptions struct {
	VoidAfter  int64 // server time (µs) from which on the call does nothing; 0: never
	Wait       bool  // take a place in the queue where nothing is free
	Ticket     int64 // place in the queue, server µs; 0: the last
	MaxWaiters int   // 0: no bound
}

// Code is what an enter or an ask answered for one request.
type Code int

const (
	Gone      Code = iota // of an ask: it neither holds nor waits
	Granted               // Term and Token say what
	Queued                // it waits
	Busy                  // nothing is free, and it was not to wait
	TooMany               // it asks for more than the limit
	QueueFull             // MaxWaiters wait already
	Void                  // it arrived after its time
	GivenUp               // a leave of the same attempt came first
	Answered              // without a lease: Answer says with what
)

// State is how busy a resource was.
type State struct {
	AsOf                  time.Time     // when Redis had told; zero: now
	Earliest              time.Duration // until the first lease ends; 0: none is held
	InUse, Limit, Waiting int

	// Of a family with a total:
	Total, TotalInUse int
	Competing         int           // keys that wait for the total
	InTheWay          time.Duration // until the first lease ends of those that a request waits for; 0: as Earliest
}

// EnterReply is what an enter answered.
type EnterReply struct {
	Code   Code
	Now    int64 // server time, µs
	Term   time.Duration
	Token  uint64
	State  State   // Queued, Busy, TooMany, QueueFull
	Grants []Grant // to other waiters of the handle
	More   bool    // the call stopped at a bound: an ask at once goes on
	Answer any     // Answered
}

// Grant is what a call's reply says of another waiter of the handle: it was
// granted, or can never be served under the limit Refused.
type Grant struct {
	Seq     uint64
	Term    time.Duration
	Token   uint64
	Refused int // the limit; 0: it was granted
}

// AskReply is what an ask answered.
type AskReply struct {
	Now       int64 // server time, µs
	State     State
	Standings []Standing // in the order of the waiters
	Grants    []Grant
	More      bool // the call stopped at a bound: sent again at once it goes on
}

// Standing is what an ask learned of one waiter: Granted, Queued, Answered or Gone.
type Standing struct {
	Code   Code
	Term   time.Duration
	Token  uint64
	State  *State // of its key; nil: as the reply's
	Answer any
}

// LeaveReply is what a leave answered.
type LeaveReply struct {
	Held   bool // the lease was held until then
	Grants []Grant
	More   bool // the call stopped at a bound: sent again at once it goes on
}

// RenewReply is what a renewal answered.
type RenewReply struct {
	Term  time.Duration // what is left of the lease; 0: it has ended
	Ended error         // why, where Term is 0 and the reply told
}

// Verdict is what became of a waiter.
type Verdict struct {
	Code  Code // Granted, TooMany (Limit), Answered, Gone (enter again), or Failed
	Token uint64
	Limit int

	Term      time.Duration // of a message's grant,
	GrantedAt int64         // counted from this server time (µs)

	Deadline  time.Time // of a grant: until when it is surely held
	Confirmed bool      // of a grant: as many replicas as are to confirm it have, if any
	Answer    any
	Lapsed    bool  // of Gone: an ask found neither lease nor place
	Err       error // Failed
}

// Failed is a verdict of the handle's own: Redis could not be asked for too long.
const Failed Code = -1

// OwnerID names the attempt of these terms to the scripts:
// <handle>.<seq>.<permits>.<ttl ms>.<limit>. It is new for each attempt, so that the
// scripts recognise a call that comes twice, and it carries the terms, so that a
// process that hands a permit on knows what was asked for.
func (t Terms) OwnerID() string {
	buf := make([]byte, 0, 160) // on the stack, with any label
	buf = append(buf, t.Handle...)
	buf = append(buf, '.')
	buf = strconv.AppendUint(buf, t.Seq, 10)
	buf = append(buf, '.')
	buf = strconv.AppendInt(buf, int64(t.Permits), 10)
	buf = append(buf, '.')
	buf = strconv.AppendInt(buf, call.Milliseconds(t.TTL), 10)
	buf = append(buf, '.')
	buf = strconv.AppendInt(buf, int64(t.Limit), 10)
	return string(buf)
}

// ListedID is how listings show the attempt of an owner id: eight characters of the
// handle and the attempt's number, which no two attempts for one key share. The
// owner id, with all of its random bits, is not shown.
func ListedID(ownerID string) string {
	words := strings.SplitN(ownerID, ".", 3)
	if len(words) < 3 || len(words[0]) < 8 {
		return ""
	}
	return words[0][:8] + "-" + words[1]
}

// ListedLabel is the label of the handle of an owner id.
func ListedLabel(ownerID string) string {
	handle, _, _ := strings.Cut(ownerID, ".")
	_, label, _ := strings.Cut(handle, "~")
	if text, ok := keys.Unescape(label); ok {
		return text
	}
	return label
}

// ReadGrants reads what a reply of call says of other waiters: (seq, term in ms or
// minus the limit that refused, token) for each. more is its last word, (0, 0, 0): the
// call stopped at a bound. No attempt has the number 0.
func ReadGrants(name string, reply []int64) (all []Grant, more bool, err error) {
	if len(reply)%3 != 0 {
		return nil, false, call.Malformed(name, reply)
	}
	for ; len(reply) > 0; reply = reply[3:] {
		g := Grant{Seq: uint64(reply[0]), Token: uint64(reply[2])}
		switch what := reply[1]; {
		case g.Seq == 0:
			more = true
			continue
		case what < 0:
			g.Refused, g.Token = int(-what), 0
		default:
			g.Term = call.Duration(what)
		}
		all = append(all, g)
	}
	return all, more, nil
}

// maxResources bounds the keys whose names in Redis a handle remembers.
const maxResources = 256

// Resource names the keys of key in Redis, which takes ten allocations: those of
// the last keys are kept.
func (m *Manager) Resource(key string) (Resource, error) {
	m.mu.Lock()
	r := m.resources[key]
	m.mu.Unlock()
	if r != nil {
		return r, nil
	}
	r, err := m.cfg.Protocol.Resource(key)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.resources) >= maxResources {
		for old := range m.resources {
			delete(m.resources, old) // any one: the order of a map is random
			break
		}
	}
	m.resources[strings.Clone(key)] = r
	return r, nil
}

// margin is how long before the server's expiry a holder stops believing: time
// for a late timer, and for clocks that run at slightly different rates.
func margin(term time.Duration) time.Duration {
	return max(12*time.Millisecond, term/40)
}

// capTerm is ttl, or as much of it as a lease needs that must not outlive left: the
// deadline lies a margin before the end of the term. Durations may be the longest
// there are, so nothing is added that could overflow.
func capTerm(ttl, left time.Duration) time.Duration {
	if slack := 2 * margin(min(ttl, left)); left < ttl-slack {
		return max(0, left) + slack
	}
	return ttl
}
