package engine

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Code is what enter answered.
type Code int64

// The codes of enter.lua.
const (
	Granted   Code = 1
	Queued    Code = 2
	Busy      Code = 3
	TooMany   Code = 4 // more permits than the limit
	QueueFull Code = 5
	Void      Code = 6 // arrived after its void time
	GivenUp   Code = 7 // a leave of the same member came first
)

// Grant tells what became of a waiter of this handle: granted for Term, or,
// where Refused is not 0, never to be served under that limit.
type Grant struct {
	Seq     uint64
	Term    time.Duration
	Token   uint64
	Refused int
}

// State is how busy a key was.
type State struct {
	Earliest              time.Duration // until the first lease ends; 0 = none is held
	InUse, Limit, Waiting int
}

// EnterReply is what an enter answered.
type EnterReply struct {
	Code      Code
	Now       int64 // server, µs
	Remaining time.Duration
	Token     uint64
	State     State
	Grants    []Grant // of other waiters of the handle
	More      bool    // the call stopped at a bound: an ask at once goes on
	Text      string  // Found, Failed: the envelope
}

// EnterOptions say how to enter.
type EnterOptions struct {
	Void       int64 // server µs from which on the call does nothing; 0 = never
	Wait       bool
	Ticket     int64 // place in the queue, server µs; 0 = the last
	MaxWaiters int
	Look       Look // of a flight
}

// What the script is told of waiting where there is nothing to tell: arguments,
// made once.
var noWait, plainWait any = "", "0 0"

func (o EnterOptions) wait() any {
	switch {
	case !o.Wait:
		return noWait
	case o.Ticket == 0 && o.MaxWaiters == 0:
		return plainWait
	}
	return strconv.FormatInt(o.Ticket, 10) + " " + strconv.Itoa(o.MaxWaiters)
}

// Enter prepares the call that takes permits or a place in the queue.
func (r *Request) Enter(o EnterOptions) *Call {
	if r.Flight {
		return r.flightEnter(o)
	}
	return newCall(&enterScript, "", 4, r.words[0], r.words[1], r.words[2], r.words[3],
		&r.member, &r.permits, &r.ttl, &r.Limit, o.Void, o.wait())
}

// Leave prepares the call that gives back or leaves the queue. void is the
// server µs until which a copy of the enter may still arrive, 0 = none can.
func (r *Request) Leave(node string, void int64) *Call {
	if r.Flight {
		return r.flightLeave(node, void)
	}
	return newCall(&leaveScript, node, 4, r.words[0], r.words[1], r.words[2], r.words[3],
		&r.member, &r.permits, (void+999)/1000)
}

// Renew prepares the call that pushes the expiry to ttl from now.
func (r *Request) Renew(node string, ttl time.Duration) *Call {
	if r.Flight {
		return r.flightRenew(node, ttl, false, 0)
	}
	return newCall(&renewScript, node, 1, r.words[0], &r.member, &r.Permits, millis(ttl))
}

// Ask prepares the sign of life of waiters of one handle on r, at most MaxAsk.
func (r *Resource) Ask(node string, waiters []*Request) *Call {
	if r.Flight {
		return r.flightAsk(node, waiters)
	}
	words := make([]any, 0, 5+len(waiters))
	words = append(words, r.words[0], r.words[1], r.words[2], r.words[3], flag(r.Fenced))
	for _, w := range waiters {
		words = append(words, &w.member)
	}
	return newCall(&askScript, node, 4, words...)
}

// GuardSet prepares a guarded write.
func GuardSet(value, seen, token string, payload any, ttl time.Duration) *Call {
	return newCall(&guardSetScript, "", 2, value, seen, token, payload, millis(ttl))
}

// ParseEnter reads the reply of an enter.
func (r *Request) ParseEnter(c *Call, v []int64) (EnterReply, error) {
	if r.Flight {
		return parseFlightEnter(v, c.Text)
	}
	return parseEnter(v)
}

func parseEnter(v []int64) (EnterReply, error) {
	if len(v) < 6 || v[0] < 1 || v[0] > 7 {
		return EnterReply{}, malformed("enter", v)
	}
	r := EnterReply{Code: Code(v[0]), Now: v[1]}
	switch r.Code {
	case Granted:
		r.Remaining, r.Token = ms(v[2]), uint64(v[3])
	case Queued, Busy, TooMany, QueueFull:
		r.State = State{Earliest: ms(v[2]), InUse: int(v[3]), Limit: int(v[4]), Waiting: int(v[5])}
	}
	var err error
	r.Grants, r.More, err = grants("enter", v[6:])
	return r, err
}

// LeaveReply is what a leave answered.
type LeaveReply struct {
	Held   bool // permits were given back
	Grants []Grant
	More   bool // the call stopped at a bound: sent again at once it goes on
}

// ParseLeave reads the reply of a leave.
func ParseLeave(v []int64) (LeaveReply, error) {
	if len(v) == 0 {
		return LeaveReply{}, malformed("leave", v)
	}
	r := LeaveReply{Held: v[0] == 1}
	if len(v) == 1 {
		return r, nil
	}
	var err error
	r.Grants, r.More, err = grants("leave", v[2:])
	return r, err
}

// ParseRenew reads the reply of a renew: what remains of the lease, 0 where it
// has ended.
func ParseRenew(v []int64) (time.Duration, error) {
	if len(v) != 1 {
		return 0, malformed("renew", v)
	}
	return ms(v[0]), nil
}

// Standing is what an ask learned about one waiter.
type Standing struct {
	Code      Code // Granted, Queued, Found; 0 = neither
	Remaining time.Duration
	Token     uint64
	Text      string // Found: what landed holds
}

// AskReply is what an ask answered.
type AskReply struct {
	Now       int64 // server, µs
	State     State
	Standings []Standing // in the order of the waiters asked for
	Grants    []Grant
	More      bool // the call stopped at a bound: sent again at once it goes on
}

// ParseAsk reads the reply of an ask for n waiters.
func (r *Resource) ParseAsk(c *Call, v []int64, n int) (AskReply, error) {
	if r.Flight {
		return parseFlightAsk(v, c.Text, n)
	}
	return parseAsk(v, n)
}

func parseAsk(v []int64, n int) (AskReply, error) {
	if len(v) < 5+3*n {
		return AskReply{}, malformed("ask", v)
	}
	r := AskReply{Now: v[0], State: State{Earliest: ms(v[1]), InUse: int(v[2]), Limit: int(v[3]), Waiting: int(v[4])}}
	v = v[5:]
	for range n {
		r.Standings = append(r.Standings, Standing{Code: Code(v[0]), Remaining: ms(v[1]), Token: uint64(v[2])})
		v = v[3:]
	}
	var err error
	r.Grants, r.More, err = grants("ask", v)
	return r, err
}

// grants reads what a reply says beside its answer. more is its last word (0, 0, 0):
// no attempt has the number 0.
func grants(call string, v []int64) (all []Grant, more bool, err error) {
	if len(v)%3 != 0 {
		return nil, false, malformed(call, v)
	}
	for ; len(v) > 0; v = v[3:] {
		if v[0] == 0 {
			more = true
			continue
		}
		all = append(all, newGrant(uint64(v[0]), v[1], uint64(v[2])))
	}
	return all, more, nil
}

// newGrant reads a term of the scripts: ms, or minus the limit that refused.
func newGrant(seq uint64, what int64, token uint64) Grant {
	if what < 0 {
		return Grant{Seq: seq, Refused: int(-what)}
	}
	return Grant{Seq: seq, Term: ms(what), Token: token}
}

// Message is a grant as it comes through an inbox, with the server's time of it.
type Message struct {
	Grant
	At     int64   // server, µs
	Landed *Record // instead of a grant: what the load of Token came to
}

// ParseMessage reads "seq at term token" of the tell of permits, or "seq at 0
// token record" of a flight's.
func ParseMessage(payload string) (Message, error) {
	var v [4]int64
	words := strings.SplitN(payload, " ", len(v)+1)
	if len(words) < len(v) {
		return Message{}, fmt.Errorf("malformed message of %d words", len(words))
	}
	for i := range v {
		var err error
		if v[i], err = strconv.ParseInt(words[i], 10, 64); err != nil {
			return Message{}, fmt.Errorf("malformed message: word %d is no integer", i+1)
		}
	}
	m := Message{Grant: newGrant(uint64(v[0]), v[2], uint64(v[3])), At: v[1]}
	if len(words) > len(v) {
		r, ok := parseRecord(words[len(v)])
		if !ok || v[2] != 0 {
			return Message{}, fmt.Errorf("malformed message: not a record that this version knows")
		}
		m.Landed = &r
	}
	return m, nil
}

func malformed(call string, v []int64) error {
	return fmt.Errorf("%s answered %d integers that this version does not know", call, len(v))
}

// ms is v ms; the longest duration, which millis rounded up, stays the longest.
func ms(v int64) time.Duration {
	if v > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(v) * time.Millisecond
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
