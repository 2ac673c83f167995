package redistest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Stage is where on its way an Event is met.
type Stage int

const (
	OnRequest Stage = iota // a command, before it is forwarded
	OnReply                // a reply, after the server ran the command and before the client has it
	OnMessage              // a message for a subscriber
)

// Event is what a hook is asked about.
type Event struct {
	Stage Stage
	Conn  int      // connections are numbered from 1
	Cmd   []string // the command's words, the first one in upper case; none on OnMessage
	Reply []byte   // OnReply and OnMessage: the bytes from the server
}

// Name is the command's name in upper case.
func (ev Event) Name() string {
	if len(ev.Cmd) == 0 {
		return ""
	}
	return ev.Cmd[0]
}

func (ev Event) Failed() bool { return len(ev.Reply) > 0 && (ev.Reply[0] == '-' || ev.Reply[0] == '!') }

// Action is what becomes of an Event.
type Action struct {
	verdict verdict
	gate    <-chan struct{}
}

type verdict int

const (
	pass verdict = iota
	closeConn
	vanish
)

var (
	// Pass carries it on.
	Pass = Action{}

	// Close closes the connection instead. What came before on it arrives. After a request the server hasn't
	// seen it; after a reply it has run the command, and the client can't know.
	Close = Action{verdict: closeConn}

	// Vanish loses it and leaves the connection open. Of messages one may be missing; requests and replies
	// have an order, so there nothing that follows in that direction arrives either.
	Vanish = Action{verdict: vanish}
)

// After is the same action, done when gate is closed: Pass then carries it on, and what follows on that connection and
// direction, even if the client has closed its connection by then.
func (a Action) After(gate <-chan struct{}) Action {
	a.gate = gate
	return a
}

// SetHook has every command, reply and message asked about. Connections ask at the same time; what belongs to
// one direction of one connection is asked in order. nil removes the hook.
func (p *Proxy) SetHook(hook func(Event) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = hook
}

// Fault is one fault that strikes once.
type Fault struct {
	tb    testing.TB
	stage Stage
	match func(cmd []string) bool
	after int // so many matches
	act   Action

	fired, gate chan struct{}
	release     sync.Once
}

func newFault(tb testing.TB) *Fault {
	return &Fault{tb: tb, fired: make(chan struct{}), gate: make(chan struct{})}
}

// Fired is closed when the fault has struck: the connection is closed, or the held bytes have arrived at the proxy.
func (f *Fault) Fired() <-chan struct{} { return f.fired }

// Wait returns when the fault has struck and fails the test if that takes longer than ten seconds.
func (f *Fault) Wait() {
	f.tb.Helper()
	select {
	case <-f.fired:
	case <-time.After(10 * time.Second):
		f.tb.Fatal("the fault didn't strike")
	}
}

// Release carries on what HoldRequest or HoldReply holds, or would hold.
func (f *Fault) Release() { f.release.Do(func() { close(f.gate) }) }

// EatReply drops the k-th reply (1 is the next one) to a command that match accepts and closes its connection: the
// server ran the command, and the client doesn't know. The words that match gets begin with the command's name in
// upper case. Faults count by themselves: to eat the next two replies, ask for k = 1 and k = 2.
func (p *Proxy) EatReply(match func(cmd []string) bool, k int) *Fault {
	return p.addFault(OnReply, match, k, Close)
}

// DropRequest closes the connection instead of forwarding the k-th matching command.
func (p *Proxy) DropRequest(match func(cmd []string) bool, k int) *Fault {
	return p.addFault(OnRequest, match, k, Close)
}

// HoldRequest holds the k-th matching command, and what follows on its connection, until Release. The client
// may have closed the connection by then: that is how a command arrives after its caller gave up.
func (p *Proxy) HoldRequest(match func(cmd []string) bool, k int) *Fault {
	return p.addFault(OnRequest, match, k, Pass)
}

// HoldReply holds the reply to the k-th matching command, and what follows on its connection, until Release.
func (p *Proxy) HoldReply(match func(cmd []string) bool, k int) *Fault {
	return p.addFault(OnReply, match, k, Pass)
}

func (p *Proxy) addFault(stage Stage, match func([]string) bool, k int, act Action) *Fault {
	f := newFault(p.tb)
	f.stage, f.match, f.after, f.act = stage, match, k, act
	if act.verdict == pass {
		f.act = Pass.After(f.gate)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return f
}

// Named matches commands by name, in any case.
func Named(names ...string) func(cmd []string) bool {
	return func(cmd []string) bool {
		for _, name := range names {
			if len(cmd) > 0 && strings.EqualFold(cmd[0], name) {
				return true
			}
		}
		return false
	}
}

// decide asks the hook and the faults. The hook is asked first and without a
// lock, since it may use the proxy; what it decides goes before a fault's act.
func (p *Proxy) decide(ev Event) (Action, []*Fault) {
	p.mu.Lock()
	hook := p.hook
	p.mu.Unlock()
	act := Pass
	if hook != nil {
		act = hook(ev)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	var struck []*Fault
	p.faults = slices.DeleteFunc(p.faults, func(f *Fault) bool {
		if f.stage != ev.Stage || len(ev.Cmd) == 0 || !f.match(ev.Cmd) {
			return false
		}
		f.after--
		if f.after == 0 {
			struck = append(struck, f)
		}
		return f.after == 0
	})
	if len(struck) > 0 && act == Pass {
		act = struck[0].act
	}
	return act, struck
}
