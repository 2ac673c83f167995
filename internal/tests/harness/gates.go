package harness

import (
	"time"

	"github.com/redis/go-redis/v9"
)

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
