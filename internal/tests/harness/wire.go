package harness

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
)

// Wire is a client's way to Redis, of any topology, that can be cut: its connections are then closed, no
// other is made, and commands fail without being sent. It also counts what is sent. Commands go by their
// names, in lower case, and scripts by those of call.ScriptName.
type Wire struct {
	// Patience is how long a command waits at a gate before it fails, as a client
	// that waits for an answer does; 0 is for ever.
	Patience time.Duration

	mu     sync.Mutex
	isCut  bool
	refuse func(name string) error
	gates  map[string]chan struct{} // by name: commands wait there before they are sent,
	locks  map[string]chan struct{} // and here, their replies
	apart  func()
	counts map[string]int // commands by name
	done   map[string]int // those of them that have been answered
	trips  map[string]int // writes to a connection that hold them
	conns  []net.Conn
}

// What a command comes to while its wire is cut, and where nobody answers.
var (
	ErrCut     = &net.OpError{Op: "read", Net: "tcp", Err: errors.New("wire cut")}
	ErrRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	errSilent  = &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
)

// Cut closes the connections, and fails what is to be sent from now on.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.conns = nil
}

// Fail fails, without sending it, each command for which that gives an error.
func (w *Wire) Fail(why func(name string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = why
}

// Refuse fails all commands as a host does on which no server runs.
func (w *Wire) Refuse() { w.Fail(func(string) error { return ErrRefused }) }

// GoAway makes the server one that is known not to answer, and then does not answer: what is
// sent hangs for a minute. call is any call that the breaker hears of.
func (w *Wire) GoAway(call func()) {
	w.Refuse()
	call()
	w.Fail(nil)
	w.mu.Lock()
	w.Patience = time.Minute
	w.mu.Unlock()
	w.Stall()
}

// CutOff fails all commands of these names as a network that is cut does.
func (w *Wire) CutOff(names ...string) { w.FailWith(ErrCut, names...) }

// FailWith fails all commands of these names with err.
func (w *Wire) FailWith(err error, names ...string) {
	w.Fail(func(name string) error {
		if slices.Contains(names, name) {
			return err
		}
		return nil
	})
}

// Split sends what is in one pipeline one by one, and calls between in between.
func (w *Wire) Split(between func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.apart = between
}

// Heal ends whatever was done to the wire.
func (w *Wire) Heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut, w.refuse, w.apart = false, nil, nil
	open(w.gates)
	open(w.locks)
	w.gates, w.locks = nil, nil
}

// Sent is how many commands of these names were sent so far, of all names where
// there are none. Those of pipelines are included.
func (w *Wire) Sent(names ...string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return sum(w.counts, names)
}

// Ran is how often that script was sent so far.
func (w *Wire) Ran(script string) int { return w.Sent(call.ScriptName(script)) }

// Answered is how many of them came back, well or not.
func (w *Wire) Answered(names ...string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return sum(w.done, names)
}

func sum(of map[string]int, names []string) (n int) {
	for name, c := range of {
		if len(names) == 0 || slices.Contains(names, name) {
			n += c
		}
	}
	return n
}

// CommandName is the command's name, in lower case; of a script "load enter" and such.
func CommandName(c redis.Cmder) string {
	word := strings.ToLower(c.Name())
	if word == "evalsha" || word == "eval" {
		return call.ScriptName(c.Args()[1].(string))
	}
	return word
}

// pass counts commands in, unless they are to fail, or their ctx has ended: go-redis sends none of those. (The
// handshake of a subscription that is connected again with such a ctx would wait at a gate with the subscription's
// lock held, for which its Close waits, and a bubble's clock stands still meanwhile.)
func (w *Wire) pass(ctx context.Context, cmds []redis.Cmder) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := w.at(cmds, func() map[string]chan struct{} { return w.gates }); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut {
		return ErrCut
	}
	for _, c := range cmds {
		if w.refuse != nil {
			if err := w.refuse(CommandName(c)); err != nil {
				return err
			}
		}
	}
	count(&w.counts, cmds)
	return nil
}

func count(in *map[string]int, cmds []redis.Cmder) {
	if *in == nil {
		*in = map[string]int{}
	}
	for _, c := range cmds {
		(*in)[CommandName(c)]++
	}
}

// back counts commands that came back.
func (w *Wire) back(cmds []redis.Cmder, err error) error {
	if err := w.at(cmds, func() map[string]chan struct{} { return w.locks }); err != nil {
		fail(cmds, err)
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	count(&w.done, cmds)
	return err
}

func fail(cmds []redis.Cmder, err error) {
	for _, c := range cmds {
		c.SetErr(err)
	}
}

// DialHook does nothing: connections are made by Dialer.
func (w *Wire) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook counts and cuts single commands.
func (w *Wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	carry := w.ProcessPipelineHook(func(ctx context.Context, cmds []redis.Cmder) error { return next(ctx, cmds[0]) })
	return func(ctx context.Context, cmd redis.Cmder) error { return carry(ctx, []redis.Cmder{cmd}) }
}

// ProcessPipelineHook counts and cuts pipelines.
func (w *Wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := w.pass(ctx, cmds); err != nil {
			fail(cmds, err)
			return err
		}
		w.mu.Lock()
		between := w.apart
		w.mu.Unlock()
		if between == nil {
			return w.back(cmds, next(ctx, cmds))
		}
		var first error
		for i := range cmds {
			if i > 0 {
				between()
			}
			if err := next(ctx, cmds[i:i+1]); err != nil && first == nil {
				first = err
			}
		}
		return w.back(cmds, first)
	}
}

// Stall holds up commands of these names, of all names where there are none, until Heal or Unstall.
func (w *Wire) Stall(names ...string) {
	if len(names) == 0 {
		names = []string{""}
	}
	w.hold(&w.gates, names...)
}

// Unstall lets go what Stall holds up.
func (w *Wire) Unstall() {
	w.mu.Lock()
	defer w.mu.Unlock()
	open(w.gates)
	w.gates = nil
}

// StallReplies holds up their replies, until Heal or until the function that it returns is called.
func (w *Wire) StallReplies(names ...string) (release func()) { return w.hold(&w.locks, names...) }

// HoldDials holds up connections that are made from now on, until Heal or until the function that it returns
// is called: a client that has a connection for commands can then not subscribe.
func (w *Wire) HoldDials() (release func()) { return w.hold(&w.gates, dialGate) }

const dialGate = "dial"

func (w *Wire) hold(gates *map[string]chan struct{}, names ...string) (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gate := make(chan struct{})
	if *gates == nil {
		*gates = map[string]chan struct{}{}
	}
	for _, n := range names {
		(*gates)[n] = gate
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		open(map[string]chan struct{}{"": gate})
	}
}

// open opens gates. Called with the wire's lock.
func open(gates map[string]chan struct{}) {
	for _, gate := range gates {
		select {
		case <-gate:
		default:
			close(gate) // of several names
		}
	}
}

// at waits at the gate that one of the commands has to wait at.
func (w *Wire) at(cmds []redis.Cmder, gates func() map[string]chan struct{}) error {
	w.mu.Lock()
	gate := gates()[""]
	for _, c := range cmds {
		if g := gates()[CommandName(c)]; g != nil {
			gate = g
		}
	}
	w.mu.Unlock()
	if gate == nil {
		return nil
	}
	var late <-chan time.Time
	if w.Patience > 0 {
		late = time.After(w.Patience)
	}
	select {
	case <-gate:
		return nil
	case <-late:
		return errSilent
	}
}
