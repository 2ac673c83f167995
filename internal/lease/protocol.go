package lease

import (
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
)

// A Protocol tells how the requests of a leased thing are named, sent and answered.
// internal/permits implements it for semaphores and mutexes. The other implementations are
// beside that package.
type Protocol interface {
	// Resource returns the Resource of key, or an error if key is invalid.
	Resource(key string) (Resource, error)
}

// A Resource is one key of a family. Requests for the same key compete.
type Resource interface {
	// Label returns the family and the key as errors and logs show them.
	Label() string
	// FirstKey returns a Redis key in the slot of the resource. Waiters whose resources have
	// the same FirstKey give signs of life together.
	FirstKey() string
	// Request makes a new attempt. Its member carries the terms, so that another process that
	// hands a permit on to it can read them.
	Request(t Terms) Request
	// Ask prepares the call that gives a sign of life for waiters and asks what became of
	// them. A call names at most MaxAsk of them.
	Ask(waiters []Request) *call.Call
	// ReadAsk reads the reply to an ask for waiters.
	ReadAsk(c *call.Call, reply []int64, waiters []Request) (AskReply, error)
}

// A Request is one attempt, identified by its owner id. A copy of it takes nothing twice.
type Request interface {
	// ID returns the attempt's name in listings. It is not the owner id.
	ID() string
	// Enter prepares the call that takes the permits, or a place in the queue.
	Enter(o EnterOptions) *call.Call
	ReadEnter(c *call.Call, reply []int64) (EnterReply, error)
	// Leave prepares the call that gives back, or leaves the queue. enterMayArriveUntil is the
	// server time (µs) until which a copy of the enter may still arrive; 0: none can.
	Leave(enterMayArriveUntil int64) *call.Call
	ReadLeave(reply []int64) (LeaveReply, error)
	// Renew prepares the call that moves the expiry to term from now.
	Renew(term time.Duration, enterMayArriveUntil int64) *call.Call
	ReadRenew(reply []int64) (RenewReply, error)
	// ReadMessage reads a message from the handle's inbox about this attempt while it is
	// queued. It returns false if the message is not one that it may believe.
	ReadMessage(text string) (Verdict, bool)
}

// A HeldRenewer is a Request whose renewals say how long the lease has been held. Listings
// need that: after the first renewal, Redis could not derive it from the expiry.
type HeldRenewer interface {
	RenewHeld(term time.Duration, enterMayArriveUntil int64, heldFor time.Duration) *call.Call
}

// MaxAsk is the largest number of waiters that one ask names.
const MaxAsk = 250

// AskEvery is the interval at which waiters give a sign of life. It is shorter than the first
// term of a grant to a waiter (2 s, PROBATION in the scripts), so that a waiter that missed
// its message asks in time. That term is shorter than the time for which a waiter keeps its
// place without a sign of life (4.5 s, ALIVE in the scripts).
const AskEvery = 1500 * time.Millisecond

// Terms says what an attempt asks for.
type Terms struct {
	Handle  string // the handle's id; see Manager
	Seq     uint64 // the attempt's number; a handle never uses one twice
	Permits int
	TTL     time.Duration
	Limit   int
	Want    any // for the protocol alone
}

// EnterOptions are the options of an enter.
type EnterOptions struct {
	VoidAfter  *int64 // server time (µs) from which on the call does nothing; nil or 0: never
	Wait       bool   // take a place in the queue if nothing is free
	Ticket     int64  // place in the queue, server µs; 0: behind all others
	MaxWaiters int    // 0: no bound
}

// Void returns VoidAfter as an argument of a call.
func (o EnterOptions) Void() *int64 {
	if o.VoidAfter == nil {
		return new(int64)
	}
	return o.VoidAfter
}

// A Code is the answer of an enter or an ask for one request.
type Code int

const (
	Gone      Code = iota // of an ask: it neither holds nor waits
	Granted               // Term and Token give the details
	Queued                // it waits
	Busy                  // nothing is free, and it does not wait
	TooMany               // it asks for more than the limit
	QueueFull             // MaxWaiters are waiting already
	Void                  // it arrived after VoidAfter
	GivenUp               // a leave or a revocation of the same attempt came first
	Answered              // there is no lease; Answer has the result
)

// State tells how busy a resource was.
type State struct {
	AsOf                  time.Time     // when Redis reported it; zero: just now
	Earliest              time.Duration // time until the first lease ends; 0: none is held
	InUse, Limit, Waiting int

	// For a family with a total:
	Total, TotalInUse int
	Competing         int           // number of keys that wait for the total
	InTheWay          time.Duration // time until the first lease ends of those that the request waits for; 0: Earliest
}

// EnterReply is the reply to an enter.
type EnterReply struct {
	Code   Code
	Now    int64 // server time, µs
	Term   time.Duration
	Token  uint64
	State  State   // for Queued, Busy, TooMany and QueueFull
	Grants []Grant // to other waiters of the handle
	More   bool    // the call stopped at a bound; an ask, sent at once, continues
	Answer any     // for Answered
}

// A Grant is the part of a reply about another waiter of the handle. The waiter was granted,
// or its request exceeds the limit Refused and can never be served.
type Grant struct {
	Seq     uint64
	Term    time.Duration
	Token   uint64
	Refused int // the limit; 0: it was granted
}

// AskReply is the reply to an ask.
type AskReply struct {
	Now       int64 // server time, µs
	State     State
	Standings []Standing // in the order of the waiters
	Grants    []Grant
	More      bool // the call stopped at a bound; sent again at once, it continues
}

// A Standing is the result of an ask for one waiter: Granted, Queued, Answered or Gone.
type Standing struct {
	Code   Code
	Term   time.Duration
	Token  uint64
	State  *State // of its key; nil: the same as the reply's
	Answer any
}

// LeaveReply is the reply to a leave.
type LeaveReply struct {
	Held   bool // the lease was held until then
	Grants []Grant
	More   bool // the call stopped at a bound; sent again at once, it continues
}

// RenewReply is the reply to a renewal.
type RenewReply struct {
	Term  time.Duration // the time that is left of the lease; 0: it has ended
	Ended error         // why it has ended, if Term is 0 and the reply says so
}

// A Verdict is the result of a wait.
type Verdict struct {
	Code  Code // Granted, TooMany (with Limit), Answered, Gone (enter again), or Failed
	Token uint64
	Limit int // for TooMany

	Term      time.Duration // of a grant by a message, counted
	GrantedAt int64         // from this server time (µs)

	Deadline  time.Time // of a grant: the time until which it is surely held
	Confirmed bool      // of a grant: the required replicas, if any, have confirmed it
	ByEnter   bool      // of a grant: the reply to an enter of the attempt itself says so
	Answer    any
	Lapsed    bool  // of Gone: an ask found neither a lease nor a place in the queue
	Err       error // of Failed
}

// Failed is a verdict of the handle itself: Redis has not answered, or has refused the ask.
const Failed Code = -1

// OwnerID returns the name of the attempt in the scripts: <handle>.<seq>.<permits>.<ttl
// ms>.<limit>. Each attempt has a new one, so that the scripts recognise a call that arrives
// twice. It contains the terms, so that a process that hands a permit on knows what to grant.
func (t Terms) OwnerID() string {
	buf := make([]byte, 0, 160) // on the stack, whatever the label
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

// ListedID returns the name that listings show for an owner id: the first eight characters of
// the handle, and the number of the attempt. No two attempts for one key share it. It does not
// reveal the owner id, which has more random bits.
func ListedID(ownerID string) string {
	words := strings.SplitN(ownerID, ".", 3)
	if len(words) < 3 || len(words[0]) < 8 {
		return ""
	}
	return words[0][:8] + "-" + words[1]
}

// ListedLabel returns the label of the handle in an owner id.
func ListedLabel(ownerID string) string {
	handle, _, _ := strings.Cut(ownerID, ".")
	_, label, _ := strings.Cut(handle, "~")
	if text, ok := keys.Unescape(label); ok {
		return text
	}
	return label
}

// ReadGrants reads the part of a reply of the script name that is about other waiters. Each
// has three numbers: seq, term in ms (or minus the limit that refused it), token. If the call
// stopped at a bound, (0, 0, 0) comes last and more is true. No attempt has the number 0.
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

// maxResources bounds how many keys a handle keeps the Resource of.
const maxResources = 256

// Resource returns the Resource of key. Making one takes ten allocations, so a handle keeps up
// to maxResources of them. A full map drops any one.
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
			delete(m.resources, old) // any one: the iteration order of a map is random
			break
		}
	}
	m.resources[strings.Clone(key)] = r
	return r, nil
}

// margin returns how long before the server's expiry a holder stops relying on its lease. That
// allows for late timers, and for clocks that run at slightly different rates.
func margin(term time.Duration) time.Duration {
	return max(12*time.Millisecond, term/40)
}

// deadline returns the time until which a lease is surely held that lasts for term on the
// server, counted from a local time that is not later than the server's start.
func deadline(from time.Time, term time.Duration) time.Time { return from.Add(term - margin(term)) }

// TermWithin returns the term to ask for if the holder must stop after left: ttl, or left plus
// twice the margin, so that the deadline does not come earlier. It is at least MinTTL.
func TermWithin(ttl, left time.Duration) time.Duration { return max(MinTTL, capTerm(ttl, left)) }

// capTerm is TermWithin without the lower bound. Durations may be the longest possible, so
// nothing is added that could overflow.
func capTerm(ttl, left time.Duration) time.Duration {
	if slack := 2 * margin(min(ttl, left)); left < ttl-slack {
		return max(0, left) + slack
	}
	return ttl
}
